"""The static pass: what a built kernel costs, without running it; and the kernels of a case of a bundle.

`static` is memoised by the kernel's build, `origins` by the source that it was traced from. Nothing here needs a GPU.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.bundle.store import room
from pgo_agent.sandbox.errors import BadBundle, UsageFault
from pgo_agent.sandbox.profile import assemble_static, memo, ttgir_cost
from pgo_agent.sandbox.profile.amd import AMD
from pgo_agent.sandbox.profile.assemble_static import Look
from pgo_agent.sandbox.profile.backend import Backend, CannotCompile, Compiled, Origin, Subject, Workbench
from pgo_agent.sandbox.profile.memo import Artefact
from pgo_agent.sandbox.profile.nvidia import NVIDIA
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile

BACKENDS: Mapping[str, Backend] = {b.name: b for b in (NVIDIA, AMD)}


class CannotTrace(Exception):
    """The launcher failed when it was traced again; the text says how."""


def of_subjects(bench: Workbench, subjects: Sequence[Subject], backend: str) -> dict[str, StaticProfile | Problem]:
    """Run `static` for several kernels side by side; return its answers by build key.

    Raises UsageFault for an unknown backend.
    """
    if backend not in BACKENDS:
        raise UsageFault(f"unknown backend '{backend}'", f"choose one of: {', '.join(BACKENDS)}")
    profiles = memo.parallel([partial(static, bench, s, backend) for s in subjects], bench.builder.cores)
    return {subject.build: profile for subject, profile in zip(subjects, profiles, strict=True)}


def subjects_of(
    bench: Workbench, source: str, bundle: str, case: str, label: str | None = None, together: tuple[str, ...] = ()
) -> tuple[Subject, ...]:
    """Return the distinct kernels of a case, each with what it was made of, in the order that they are launched in.

    `source`: the candidate's text that the bundle was built from. `case`: set and name, "CASES/d128-4k". `label`: one
    configuration of the case; all of them without. `together`: the cases that one trace of the source covers, this one
    among them; this one alone without. A kernel that the source does not make (its TTGIR was written by somebody) has
    no origin.

    Raises UsageFault for an unknown case or label, EnvironmentFault where the bundle is not in the content store or the
    disk is full.
    """
    manifest = bench.contents.manifest(bundle)
    keys = _launched(manifest["plans"], case, label)
    try:
        by_ttgir = {o.ttgir: o for o in origins(bench, source, bench.builder.target.contract, together or (case,))}
    except CannotTrace:
        by_ttgir = {}
    texts = {key: manifest["kernels"][key]["files"]["ttgir"] for key in keys}
    return tuple(Subject(key, by_ttgir.get(texts[key])) for key in keys)


def _launched(plans: Mapping[str, Any], case: str, label: str | None) -> list[str]:
    """Keys of kernels, each once."""
    if case not in plans:
        raise UsageFault(f"the bundle has no case '{case}'", f"choose one of: {', '.join(plans)}")
    if label is not None and label not in plans[case]:
        raise UsageFault(f"{case} has no configuration '{label}'", f"choose one of: {', '.join(plans[case])}")
    chosen = [plans[case][label]] if label is not None else list(plans[case].values())
    return list(dict.fromkeys(s["kernel"] for plan in chosen for s in plan["steps"] if "kernel" in s))


@memo.kept("pgo_agent.sandbox.profile.static.origins", version=2)
def origins(bench: Workbench, source: str, contract: str, cases: tuple[str, ...]) -> tuple[Origin, ...]:
    """Return what the kernels of cases are made of, in every configuration. `contract`: the target's text, part of the
    key.

    Raises CannotTrace, Killed when somebody kills the tracer again and again, EnvironmentFault when the disk is full.
    """
    b, by_set = bench.builder, dict[str, list[str]]()
    for kind, _, name in (case.partition("/") for case in cases):
        by_set.setdefault(kind, []).append(name)
    traced = trace_and_compile.trace(b.box, b.contents, b.target, b.device, source, by_set, None, True, untrusted=True)
    if "error" in traced:
        room(b.contents.root)
        raise CannotTrace(traced["error"]["message"])
    return tuple(_origin(bench, traced, key) for key in traced["kernels"])


def _origin(bench: Workbench, traced: trace_and_compile.Traced, key: str) -> Origin:
    shape = traced["kernels"][key]["shape"]
    return Origin(
        ttgir=bench.contents.put(traced["texts"][key], "ttgir"),
        located=Artefact.put(bench.contents, traced["located"][key], "located"),
        ttir=Artefact.put(bench.contents, traced["ttir"][key], "ttir"),
        warps=int(shape["num_warps"]),
        stages=int(shape["num_stages"]),
        ctas=int(shape["num_ctas"]),
    )


@memo.kept("pgo_agent.sandbox.profile.static.static", version=4)
def static(bench: Workbench, subject: Subject, backend: str) -> StaticProfile | Problem:
    """Profile one kernel as a backend compiles it. Raises what the compiler's box raises."""
    side = BACKENDS[backend]
    try:
        return _profile(bench, subject.build, side, side.compiled(bench, subject))
    except (CannotCompile, BadBundle) as e:
        return Problem(subject.build, backend, str(e))


def _profile(bench: Workbench, build: str, side: Backend, compiled: Compiled) -> StaticProfile:
    look = Look(side, compiled)
    return StaticProfile(
        build=build,
        kernel=compiled.name,
        backend=side.name,
        target=compiled.target,
        file=look.file,
        resources=compiled.resources,
        occupancy=side.occupancy(bench, compiled.resources),
        notes=compiled.notes,
        same_code=compiled.same_code,
        instructions=len(compiled.instructions),
        kinds=look.kinds(compiled.instructions),
        opcodes=assemble_static.opcodes(compiled.instructions),
        lines=look.lines(),
        source=look.sources(),
        curve=assemble_static.curve(compiled.instructions),
        peak=look.peak(),
        loops=look.loops(),
        pipeline=look.pipeline(),
        conversions=look.conversions(),
        accesses=look.accesses(),
        unproven=ttgir_cost.unproven(look.module),
    )
