"""Makes targets out of kernels that the moves have never seen, and runs launchers in Triton's interpreter.

`compose` writes a target from a kernel part and a contract; `taken` copies functions of an installed package as text.
`checked` asks the judge, `reason` gives the words of a rewrite that does not apply. `outputs` gives what a launcher
returns, bit for bit: a rewrite that changes no value leaves the same bits. The launcher runs in a box, by the product's
own module.
"""

import ast
import importlib.util
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.sandbox.gate.verdict import Judgement
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.questions import Check

from tests.judges import judge_of

HEADER = "import torch\nimport triton\nimport triton.language as tl\n"
SECONDS = 300
_SWIGLU = """

def kernel(x, gate, up):
    B, S, dim = x.shape
    wide = gate.shape[0]
    outs = [torch.empty((B, S, wide), device=x.device, dtype=x.dtype) for _ in range(3)]
    tensors = (x, gate, up, *outs)
    described = [triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(t, [1] * t.dim()) for t in tensors]
    grid = lambda meta: (triton.cdiv(S, meta["BLOCK_M"]) * triton.cdiv(wide, meta["BLOCK_N"]), B)  # noqa: E731
    _swiglu_kernel_forward[grid](*described, S, dim, wide, S, gate_multiplier=1.0)
    return outs
"""


def compose(folder: Path, kernel_part: str, contract: str) -> Path:
    """A target file from the text of its kernels and launcher, and the text of the contract's names."""
    path = folder / "composed.py"
    rule = "# " + "-" * 118
    path.write_text(f"{kernel_part.rstrip()}\n\n\n{rule}\n\n\n{contract.strip()}\n")
    return path


def taken(module: str, *names: str) -> str:
    """The text of functions of an installed module, decorators included, under the imports of a kernel file."""
    package, *inner = module.split(".")
    spec = importlib.util.find_spec(package)  # not of the module itself: that would import what it lies in
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    text = Path(spec.origin).parent.joinpath(*inner).with_suffix(".py").read_text()
    found = {n.name: n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)}
    return HEADER + "".join(f"\n\n{_text(text, found[name])}\n" for name in names)


def _text(source: str, function: ast.FunctionDef) -> str:
    first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
    lines = source.splitlines()[first - 1 : function.end_lineno]
    return "\n".join(line[function.col_offset :] for line in lines)


def swiglu() -> str:
    """Liger's fused gate of a SwiGLU layer: two products in one loop, through descriptors that its launcher makes."""
    names = ("_l2_swizzle", "_host_descriptor_pre_hook_fwd", "_swiglu_kernel_forward")
    return "import triton.tools.tensor_descriptor\n" + taken("liger_kernel.ops.mlp", *names) + _SWIGLU


def random(*shape: int) -> torch.Tensor:
    """Numbers in float16, the same ones for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def reason(rewrite: Callable[..., str], *given: Any, **named: Any) -> str:
    """Why a rewrite does not apply to what it is given."""
    with pytest.raises(DoesNotApply) as caught:
        rewrite(*given, **named)
    return str(caught.value)


def checked(path: Path, source: str) -> Judgement:
    """What the judge says of a source for a target, without a GPU."""
    return judge_of(path).verdict(Check(source=source))


def outputs(source: str, *calls: Mapping[str, Any], configs: int = 1) -> list[list[torch.Tensor]]:
    """What `kernel(**call)` of a source returns in Triton's interpreter, for each call; over several configurations
    of an autotuned kernel, one after the other, when `configs` is more than one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "candidate.py").write_text(source)
        cases = {str(i): tensors.save(dict(call), folder / "in", str(i)) for i, call in enumerate(calls)}
        wanted = dict.fromkeys(cases, configs)
        request = {"candidate": "candidate.py", "cases": cases, "configs": wanted, "device": "h200"}
        (folder / "request.json").write_text(json.dumps(request))
        ran = box.choose().run(box.INTERPRETER, folder, SECONDS)
        assert ran.code == 0, ran.output[-2000:]
        results: dict[str, list[dict[str, Any]]] = json.loads((folder / "out" / "result.json").read_text())
        return [[t for r in results[case] for t in _returned(r, folder / "out")] for case in cases]


def _returned(result: dict[str, Any], folder: Path) -> list[torch.Tensor]:
    assert "error" not in result, f"line {result.get('line')}: {result.get('error')}"
    loaded = tensors.load(result["outputs"], folder)
    return [loaded[str(i)] for i in range(len(loaded))]


def same_bits(one: Sequence[Sequence[torch.Tensor]], other: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether two answers of `outputs` hold the same tensors, bit for bit: NaN equals NaN, 0.0 is not -0.0."""
    pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    return bool(pairs) and all(a.dtype == b.dtype and a.shape == b.shape and _bits(a) == _bits(b) for a, b in pairs)


def _bits(t: torch.Tensor) -> bytes:
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
