"""AMD's side of the static profile, for gfx950 (MI350): compiled from the traced TTIR, never run.

The trace is for NVIDIA's device, so what AMD's own frontend would add is missing: that pointers stay within 2 GB, which
buffer instructions need. Software pipelines get AMD's default depth: a depth that was chosen for an NVIDIA GPU's shared
memory says nothing here. Figures of the chip are the vendor's, checked against the occupancy that LLVM prints.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import room
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation.box import ATTEMPTS, Ran, killed
from pgo_agent.sandbox.json_codec import JsonObject, Record
from pgo_agent.sandbox.profile import amdgcn, backend, memo
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
from pgo_agent.sandbox.profile.memo import Artefact

ARCH = "gfx950"
SECONDS = 300.0  # to compile one kernel
LANES = 64
SIMDS = 4  # of a compute unit
WAVES = 8  # that a SIMD holds
VECTOR_REGISTERS, VECTOR_UNIT = 512, 8  # of a lane of a SIMD, AGPRs among them; what a wave's are rounded up to
SCALAR_FULL, SCALAR_WAVES = 100, 7  # scalar registers of a wave that still allow WAVES; waves that more allow
LDS_BYTES, LDS_UNIT = 163840, 1280  # of a compute unit
GROUPS, SINGLE_GROUPS = 16, 32  # workgroups of a compute unit: with barriers, and of one wave each
LEFT = ("ttgir", "located", "amdgcn")  # what the compiler leaves


@dataclass(frozen=True)
class Assembly(Record):
    """What compiling one kernel left; or why it left nothing."""

    files: tuple[Artefact, ...]  # LEFT, in that order
    name: str
    shared: int  # bytes of LDS
    problem: str


def compiled(bench: Workbench, subject: Subject) -> Compiled:
    """Compile a kernel. Raises CannotCompile with the compiler's own words, or where no trace gave its TTIR."""
    if subject.origin is None:
        raise CannotCompile("no trace gives this kernel's TTIR, which another architecture is compiled from")
    origin = subject.origin
    assembly = assembled(bench, origin.ttir, origin.warps, origin.ctas, ARCH)
    if assembly.problem:
        raise CannotCompile(assembly.problem)
    ttgir, located, text = (f.read(bench.contents).decode() for f in assembly.files)
    code = amdgcn.instructions(text)
    return Compiled(
        target=ARCH,
        name=assembly.name,
        ttgir=ttgir,
        located=located,
        resources=_resources(amdgcn.metadata(text), code, assembly.shared, origin.warps),
        instructions=code,
        notes=(),
        same_code=True,
    )


def occupancy_of(needs: Resources) -> Occupancy:
    """Return workgroups that a compute unit holds at a time, as LLVM's AMDGPU backend counts for gfx950
    (AMDGPUBaseInfo.cpp).

    Vector registers of a wave are rounded up to 8 of 512 (getNumWavesPerEUWithNumVGPRs), up to 100 scalar ones allow 8
    waves of a SIMD and more allow 7 (getOccupancyWithNumSGPRs); a compute unit holds 16 workgroups of several waves
    (getMaxWorkGroupsPerCU). LDS of a workgroup is rounded up to 1280 bytes of 160 KiB (getLdsDwGranularity).
    """
    by_vector = VECTOR_REGISTERS // backend.rounded(max(needs.registers, 1), VECTOR_UNIT)
    by_scalar = WAVES if needs.scalar_registers <= SCALAR_FULL else SCALAR_WAVES
    lds = backend.rounded(needs.shared_bytes, LDS_UNIT)
    limits = {
        "registers": min(by_vector, WAVES) * SIMDS // needs.warps,
        "scalar registers": by_scalar * SIMDS // needs.warps,
        "warps": WAVES * SIMDS // needs.warps,
        "blocks": GROUPS if needs.warps > 1 else SINGLE_GROUPS,
    }
    limits |= {"shared memory": LDS_BYTES // lds} if lds else {}
    return backend.occupancy(limits, needs.warps, WAVES * SIMDS)


def _resources(figures: dict[str, int], code: Sequence[Instruction], shared: int, warps: int) -> Resources:
    return Resources(
        registers=figures["vgpr_count"],
        scalar_registers=figures["sgpr_count"],
        stack_bytes=figures["private_segment_fixed_size"],
        spill_store_bytes=sum(amdgcn.scratch_bytes(i.opcode) for i in code if "store" in i.opcode),
        spill_load_bytes=sum(amdgcn.scratch_bytes(i.opcode) for i in code if "load" in i.opcode),
        spilled_registers=figures["vgpr_spill_count"],
        shared_bytes=shared + figures["group_segment_fixed_size"],
        warps=warps,
        lanes=LANES,
    )


@memo.kept("pgo_agent.sandbox.profile.amd.assembled", version=1)
def assembled(bench: Workbench, ttir: Artefact, warps: int, ctas: int, arch: str) -> Assembly:
    """Compile TTIR for `arch` in the box. A kernel that does not compile gives a `problem`.

    Raises Killed when somebody kills the compiler again and again, EnvironmentFault when the disk is full.
    """
    options = {"num_warps": warps, "num_ctas": ctas}
    kernel = {"key": "kernel", "only": "amdgcn", "target": arch, "options": options}
    request = {"arch": bench.builder.device.arch, "jobs": 1, "kernels": [kernel]}
    for _ in range(ATTEMPTS):
        with bench.contents.scratch() as name:
            folder = Path(name)
            (folder / "in").mkdir()
            (folder / "in" / "kernel.ttir").write_bytes(ttir.read(bench.contents))
            (folder / "request.json").write_text(json.dumps(request))
            ran = bench.builder.box.run("pgo_agent.sandbox.compiler", folder, SECONDS)
            if not ran.killed:
                return _collected(bench, folder / "out", ran)
    raise killed("compiling")


def _collected(bench: Workbench, out: Path, ran: Ran) -> Assembly:
    try:
        answer: JsonObject = validate.answer(out / "kernel.json")
        if "error" in answer:
            room(bench.contents.root)
            return Assembly((), "", 0, str(answer["error"])[:4000] or "error: the compiler gave no reason")
        files = (validate.read(out / f"kernel.{s}", validate.ARTEFACT_LIMIT) for s in LEFT)
        artefacts = tuple(Artefact.put(bench.contents, data, s) for data, s in zip(files, LEFT, strict=True))
        facts = json_codec.from_json(dict[str, str | int], answer["facts"])
        return Assembly(artefacts, str(facts["name"]), int(facts["shared"]), "")
    except (BadBundle, ValueError, TypeError, KeyError, AttributeError):
        return Assembly((), "", 0, f"error: the compiler left no answer\n{ran.output[-2000:]}")


AMD = Backend("amd", compiled, lambda _, needs: occupancy_of(needs), amdgcn.kind, amdgcn.access_bytes)
