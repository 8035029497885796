"""Facts of a run that never was, with something in every field: prompts made of them are kept in `snapshots/`.

`python -m tests.agent.facts` writes the kept ones anew, after a template was changed on purpose.
"""

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

from pgo_agent.agent.llm import templates
from pgo_agent.agent.proposal import prompt
from pgo_agent.agent.proposal.prompt import Code, Facts
from pgo_agent.sandbox import devices

from tests.agent.loopback import PART

FOLDER = Path(__file__).parent / "snapshots"
H200 = devices.find("h200").__dict__
SHIPPED = {"ms": 2.3161, "rate": 474.6, "unit": "TFLOP/s", "choice": "BLOCK=512 num_warps=4", "how": "recorded"}
TUNED = {"ms": 2.2, "rate": 499.8, "unit": "TFLOP/s", "choice": "BLOCK=1024 num_warps=8", "how": "estimate"}
STATIC = {
    "registers": 232,
    "shared": 229376,
    "spill_store_bytes": 16,
    "spill_load_bytes": 8,
    "notes": ["C7512"],
    "pipeline_depth": 3,
    "blocks": 1,
    "warps": 8,
    "limiter": "registers",
    "cases": ["4k", "8k"],
    "choice": "BLOCK=512 num_warps=4",
}
VIEW = """\
                                                                     instr       P50   share  stalls
L1    kernel _add(x_ptr: *f32, n: i32):                                 12
...
L21     for i in range(0, n, 128) carrying acc = 0.0:                   89
L26       wait dots, 0 may fly  # ready: acc                             1     1,840  41.0 %  38.2 % wait
"""
EXCERPT = "// L26\n%130:4 = ttng.warp_group_dot_wait %129 {pendings = 0 : i32} : tensor<128x128xf32, #mma>\n"
WHOLE = "module {\n  tt.func public @_add(%x: !tt.ptr<f32>) {\n    tt.return\n  }\n}\n"
GLUON = (
    "gl.zeros(shape, dtype, layout=None) # Create a tensor filled with zeros.",
    "warpgroup_mma_wait(num_outstanding=0, deps=None)",
)
FULL = Facts(
    device=H200,
    triton="3.6.0",
    kernel=PART,
    cases=[
        {
            "name": "4k",
            "arguments": "x float16[4096, 64] strides [1, 4096], n=4096",
            "shipped": SHIPPED,
            "tuned": TUNED,
        },
        {"name": "8k", "arguments": "x float16[8192, 64], n=8192", "shipped": SHIPPED, "tuned": SHIPPED},
    ],
    statics=[STATIC],
    tried=["num_warps=16, 2 times: slower in stage quick: 0.93x of the incumbent"],
    allowed_ops=["aten.mm"],
    profile=[
        "4k: Bound by compute: 48% of the roof is reached.",
        "4k: spill (static, line 18): 16 B of registers spill.",
    ],
    quoted=[(18, "inside = at < n")],
    code=Code("_add", "4k", "BLOCK=512 num_warps=4", VIEW, EXCERPT),
    moves=["persistent grid: the last wave leaves SMs idle; judged on an H200 0.73 to 1.18x"],
    skipped=["specialize warps: no loop with a dot"],
    lessons=["accepted 1.033x its incumbent on NVIDIA H200: load through tensor descriptors"],
    guidance=["try a larger BLOCK first", "leave the launcher as it is"],
    cards=["wgmma_waits", "registers"],
    gluon=GLUON,
    launch='[{"BLOCK": 512, "num_warps": 4}]',
)
LEAST = Facts(H200, "3.6.0", PART)  # of a kernel of which nothing is known


def kept() -> dict[str, str]:
    """Name of each kept text -> what it should be now."""
    whole = replace(FULL, code=replace(FULL.code, excerpt="", whole=WHOLE) if FULL.code else None, gluon=())
    return {
        "full": prompt.render(FULL),
        "least": prompt.render(LEAST),
        "short": prompt.render(replace(FULL, budget=3000)),
        "whole_ttgir": prompt.render(whole),
        "cards": "\n\n".join(
            templates.render(name, device=H200, triton="3.6.0", lines=GLUON) for name in names("cards")
        ),
    }


def names(folder: str) -> Iterator[str]:
    """The templates of a folder."""
    root = resources.files("pgo_agent.prompts").joinpath(folder)
    yield from sorted(f"{folder}/{f.name.removesuffix('.j2')}" for f in root.iterdir() if f.name.endswith(".j2"))


if __name__ == "__main__":
    for name, text in kept().items():
        (FOLDER / f"{name}.md").write_text(text)
