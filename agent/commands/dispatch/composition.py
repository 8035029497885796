"""Writes one kernel file of several: the original, winners beside it under other names, and a guard for each.

Relies on `moves/analysis/merge_kernels.py` to put kernel parts together. The launcher asks the guards in turn, and
runs the original where none holds. What it writes imports nothing of pgo-agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pgo_agent.agent.commands.dispatch.guards import Guard
from pgo_agent.agent.moves.analysis import merge_kernels

GPU = '''
@functools.cache
def _proven_on(device):
    """Whether the GPU is of the kind that the faster kernels were proven on: asked once of each, and said once."""
    proven, name = "{gpu}", torch.cuda.get_device_name(device)
    if name != proven:
        warnings.warn(f"faster kernels were proven on {{proven}}, not on {{name}}: the original runs", stacklevel=2)
    return name == proven
'''
REGION = '''
def {name}({parameters}):
    """{said}"""
    return (
        {tests}
        and {tensor}.is_cuda
        and _proven_on({tensor}.device)
    )
'''


@dataclass(frozen=True)
class Part:
    """A region as it is written: whose kernel, behind what, and what is said of it."""

    source: str  # of the winner, the whole file
    guard: Guard
    said: str


def write(original: str, parts: Sequence[Part], gpu: str) -> str:
    """Return the file `original` with the parts' kernels behind their guards. Raises DoesNotApply where names clash,
    and where a kernel takes no tensor."""
    parameters = merge_kernels.parameters(original)
    guards = {name(i): region(part, name(i), parameters) for i, part in enumerate(parts)}
    helpers = [GPU.format(gpu=gpu), *guards.values()]
    imports = ["import functools", "import warnings", "import torch"]
    return merge_kernels.dispatched(
        original, {n: p.source for n, p in zip(guards, parts, strict=True)}, imports, helpers
    )


def name(i: int) -> str:
    return f"_region_{i + 1}"


def region(part: Part, named: str, parameters: str) -> str:
    """Return the function of a guard."""
    return REGION.format(
        name=named, parameters=parameters, said=part.said, tests=part.guard.text, tensor=part.guard.tensor
    )
