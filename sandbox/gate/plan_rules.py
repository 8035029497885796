"""Stage screen: compares a candidate's plans and precision with the original's. Reads data only; runs nothing.

Allocation and views are allowed, other torch ops only if the original launcher uses them: so a torch matrix product
cannot replace a kernel. Also refused are results in a new place where the original changes an input, candidates that
launch nothing where the original does, launches that nothing depends on, many more launches than the original's, dots
in a narrower type in any built case, kernels that store at a symbol of their module, which outlives a launch, and
launchers that do something else when they are called again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from pgo_agent.sandbox.bundle import ptx, torch_ops
from pgo_agent.sandbox.bundle.documents import PlanDocument, StepDocument
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.evidence import Evidence, Side, addressed, kernels, tensors
from pgo_agent.sandbox.gate.reason import NONE, Reason, of_case, plain, quoted, shown
from pgo_agent.sandbox.gate.verdict import Verdict

CHEAP = frozenset({"aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero_.default"})
MORE_LAUNCHES = 8  # beyond twice the original's: preprocessing, split-K and its reduction take two or three
SPLIT = 3  # dots that make one of wider operands (tf32x3, bf16x3): then narrower operands are no downgrade


def stage(candidate: Side, original: Side) -> Evidence:
    """Return rejected with the first broken rule, else no verdict."""
    for rule in (_in_place, _ops, _launches, _again, _idle, _precision, _stores):
        problem = next(rule(candidate, original), NONE)
        if problem:
            return Evidence("screen", Verdict.REJECTED, problem)
    count = max(len(kernels(p)) for plans in candidate.plans.values() for p in plans)
    text = f"torch ops, launches ({count}) and precision are within the original's"
    plans = sum(len(p) for p in candidate.plans.values())
    unlike = [c for c in candidate.plans if c not in original.plans]
    covered = coverage.of(
        dict.fromkeys(map(shown, unlike), "the original has no build of it to compare precision with"),
        cases=(len(candidate.plans) - len(unlike), len(candidate.plans)),
        configurations=plans,
        kernels=len(candidate.launched),
    )
    return Evidence("screen", None, plain(text), coverage=covered)


def ops_of(plans: Iterable[PlanDocument]) -> set[str]:
    """Return the torch ops of plans."""
    return {s["op"] for p in plans for s in p["steps"] if "op" in s}


def _in_place(candidate: Side, original: Side) -> Iterator[Reason]:
    """Give results that lie in an input that the original changes, and elsewhere in the candidate, or the reverse."""
    for case, plan in _each(candidate):
        for theirs in original.plans.get(case, ())[:1]:
            yield from (of_case(case) + plain(f": {words}") for words in _moved(plan, theirs, original.in_place))


def _moved(plan: PlanDocument, theirs: PlanDocument, in_place: Collection[str]) -> Iterator[str]:
    ours, shipped = held(plan, in_place), held(theirs, in_place)
    for n, (out, expected) in enumerate(zip(tensors(plan["out"]), tensors(theirs["out"]), strict=False)):
        name, wanted = ours.get(out["t"], ""), shipped.get(expected["t"], "")
        if name != wanted or (name and any(out[k] != expected[k] for k in ("offset", "stride"))):
            why = f": the kernel as shipped changes {wanted} in place; so must a candidate"
            words = f"result {n} lies {_where(name, out)}, and not {_where(wanted, expected)}"
            yield words + (why if wanted else " as that of the kernel as shipped")


def _where(name: str, t: Mapping[str, Any]) -> str:
    return f"in {name} (offset {t['offset']}, strides {t['stride']})" if name else "in memory of its own"


def held(plan: PlanDocument, in_place: Collection[str]) -> dict[int, str]:
    """Return the storages of inputs that kernel() changes, each with the name of its first one."""
    held: dict[int, str] = {}
    for name in sorted(in_place):
        given = list(tensors(plan["inputs"].get(name)))
        for i, t in enumerate(given):
            held.setdefault(t["t"], name if len(given) == 1 else f"{name}[{i}]")
    return held


def unreturned(plans: Iterable[PlanDocument], in_place: Collection[str]) -> list[str]:
    """Return the inputs of `in_place` in which no result lies: nobody sees what becomes of them."""
    lie = [(held(p, in_place), {t["t"] for t in tensors(p["out"])}) for p in plans]
    return sorted({name for inputs, results in lie for storage, name in inputs.items() if storage not in results})


def _ops(candidate: Side, original: Side) -> Iterator[Reason]:
    allowed = CHEAP | torch_ops.alike(ops_of(p for plans in original.plans.values() for p in plans))
    extra = sorted(ops_of(p for plans in candidate.plans.values() for p in plans) - allowed)
    if extra:
        yield quoted(f"uses torch ops that the original launcher does not: {', '.join(extra)}")


def _launches(candidate: Side, original: Side) -> Iterator[Reason]:
    shipped = max(len(kernels(p)) for plans in original.plans.values() for p in plans)
    steps = max(len(p["steps"]) for plans in original.plans.values() for p in plans)
    most = 2 * (shipped or steps) + MORE_LAUNCHES
    for case, plan in _each(candidate):
        if shipped and not kernels(plan):
            yield of_case(case) + plain(": launches no kernel, where the kernel as shipped does")
        if len(kernels(plan)) > most:
            words = f": {len(kernels(plan))} launches, where {most} are the most for this target"
            yield of_case(case) + plain(words)


def _again(candidate: Side, original: Side) -> Iterator[Reason]:
    """Give what a launcher does differently when it is called again: what is judged is one call of each case.

    What the kernel as shipped does, too, such as drawing a seed, is no fault of a candidate.
    """
    if candidate.again and original.again is not None:
        usual = {d.kind for found in original.again.values() for d in found}
        for case, different in ((c, d) for c, found in candidate.again.items() for d in found):
            if different.kind not in usual:
                words = f": when kernel() is called again, in another order of the cases, {different.said}"
                yield of_case(case) + quoted(words, case)


def _idle(candidate: Side, original: Side) -> Iterator[Reason]:
    """Give launches that could be left out, by their tensors."""
    if any(idle(p, original.in_place) for plans in original.plans.values() for p in plans):
        return  # the original does it, too
    for case, plan in _each(candidate):
        for n in idle(plan, original.in_place):
            name = candidate.manifest["kernels"][kernels(plan)[n]]["name"]
            words = f": nothing depends on launch {n + 1} ({name}): no tensor it is given is used after it"
            yield of_case(case) + quoted(words)


def idle(plan: PlanDocument, in_place: Collection[str] = ()) -> list[int]:
    """Return the launches that touch no storage that outputs depend on, and none that they may change for the caller.

    Inputs do not count, but for those `in_place`: they must not change.
    """
    changed = set(held(plan, in_place))
    needed = {t["t"] for t in tensors(plan["out"])} | changed
    inputs = {n for n, s in enumerate(plan["storages"]) if s["kind"] == "input"} - changed
    useless, launch = [], len(kernels(plan))
    for step, touched in reversed(_touched(plan)):
        launch -= "kernel" in step
        if touched & (needed - inputs) or (touched & needed and "op" in step):
            needed |= touched
        elif "kernel" in step:
            useless.append(launch)
    return useless[::-1]


def _touched(plan: PlanDocument) -> list[tuple[StepDocument, set[int]]]:
    """Return each step with the storages that it may use: what a table that it is given holds addresses of, too."""
    behind, result = defaultdict[int, set[int]](set), []
    for step in plan["steps"]:
        given = {t["t"] for t in tensors(step)}
        of_tables = set(addressed(step)).union(*(behind[s] for s in given))
        for t in tensors(step["out"] if "op" in step else step["args"]):
            behind[t["t"]] |= of_tables
        result.append((step, given | of_tables))
    return result


def _precision(candidate: Side, original: Side) -> Iterator[Reason]:
    """Hold each case to the original's least precision on inputs of the same types, in any case and configuration: of
    a held-out case the original has one configuration, which need not be the one that uses the narrowest dots."""
    alike = defaultdict[tuple[Any, ...], list[PlanDocument]](list)
    for _, plan in _each(original):
        alike[_types(plan)].append(plan)
    for case, plans in original.plans.items():
        theirs, ours = _least(original, plans), _least(candidate, candidate.plans.get(case, ()))
        if not theirs or not ours:
            continue
        narrowest = _least(original, alike[_types(plans[0])])
        for what, split in (("accumulator", False), ("operand", ours["dots"] >= SPLIT * theirs["dots"])):
            if ours[what] < narrowest[what] and not split:
                mine, yours = _bits(ours[what]), _bits(narrowest[what])
                yield of_case(case) + plain(f": an {what} of its dots is {mine}, of the original's {yours}")


def _types(plan: PlanDocument) -> tuple[Any, ...]:
    """Return what a launcher can choose a precision by: types of input tensors, and inputs that are no numbers."""
    types = {name: tuple(t["dtype"] for t in tensors(value)) for name, value in plan["inputs"].items()}
    words = {n: value for n, value in plan["inputs"].items() if value is None or isinstance(value, (str, bool))}
    return tuple(sorted((types | words).items(), key=itemgetter(0)))


def _stores(candidate: Side, original: Side) -> Iterator[Reason]:
    for key in candidate.launched:
        kernel = candidate.manifest["kernels"][key]
        if key in original.launched or "ptx" not in kernel["files"]:
            continue
        symbols = ptx.stored_at(candidate.contents.get(kernel["files"]["ptx"], "ptx").decode())
        if symbols:
            name = kernel["name"]
            yield quoted(f"{name} stores at a symbol of its module, which would outlive a launch: {symbols[:80]}")


def _least(side: Side, plans: Iterable[PlanDocument]) -> dict[str, int]:
    """Return the lowest precision of dots in any plan, and the least number of dots in a plan."""
    keys = [[k for k in kernels(p) if side.statics[k].get("precision")] for p in plans]
    precisions = [found for ks in keys for k in ks if (found := side.statics[k]["precision"])]
    if not precisions:
        return {}
    dots = min(sum(side.statics[k]["dots"] for k in ks) for ks in keys if ks)
    return {"dots": dots} | {what: min(t[what] for t in precisions) for what in ("operand", "accumulator")}


def _bits(significand: int) -> str:
    named = {24: "fp32", 11: "fp16 or tf32", 8: "bf16", 4: "fp8 (e4m3)", 3: "fp8 (e5m2)", 53: "fp64"}
    return named.get(significand, f"{significand} bits")


def _each(side: Side) -> Iterator[tuple[str, PlanDocument]]:
    return ((case, p) for case, plans in side.plans.items() for p in plans)
