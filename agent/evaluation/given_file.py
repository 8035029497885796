"""Candidates from files that a person gave: which of their configurations are judged, and a note on the others."""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgo_agent.agent.evaluation.known_time import known_time
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.moves import Proposal
from pgo_agent.agent.moves.launch_config import by_kernel
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import GivenFile
from pgo_agent.agent.run.provenance import GIVEN
from pgo_agent.agent.run.record.baseline import BaselinePoint, KnownTime
from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.build.result import Built, Choice
from pgo_agent.sandbox.bundle.documents import Config, Manifest
from pgo_agent.sandbox.gate.coverage import Coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement

KEPT = 3  # configurations of a case that are judged


# By these code may read its own text, to which comments and line numbers then mean something.
_READING = frozenset({
    "inspect", "linecache", "tokenize", "traceback", "sys", "os", "io", "pathlib", "open", "eval", "exec", "compile",
    "globals", "vars", "getattr", "__import__", "__file__", "__loader__", "__spec__", "__code__", "__dict__",
    "importlib", "raw_src", "src", "starting_line_number",
})  # fmt: skip


def same(source: str, other: str) -> bool:
    """Whether two files hold the same statements, whatever their comments and layout; of those that may read
    themselves, whether they are the same text."""
    if source == other:
        return True
    try:
        equal = ast.dump(parsing.module(source)) == ast.dump(parsing.module(other))
        return equal and not _names(parsing.module(kernel_part(source))) & _READING
    except RecursionError:
        return False


def _names(tree: ast.Module) -> set[str]:
    """Return the names, attributes and modules that a file mentions."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.alias(name=name):
                found.update(name.split("."))
            case ast.ImportFrom(module=str(name)):
                found.update(name.split("."))
    return found


def proposals(given: Sequence[GivenFile]) -> list[NewCandidate]:
    """Return the candidates that were given to a run."""
    proposals = (Proposal(g.source, g.kind, "given", f"given as {g.name}") for g in given)
    return [NewCandidate.of(p, GIVEN, incumbent.SHIPPED) for p in proposals]


def narrowed(ctx: Context, built: Built, at_best: bool = False) -> Built:
    """Return the build with at most KEPT configurations of a case: a given file brings its whole list.

    These are the ones at which the target itself is fastest, and the most promising others, by estimate. `at_best`: the
    first has each of several launches at the best that is known of it, and stays.
    """
    if all(len(options) <= KEPT for options in built.choices.values()):
        return built
    manifest = ctx.store.contents.manifest(built.bundle)
    judged = {case: _likeliest(ctx, manifest, case, built) for case in ctx.baseline().cases if case in built.choices}
    if at_best:
        firsts = {case: built.choices[case][0] for case in judged}
        judged = {c: [firsts[c], *(o for o in judged[c] if o != firsts[c])][:KEPT] for c in judged}
    used = Counter(o.label for options in judged.values() for o in options)
    for case in built.choices.keys() - judged.keys():  # held out: what the public cases use
        judged[case] = sorted(built.choices[case], key=lambda o: -used[o.label])[:KEPT]
    return _cut(ctx, manifest, built, judged)


def note_unjudged(ctx: Context, candidate: Candidate, judged: Judgement) -> Judgement:
    """Add how many configurations of its list a GPU judged, if not all: the others were not checked."""
    built = candidate.build
    counts = {case: (len(options), built.listed.get(case, 0)) for case, options in built.choices.items()}
    partial = {c: n for c, n in counts.items() if KEPT <= n[0] < n[1] and c in ctx.baseline().cases}
    if ctx.gpu is None or not partial:
        return judged
    figures = ", ".join(f"{a} of {b} of {c.split('/', 1)[1]}" for c, (a, b) in partial.items())
    why = f"a check judges {KEPT}: the target's fastest, and the likeliest others"
    skipped = {f"{b - a} configurations of {c.split('/', 1)[1]}": why for c, (a, b) in partial.items()}
    covered = judged.coverage + Coverage({}, skipped)
    whole = judged.why + plain(f"; configurations that were judged: {figures}")
    return replace(judged, why=whole, coverage=covered)


def _likeliest(ctx: Context, manifest: Manifest, case: str, built: Built) -> list[Choice]:
    base = ctx.baseline()
    points = [p for p in base.of_case(case) if not p.problem]
    listed, new = list[tuple[KnownTime, Choice]](), list[tuple[KnownTime, Choice]]()
    for o in built.choices[case]:
        point = measured_as(points, o.config, built.choices[case][0].config)
        work, statics = base.work_of(case), built.statics_of(o)
        time = point or known_time(ctx, manifest, case, o.label, o.plan_id, statics, work)
        (new if point is None else listed).append((time, o))
    first, second = ([o for _, o in sorted(timed, key=lambda x: x[0].rank)] for timed in (listed, new))
    return [*first[: KEPT - 1], *second[:1], *first[KEPT - 1 :], *second[1:]][:KEPT]


def measured_as(points: Sequence[BaselinePoint], config: Config, base: Config) -> BaselinePoint | None:
    """Return the fastest point in which the launches that a configuration varies from `base` have what it says.

    The others may stand at other configurations than when the point was measured. `base` itself is varied whole.
    """
    standing = by_kernel(base)
    own = {kernel: c for kernel, c in by_kernel(config).items() if c != standing.get(kernel)} or by_kernel(config)
    alike = (p for p in points if own.items() <= by_kernel(p.config).items())
    return min(alike, key=lambda p: p.rank, default=None)


def _cut(ctx: Context, manifest: Manifest, built: Built, choices: Mapping[str, Sequence[Choice]]) -> Built:
    plans = {case: {o.label: manifest["plans"][case][o.label] for o in options} for case, options in choices.items()}
    keys = {k for options in choices.values() for o in options for k in o.kernels}
    kernels = {k: v for k, v in manifest["kernels"].items() if k in keys}
    smaller: Manifest = {"schema": manifest["schema"], "kernels": kernels, "plans": plans}
    return replace(
        built,
        bundle=ctx.store.contents.put_bundle(smaller),
        choices={case: tuple(options) for case, options in choices.items()},
        statics={k: v for k, v in built.statics.items() if k in keys},
        codes={k: v for k, v in built.codes.items() if k in keys},
    )
