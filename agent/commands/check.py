"""`check`: the whole gate on a file that somebody gives, as a run with that one candidate.

The file may be a whole copy of the target or its kernel part alone (only the kernel part may differ), or TTGIR that
takes the place of one kernel's own. Relies on `kernel_part.py` and `replies.py` to cut and to merge. It reads texts and
never runs them: a given file is foreign code, so its run builds and judges it in the box, or not at all.
"""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.evaluation import baseline
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.kernel_part import blocks, hidden
from pgo_agent.agent.llm.replies import TOO_DEEP, BadReply, merge
from pgo_agent.agent.moves import Proposal
from pgo_agent.agent.run import incumbent, ttgir_files
from pgo_agent.agent.run.context import Context, Emit
from pgo_agent.agent.run.record.store import Candidate, Store
from pgo_agent.sandbox import parsing, target
from pgo_agent.sandbox.build.result import Built, Choice
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.coverage import Coverage
from pgo_agent.sandbox.gate.verdict import Judged
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.target import CONTRACT, Target

KEPT = 3  # configurations of a case that are judged
AUTHOR = "given"  # not `embedded`: without a sandbox it is refused
_FORMS = "give a copy of the target with another kernel part, the kernel part alone, or a kernel's .ttgir"


def start(file: Path, of: Path, wishes: optimize.Wishes, store: Store, emit: Emit) -> Exit:
    """A new run that judges `file` as a candidate for the target `of`. Raises Faults before there is a run."""
    found = target.read(optimize.locate(of))
    given = read(file, found)
    box.choose(wishes.sandbox, wishes.python).admit(foreign=True)
    return optimize.start(found.path, replace(wishes, given=(given,)), store, emit)


# the file -------------------------------------------------------------------------------------------------------------


def read(file: Path, found: Target) -> dict[str, str]:
    """What a run's settings keep of a given file: its name, its kind, and the target's text with its kernel part.

    A .ttgir file is kept as it is. Raises UsageFault when another one is no Python, has no kernel(), or says something
    else of the contract than the target.
    """
    text = target.text(file)
    if file.suffix == ".ttgir":
        ttgir_files.at(text)
        return {"from": str(file), "kind": "ttgir", "source": text}
    target.parse(text, str(file))
    try:
        return {"from": str(file), "kind": "source", "source": _candidate(file, text, found)}
    except BadReply as e:
        raise UsageFault(f"{file}: {e}", _FORMS) from None
    except RecursionError:
        raise UsageFault(f"{file}: {TOO_DEEP}", "nest it less deeply") from None


def same(source: str, other: str) -> bool:
    """Whether two files hold the same statements."""
    try:
        return ast.dump(parsing.module(source)) == ast.dump(parsing.module(other))
    except RecursionError:
        return source == other


def _candidate(file: Path, text: str, found: Target) -> str:
    brought = set[str]().union(*(b.names for b in blocks(text)))
    if "kernel" not in brought:
        raise UsageFault(f"{file} does not define kernel()", _FORMS)
    differing = _differing(text, found)
    if differing:
        raise UsageFault(
            f"{file} says something else than {found.contract_path} of: {', '.join(differing)}",
            "only the kernel part is judged: leave these as the target has them, or change the target itself",
        )
    return text if target.same_contract(text, found.source) else merge(found.source, text)


def _differing(text: str, found: Target) -> list[str]:
    """Names of the contract, and of what serves it alone, by other statements than the target's."""
    own = blocks(found.contract)
    served = set[str]() if found.sidecar else set[str]().union(*(own[i].names for i in hidden(own)))
    wanted, brought = (_statements(t, CONTRACT | served) for t in (found.contract, text))
    whole = bool(brought.keys() & CONTRACT) and not found.sidecar
    return sorted(n for n in {*brought, *(wanted if whole else ())} if brought.get(n) != wanted.get(n))


