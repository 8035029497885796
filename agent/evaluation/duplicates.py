"""Detects candidates whose code is not new, before any GPU time.

Two builds are the same if, case by case, the same plans launch the same code. Names, comments, source lines and names
of kernels make no difference. Code is compared and not IR, for options decide what runs, too, and no IR holds them
(flags of the assembler). The same IR with the same options gives the same code. Earlier runs may only refuse a
candidate: they never prove that it is right or fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import history
from pgo_agent.agent.run.record.candidate import BuildKey, Candidate
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.bundle import elf, plan_id
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault
from pgo_agent.sandbox.gate.reason import NONE, plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

STAGE = "known"  # of a verdict that comes from an earlier run
SAME_AS = "same_as"  # in the evidence: the candidate whose code it is
KEPT = 16384  # builds whose plans stay in memory: more than a run of a night has
Plans = frozenset[tuple[str, str]]  # case, and identity of a plan


def same_code(ctx: Context, candidate: Candidate) -> Judgement | None:
    """Return `no change` if an earlier candidate of the run brought every plan of this one; else None.

    Faulty candidates do not count: their fault may be in a case that is not built yet. Nor do those that are only
    built: the interpreter, which could not run one text, may run another of the same code.
    """
    built = candidate.build
    launches, brought = launched(ctx.store.contents, built), _brought(built)
    for c in ctx.store.candidates(ctx.run.id):
        if c.id == candidate.id:
            return None
        if not c.has_bundle or c.verdict in (*FAULTY, Verdict.VETOED, Verdict.BUILT):
            continue
        theirs = _plans(ctx.store.contents, c.build_key)
        if brought <= theirs.brought or (launches and launches <= theirs.launched):
            verdict = f", which is {c.verdict}" if c.verdict else ""
            why = plain(f"its code is that of candidate {c.id[:8]}{verdict}")
            return Judgement(Verdict.NO_CHANGE, "build", why, {SAME_AS: c.id})
    return None


def refused_before(ctx: Context, candidate: Candidate) -> Judgement | None:
    """Return the verdict on this very code if a GPU found it wrong or racy in an earlier run; else None.

    That run must have the same target, text, contract, device and Triton, and all cases must be launched as they were
    then, so that the one which failed is among them.
    """
    for c in history.refused(ctx.store, ctx.run):
        if not _launches_alike(ctx, candidate, c):
            continue
        where = f"its code is that of candidate {c.id[:8]} of run {c.run}"
        why = plain(f"{where}, which was {c.verdict} there ({c.stage}): ") + (c.why or NONE)
        return Judgement(Verdict(str(c.verdict)), STAGE, why)
    return None


def as_known(ctx: Context, built: Built) -> dict[str, list[str]]:
    """Return case -> ids of the plans of a build. A plan that differs only in names gets the id of the baselines'
    grid."""
    base, contents = ctx.baseline(), ctx.store.contents
    points, options = base.points, {case: built.choices[case] for case in base.cases}
    grid = {p.plan_id for p in points}
    if all(o.plan_id in grid for os in options.values() for o in os):
        return {case: [o.plan_id for o in os] for case, os in options.items()}
    alike = {(p.case, nameless(contents, p.bundle).get((p.case, p.choice))): p.plan_id for p in points}
    ids = nameless(contents, built.bundle)
    return {
        case: [alike.get((case, ids[case, o.label]), o.plan_id) if ids else o.plan_id for o in os]
        for case, os in options.items()
    }


def _launches_alike(ctx: Context, candidate: Candidate, other: Candidate) -> bool:
    ours, theirs = (set(c.built.choices if c.built else ()) for c in (candidate, other))
    contents, compiler = ctx.store.contents, triton_version(ctx.builder.box.python)
    if ours != theirs or _compilers(contents, other.built.bundle if other.built else "") != {compiler}:
        return False
    plans = launched(contents, candidate.built)
    return bool(plans) and plans == launched(contents, other.built)


def _compilers(contents: ContentStore, bundle: str) -> set[str]:
    """The versions of Triton that compiled a bundle; empty if it is lost."""
    try:
        return {str(k["triton"]) for k in contents.manifest(bundle)["kernels"].values()}
    except EnvironmentFault:
        return set()


@dataclass(frozen=True)
class _BuiltPlans:
    brought: Plans
    launched: Plans  # without the names of kernels


@lru_cache(maxsize=KEPT)
def _plans(contents: ContentStore, of: BuildKey) -> _BuiltPlans:
    """Return the plans of a candidate: each later one is compared with them."""
    return _BuiltPlans(_brought(of.build), launched(contents, of.build))


def _brought(built: Built) -> Plans:
    return frozenset((case, o.plan_id) for case, os in built.choices.items() for o in os)


def launched(contents: ContentStore, built: Built | None) -> Plans:
    """Return the plans of a build without the names of kernels; empty if its bundle is lost or damaged."""
    ids = nameless(contents, built.bundle if built else "")
    return frozenset((case, ids[case, label]) for case, label in ids if built and case in built.choices)


@lru_cache(maxsize=64)
def nameless(contents: ContentStore, bundle: str) -> Mapping[tuple[str, str], str]:
    """Return (case, configuration) -> id of its plan without the names of kernels. Empty if it is lost or damaged."""
    try:
        manifest = contents.manifest(bundle)
        images = {k: contents.get(kernel["files"]["cubin"], "cubin") for k, kernel in manifest["kernels"].items()}
        codes = {k: elf.code_id(image, named=False) for k, image in images.items()}
    except (EnvironmentFault, BadBundle):
        return {}
    plans = ((case, label, plan) for case, labelled in manifest["plans"].items() for label, plan in labelled.items())
    return {(case, label): plan_id.plan_id(plan, manifest["kernels"], codes) for case, label, plan in plans}
