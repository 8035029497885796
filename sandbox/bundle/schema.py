"""What a bundle says, as frozen dataclasses: storages, torch ops from a short list, kernel launches.

A plan is what a host launcher did. `decode.py` reads one from JSON, `validate.py` holds the rules that need the cubins.
"""

from dataclasses import dataclass
from typing import Any

VERSION = 1
MOST_STEPS = 4096  # of one plan
MOST_BLOCKS = 1 << 26  # of one launch
ITEMSIZE = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
    "float64": 8,
}


@dataclass(frozen=True)
class Tensor:
    storage: int  # index into the plan's storages
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]  # in elements
    offset: int  # in elements


@dataclass(frozen=True)
class Address:
    """Where a byte of a storage lies, as a number: of a table of addresses, or a launch's integer argument."""

    storage: int  # index into the plan's storages
    byte: int


@dataclass(frozen=True)
class Literal:
    """A small host tensor whose numbers, or addresses of storages, stand in the plan."""

    values: tuple[Any, ...]
    dtype: str
    size: tuple[int, ...]


@dataclass(frozen=True)
class Descriptor:
    """A host-made TMA descriptor."""

    base: Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str  # "zero" or "nan"
    tf32: bool


@dataclass(frozen=True)
class TorchName:
    """A torch.dtype, layout or memory format by its name."""

    name: str


@dataclass(frozen=True)
class OnDevice:
    """The torch.device that an op is given: always the judge's GPU."""


@dataclass(frozen=True)
class Storage:
    kind: str  # input, buffer (allocated, unwritten) or made (by a torch op)
    nbytes: int


@dataclass(frozen=True)
class Op:
    name: str  # one of OPS
    args: tuple[Any, ...]
    kwargs: dict[str, object]
    out: tuple[Tensor, ...]


@dataclass(frozen=True)
class Launch:
    kernel: str  # key of the bundle's kernel table
    grid: tuple[int, int, int]
    signature: tuple[Any, ...]  # Triton's type of each argument; nested for tuples
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    inputs: dict[str, object]  # name -> Tensor or scalar, as inputs(case, generator) gave them
    storages: tuple[Storage, ...]
    steps: tuple[Op | Launch, ...]
    out: tuple[Tensor, ...]

    @property
    def launches(self) -> list[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]


@dataclass(frozen=True)
class TmaMeta:
    """How the compiler lays out what a host-made TMA descriptor loads."""

    swizzle: int
    elem_size: int  # bytes
    elem_type: int
    fp4_padded: bool
    block_size: tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    name: str
    arch: int  # compute capability x 10
    shared: int  # bytes of dynamic shared memory
    num_warps: int
    num_ctas: int
    global_scratch_size: int  # bytes per CTA
    global_scratch_align: int
    profile_scratch_size: int
    profile_scratch_align: int
    launch_cooperative_grid: bool
    launch_pdl: bool
    tensordesc_meta: tuple[TmaMeta, ...]
    triton: str  # version that compiled it
    files: dict[str, str]  # suffix -> SHA-256 of the artefact
