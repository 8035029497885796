"""The JSON documents of a content store, as they are written: bundles with their plans, and builds of kernels.

They keep the form in which they are hashed, so these are typed dicts. What left a box is read by `decode.py` and
`validate.py` alone, whose dataclasses (`schema.py`) are what is launched. Plain types; runs nothing.
"""

from typing import Any, TypedDict

from pgo_agent.sandbox.json_codec import JsonObject

Config = JsonObject  # parameters of a launch; a tracer wrote them
Options = JsonObject  # what a kernel is compiled with, by the names of Triton's options and ours


class KernelDocument(TypedDict):
    """A compiled kernel: `schema.Kernel` has the same fields."""

    name: str
    arch: int
    shared: int
    num_warps: int
    num_ctas: int
    global_scratch_size: int
    global_scratch_align: int
    profile_scratch_size: int
    profile_scratch_align: int
    launch_cooperative_grid: bool
    launch_pdl: bool
    tensordesc_meta: list[JsonObject]
    triton: str
    files: dict[str, str]  # suffix -> SHA-256


def launch_options(kernel: KernelDocument) -> Options:
    """Return what a kernel was compiled with, as far as it tells itself."""
    return {"launch_pdl": kernel["launch_pdl"], "launch_cooperative_grid": kernel["launch_cooperative_grid"]}


class StepDocument(TypedDict, total=False):
    """A launch (with `kernel`) or a torch operation of a plan."""

    op: str  # name of a torch operation
    kernel: str  # key
    grid: list[int]
    signature: list[Any]
    args: list[Any]
    out: list[Any]  # of a torch operation


class PlanDocument(TypedDict):
    inputs: JsonObject  # name -> a tensor's place, or a scalar
    storages: list[JsonObject]
    steps: list[StepDocument]
    out: list[Any]


class Manifest(TypedDict):
    """A bundle."""

    schema: int
    kernels: dict[str, KernelDocument]
    plans: dict[str, dict[str, PlanDocument]]  # case -> configuration -> plan


def merged(first: Manifest, more: Manifest) -> Manifest:
    """Return a bundle with the kernels and plans of both."""
    kernels, plans = first["kernels"] | more["kernels"], first["plans"] | more["plans"]
    return {"schema": first["schema"], "kernels": kernels, "plans": plans}


class Static(TypedDict, total=False):
    """What a build says of itself without a GPU. Of a build with records or line information only a part."""

    name: str
    num_warps: int
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    notes: list[str]  # codes of ptxas
    shared: int  # bytes
    scopes: list[list[Any]]  # number and name of each scope of a text with records
    dots: int
    dot_waits: list[int | None]  # dots that each wait leaves in flight
    pipeline_depth: int
    async_copies: int
    warp_specialized: bool
    loop_flops: int
    precision: dict[str, int] | None  # bits of operands and accumulators
    barriers: JsonObject  # what a simulation found
    sass: JsonObject  # opcode -> count, `all`, and the hottest `loop`


class Described(TypedDict, total=False):
    """What a target says of itself. Its tracer wrote that: trust it for the original only."""

    sets: dict[str, dict[str, JsonObject]]  # CASES, SMALL, HELD_OUT -> name -> parameters
    work: dict[str, dict[str, JsonObject]]  # set -> name -> operations and bytes
    weights: Any  # as the target has it
    nondeterministic: bool
    libraries: list[str]
    launch_space: Any


class BuildDocument(TypedDict, total=False):
    """What compiling a kernel gave: an error, or all of the rest."""

    error: str
    kernel: KernelDocument
    static: Static
    code_id: str
    options: Options
