"""Has Inductor write the code of small models for a GPU that is not there: `python make.py FOLDER`.

It is what the files beside this one were made with (torch 2.13, CPU build). Models run on fake CUDA tensors, their code
is taken before it would be loaded, and a matmul is the first Triton template, for nothing can be timed.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.tracer import fake_cuda_api, fake_gpu
from pgo_agent.sandbox.tracer.capture_ttgir import Capture

STAMP = "V1126 18:06:38.552000 31786 torch/_inductor/graph.py:2722] [0/0] [__output_code] "
Model = tuple[Callable[..., Any], tuple[Any, ...]]


class Taken(BaseException):
    """Carries the code out of the compilation."""


def models() -> Iterator[tuple[str, dict[str, Any], Callable[[], Model]]]:
    """Yield file, options of torch.compile and the model with its arguments."""
    F = torch.nn.functional

    def half(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda", dtype=torch.float16)

    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y).relu_()
        return x.sum(-1)

    def attention(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = (t.view(2, 64, 4, 32).transpose(1, 2) for t in (x @ w, x @ v))
        apart = torch.ones(64, 64, dtype=torch.bool, device=x.device).tril()
        return torch.softmax((q @ k.transpose(-1, -2)).masked_fill(~apart, float("-inf")).float(), -1).half() @ k

    labels = lambda: torch.randint(0, 512, (256,), device="cuda")  # noqa: E731
    yield "two_graphs", {}, lambda: ((lambda x, b: F.gelu(x + b)), (half(1024, 96), half(96)))
    yield "two_graphs", {}, lambda: (added, (half(512, 128), half(512, 128)))
    yield "dynamic", {"dynamic": True}, lambda: ((lambda x, b: F.silu(x) * b), (half(300, 1024), half(300, 1024)))
    yield "loss", {}, lambda: ((lambda x, t: F.cross_entropy(x.float(), t)), (half(256, 512), labels()))
    yield "outer", {}, lambda: ((lambda x: torch.var(x, dim=0)), (torch.randn(2048, 32, device="cuda"),))
    yield "matmul", {}, lambda: ((lambda x, w, b: F.relu(x @ w + b)), (half(256, 64), half(64, 128), half(128)))
    yield "attention", {}, lambda: (attention, (half(2, 64, 128), half(128, 128), half(128, 128)))
    rows = lambda: (torch.randint(0, 64, (256,), device="cuda"), torch.randn(256, 128, device="cuda"))  # noqa: E731
    yield "index_add", {}, lambda: ((lambda i, x: torch.zeros(64, 128, device="cuda").index_add(0, i, x)), rows())
    put = lambda: (  # noqa: E731
        torch.randint(0, 128, (64, 8), device="cuda"),
        *(torch.randn(64, n, device="cuda") for n in (128, 8)),
    )
    yield "scatter", {}, lambda: ((lambda i, x, y: x.scatter(1, i, y)), put())
    bits = lambda: (torch.randint(0, 255, (128, 64), device="cuda", dtype=torch.uint8), half(128, 1))  # noqa: E731
    yield (
        "unpacked",
        {},
        lambda: ((lambda w, s: torch.stack((w & 15, (w >> 4) & 15), -1).half() * s[..., None]), bits()),
    )
    yield "random", {}, lambda: ((lambda x: F.dropout(x, 0.1, True)), (half(256, 128),))


def prepare() -> None:
    """Make Inductor believe in a GPU, and end it where it would need one."""
    nothing = fake_cuda_api.Refusals(), fake_gpu.Addresses()
    fake_gpu.install(devices.find("h100"), *nothing, lambda *_a: None, Capture(False, False).resources)
    import torch._inductor.fx_passes.fuse_attention as attention  # with what it finds of a GPU
    import torch._inductor.fx_passes.pad_mm as padding
    import torch._inductor.select_algorithm as choosing
    from torch._inductor.graph import GraphLowering

    torch.cuda.get_rng_state = lambda *_a: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda *_a: None
    torch.accelerator.is_available = lambda: False
    attention._sfdp_init = padding._pad_mm_init = lambda *_a, **_k: None
    selector = choosing.AlgorithmSelectorCache
    selector.make_precompile_fn = lambda *_a, **_k: lambda *_b: {}
    selector.make_benchmark_fn = lambda *_a, **_k: lambda choices: {c: float(i) for i, c in enumerate(choices)}

    def taken(lowered: Any) -> None:
        code = lowered.codegen()[0]
        raise Taken(getattr(code, "value", code))

    GraphLowering.compile_to_module = taken


def code(compiler: Callable[..., Any], options: dict[str, Any], model: Callable[[], Model]) -> str:
    from torch._inductor import config

    torch._dynamo.reset()
    with fake_gpu.FakeMode(allow_non_fake_inputs=True):
        function, args = model()
    settings = {
        "force_disable_caches": True,
        "compile_threads": 1,
        "joint_graph_constant_folding": False,
        "max_autotune_gemm": True,
        "max_autotune_gemm_backends": "TRITON",
        "benchmark_epilogue_fusion": False,
    }
    try:
        with config.patch(**settings):
            compiler(function, **options)(*args)
    except Taken as text:
        return str(text)
    raise AssertionError("nothing was compiled")


def main(folder: Path) -> None:
    compiler = torch.compile
    prepare()
    for name, options, model in models():
        text = code(compiler, options, model)
        if name != "two_graphs":
            (folder / f"{name}.txt").write_text(text)
            continue
        with (folder / f"{name}.txt").open("a") as file:
            file.writelines(f"{STAMP}{line}\n" for line in ["Output code: ", *text.splitlines()])
            file.write("a line that the program printed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
