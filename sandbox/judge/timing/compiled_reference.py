"""`torch.compile` of a target's reference, which the last session times beside the kernel.

The reference runs in the judge anyway, as a part of the target; no candidate takes part. What PyTorch compiles lies in
a folder of this process, and nothing is loaded that others left. It needs Triton and a C compiler. The reference gets
inputs in their own precision, each case is compiled for its own shapes, and its results must be right by the rule for
kernels. What goes wrong is said in words and raises nothing; a hang ends at the deadline of its step.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox.judge.results.checks import TargetSession
from pgo_agent.sandbox.temporary_folders import temporary_folder

STEP = "compile the reference"
SECONDS = 240.0  # deadline of one case: a loop over 4096 tokens is unrolled
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# Settings of Inductor, where it has them: no processes that outlive a compilation, no headers in a common folder.
ALONE = {"compile_threads": 1, "cpp_cache_precompile_headers": False}
LONGEST = 300  # characters of what PyTorch says
Reference = Callable[..., Any]


@contextmanager
def compiling() -> Iterator[None]:
    """Let PyTorch compile in this process alone, into a folder that lasts as long as the block."""
    from torch._inductor import config

    before = {name: os.environ.get(name) for name in CACHES}
    with temporary_folder("reference") as folder:
        os.environ |= {name: str(Path(folder, name)) for name in CACHES}
        try:
            with config.patch({name: value for name, value in ALONE.items() if hasattr(config, name)}):
                yield
        finally:
            torch.compiler.reset()
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def of(bench: TargetSession, case: str) -> tuple[Reference | None, str]:
    """Return the compiled reference of a case, which has run once; or None, and why there is none."""
    try:
        expected = bench.expect(case)
        bench.announce(f"{STEP} {case}", SECONDS)
        function = _compiled(bench.target.reference)
        outputs = function(**bench.inputs(case, expected.seed))
        if not _graphs():
            return None, "PyTorch found nothing in it to compile"
        problem = bench.problem(outputs, case)
    except Exception as e:  # whatever Dynamo, Inductor, Triton or the C compiler raise
        return None, " ".join(f"{type(e).__name__}: {e}".split())[:LONGEST]
    return (None, f"its results are not right: {problem}") if problem else (function, "")


def _compiled(reference: Reference) -> Reference:
    """Return it compiled anew: after a few other shapes PyTorch would run it without compiling."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    compiled: Reference = torch.compile(reference, dynamic=False)
    return compiled


def _graphs() -> int:
    """Return how many graphs were compiled since `_compiled`."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
