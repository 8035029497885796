"""NVIDIA's side of the static profile: a build with line information, its SASS, and occupancy of an SM.

Registers, spills and notes are those of the build that is timed. Lines and live registers are read from its variant
with line information, and `Compiled.same_code` says whether the code of both is the same: where registers spill, ptxas
may decide otherwise as soon as it gets line information.
"""

from dataclasses import dataclass

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.bundle.documents import BuildDocument, launch_options
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.compiler import static
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.profile import backend, sass
from pgo_agent.sandbox.profile.backend import (
    Backend,
    CannotCompile,
    Compiled,
    Instruction,
    Occupancy,
    Resources,
    Subject,
    Workbench,
)
from pgo_agent.sandbox.ttgir import reader

LANES = 32


def compiled(bench: Workbench, subject: Subject) -> Compiled:
    """Return the compiled kernel. Raises CannotCompile where the build failed, EnvironmentFault where it is
    missing."""
    build = _build(bench.contents, subject.build)
    listed = listing(bench, subject.build)
    located = subject.origin.located.read(bench.contents).decode() if subject.origin else ""
    return Compiled(
        target=f"sm_{build['kernel']['arch']}",
        name=build["kernel"]["name"],
        ttgir=listed.ttgir,
        located=located,
        resources=resources_of(build),
        instructions=listed.instructions,
        notes=tuple(build["static"]["notes"]),
        same_code=listed.same_code,
    )


def occupancy_of(device: Device, needs: Resources) -> Occupancy:
    """Return how many blocks an SM holds at a time: see `Device.resident_blocks`."""
    limits = device.resident_blocks(needs.registers, needs.shared_bytes, needs.warps)
    return backend.occupancy(limits, needs.warps, device.threads_sm // LANES)


@dataclass(frozen=True)
class Listing:
    """What nvdisasm says of a build's variant with line information."""

    ttgir: str  # the text whose lines the instructions name
    sass: str
    instructions: tuple[Instruction, ...]
    same_code: bool  # whether the code is the build's own, to the bit


def listing(bench: Workbench, key: str) -> Listing:
    """Return the listing of a build in the content store, instrumented ones too; build the variant where it is missing.

    Raises CannotCompile where the build or its variant failed, and what the compiler's box raises.
    """
    build = _build(bench.contents, key)
    text = {s: bench.contents.get(d, s) for s, d in _lined(bench, key, build)["kernel"]["files"].items()}
    timed = bench.contents.get(build["kernel"]["files"]["cubin"], "cubin")
    same = elf.code(timed) == elf.code(text["cubin"])
    return Listing(text["ttgir"].decode(), text["sass"].decode(), _instructions(text), same)


def _build(contents: ContentStore, key: str) -> BuildDocument:
    build = contents.build(key)
    if build is None or "error" in build:
        raise CannotCompile(build["error"] if build else "it is not in the content store")
    return build


def _lined(bench: Workbench, key: str, build: BuildDocument) -> BuildDocument:
    """Return the build of the same TTGIR with line information; made where it is missing."""
    text = bench.contents.get(build["kernel"]["files"]["ttgir"], "ttgir")
    options = {**build.get("options", launch_options(build["kernel"])), "lines": True}
    lined = bench.builder.key(text, options)
    trace_and_compile.compile_missing(
        bench.builder.box, bench.contents, bench.builder.device, {lined: text}, {lined: options}, 1
    )
    return _build(bench.contents, lined)


def resources_of(build: BuildDocument) -> Resources:
    """Return what one block of a build in the content store takes."""
    kernel, static = build["kernel"], build["static"]
    return Resources(
        registers=static["registers"],
        scalar_registers=0,
        stack_bytes=static["stack_bytes"],
        spill_store_bytes=static["spill_store_bytes"],
        spill_load_bytes=static["spill_load_bytes"],
        spilled_registers=static["spill_store_bytes"] // 4,
        shared_bytes=kernel["shared"],
        warps=kernel["num_warps"],
        lanes=LANES,
    )


def _instructions(text: dict[str, bytes]) -> tuple[Instruction, ...]:
    module = reader.parse(text["ttgir"].decode())
    dots = {op.line for op in module.walk() if op.name in static.DOTS}
    return sass.settled(sass.instructions(text["sass"].decode(), text["live"].decode()), dots)


NVIDIA = Backend(  # of compute capability 8.0 and later
    "nvidia", compiled, lambda bench, needs: occupancy_of(bench.builder.device, needs), sass.kind, sass.access_bytes
)