def _statements(text: str, names: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for block in blocks(text):
        for name in block.names & names:
            found.setdefault(name, []).extend(ast.dump(n) for n in block.nodes)
    return found


# its run --------------------------------------------------------------------------------------------------------------


def proposals(settings: Mapping[str, Any]) -> list[tuple[Proposal, str, str]]:
    """The candidates that were given to a run, with author and parent; none for a run that looks for its own."""
    given = settings.get("given") or ()
    proposals = (Proposal(g["source"], g.get("kind", "source"), "given", f"given as {g['from']}") for g in given)
    return [(p, AUTHOR, incumbent.SHIPPED) for p in proposals]


def narrowed(ctx: Context, built: Built) -> Built:
    """The build with no more than KEPT configurations of a case: a given file brings its whole list.

    Kept are those at which the target itself is fastest, and the likeliest of the others, by an estimate.
    """
    if all(len(options) <= KEPT for options in built.choices.values()):
        return built
    manifest = ctx.store.shelf.manifest(built.bundle)
    kept = {case: _likeliest(ctx, manifest, case, built) for case in ctx.baseline()["cases"] if case in built.choices}
    used = Counter(o.label for options in kept.values() for o in options)
    for case in built.choices.keys() - kept.keys():  # held out: what the public cases use
        kept[case] = sorted(built.choices[case], key=lambda o: -used[o.label])[:KEPT]
    return _cut(ctx, manifest, built, kept)


def said_of(ctx: Context, candidate: Candidate, judged: Judged) -> Judged:
    """With how many configurations of its list a GPU judged, where those are not all: the others were not looked at."""
    built = candidate.built or {}
    kept = {case: (len(o), built.get("listed", {}).get(case, 0)) for case, o in built.get("choices", {}).items()}
    lost = {c: n for c, n in kept.items() if KEPT <= n[0] < n[1] and c in ctx.baseline()["cases"]}
    if ctx.gpu is None or not lost:
        return judged
    told = ", ".join(f"{a} of {b} of {c.split('/', 1)[1]}" for c, (a, b) in lost.items())
    why = f"a check judges {KEPT}: the target's fastest, and the likeliest others"
    skipped = {f"{b - a} configurations of {c.split('/', 1)[1]}": why for c, (a, b) in lost.items()}
    covered = judged.coverage + Coverage({}, skipped)
    return replace(judged, reason=f"{judged.reason}; configurations that were judged: {told}", coverage=covered)


def _likeliest(ctx: Context, manifest: Mapping[str, Any], case: str, built: Built) -> list[Choice]:
    base = ctx.baseline()
    points = [p for p in base["points"] if p["case"] == case and not p["problem"]]
    own: list[tuple[Any, Choice]] = []
    new: list[tuple[Any, Choice]] = []
    for o in built.choices[case]:
        point = next((p for p in points if p["config"] == o.config), None)
        statics = [built.statics[k] for k in o.kernels]
        told = point or baseline.known(ctx, manifest, case, o.label, o.plan_id, statics, base["work"])
        (new if point is None else own).append((baseline.order(told), o))
    first, second = ([o for _, o in sorted(found, key=lambda f: f[0])] for found in (own, new))
    return [*first[: KEPT - 1], *second[:1], *first[KEPT - 1 :], *second[1:]][:KEPT]


def _cut(ctx: Context, manifest: Mapping[str, Any], built: Built, kept: Mapping[str, Sequence[Choice]]) -> Built:
    plans = {case: {o.label: manifest["plans"][case][o.label] for o in options} for case, options in kept.items()}
    keys = {k for options in kept.values() for o in options for k in o.kernels}
    smaller = {**manifest, "plans": plans, "kernels": {k: v for k, v in manifest["kernels"].items() if k in keys}}
    return replace(
        built,
        bundle=ctx.store.shelf.put_bundle(smaller),
        choices={case: tuple(options) for case, options in kept.items()},
        statics={k: v for k, v in built.statics.items() if k in keys},
        codes={k: v for k, v in built.codes.items() if k in keys},
    )
