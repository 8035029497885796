"""Which parameters of the cases the arguments of a kernel's launches follow.

kernel() is traced for cases with one parameter doubled, and halved. An argument follows a parameter if it
changes by the same factor wherever the kernel is launched then: a size, a size times a constant, a number of rows.
Held-out cases are asked about only where no public one launches the kernel; nothing of them is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pgo_agent.sandbox.gate.barriers import launches
from pgo_agent.sandbox.gate.barriers.terms import Known
from pgo_agent.sandbox.gate.case_variants import Launcher, Variant
from pgo_agent.sandbox.gate.evidence import Side
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Module

CASES = 3  # that are asked about, of those that launch the kernel
Way = tuple[Module, Known]  # a launch of a kernel: its text, and the numbers that it fixes


@dataclass(frozen=True)
class Kernel:
    """A kernel of a candidate, and its launcher."""

    side: Side
    launcher: Launcher
    key: str
    module: Module

    def launched(self) -> dict[str, Known]:
        """Return public cases, with the numbers of their first launch of the kernel; held-out ones where no other
        launches it."""
        cases: dict[str, Known] = {}
        for case, plans in self.side.plans.items():
            steps = (s for p in plans for s in p["steps"] if s.get("kernel") == self.key)
            known = (k for s in steps if (k := launches.settled_by(s, self.module)) is not None)
            if (first := next(known, None)) is not None:
                cases[case] = first
        return {c: k for c, k in cases.items() if not launches.is_secret(c)} or cases

    def ways(self, variants: Sequence[Variant]) -> dict[Variant, list[Way]]:
        """Return how kernel() launches the kernel for variants: also the other texts that Triton makes of it for such
        numbers. Without variants that cannot be traced."""
        found = self.launcher.launches(variants)
        own = {self.key, self.side.replaced.get("key")}
        modules = {x.key: self.module if x.key in own else reader.parse(x.text) for ls in found.values() for x in ls}
        same = {k: m for k, m in modules.items() if _name(m) == _name(self.module)}
        return {
            v: [(m, k) for x in ls if (m := same.get(x.key)) and (k := launches.settled_by(x.step, m)) is not None]
            for v, ls in found.items()
        }


@dataclass(frozen=True)
class Followed:
    """How a case's launch of a kernel follows its parameters."""

    base: Known  # the numbers of the launch
    factors: Mapping[str, Mapping[str, Fraction]]  # argument -> parameter -> what makes the parameter of the argument

    def values(self, argument: str, value: int) -> list[tuple[str, int]]:
        """Return the parameters that give the argument this value, each with its own value."""
        wanted = [(p, factor * value) for p, factor in self.factors.get(argument, {}).items()]
        return [(p, int(v)) for p, v in wanted if v.denominator == 1]


def of_cases(kernel: Kernel) -> dict[str, Followed]:
    """Return case -> what its launch of the kernel follows. Raises what tracing the launcher raises."""
    cases = dict(list(kernel.launched().items())[:CASES])
    moved = {v: (c, p) for c in cases for p, n in kernel.launcher.cases[c].items() for v in _moved(c, p, n)}
    seen = kernel.ways(list(moved))
    found = {}
    for case, base in cases.items():
        parameters = {p: n for p, n in kernel.launcher.cases[case].items() if type(n) is int}
        own = {p: [(v, seen[v]) for v, at in moved.items() if at == (case, p) and seen.get(v)] for p in parameters}
        numbers = arguments(base)
        factors = {
            a: {p: Fraction(m, n) for p, m in parameters.items() if n and _follows(a, n, m, own[p])}
            for a, n in numbers.items()
        }
        found[case] = Followed(base, factors)
    return found


def _moved(case: str, parameter: str, value: object) -> list[Variant]:
    """Return the case with one parameter doubled, and halved."""
    if type(value) is not int or value < 2:
        return []
    return [Variant(case, ((parameter, n),)) for n in (2 * value, value // 2)]


def _follows(argument: str, base: int, parameter: int, seen: Sequence[tuple[Variant, list[Way]]]) -> bool:
    """Whether the argument is as many times the parameter as before, in each variant that launches the kernel."""
    wanted = ((Fraction(base * dict(v.changes).popitem()[1], parameter), ways) for v, ways in seen)
    return bool(seen) and all(any(arguments(k).get(argument) == n for _, k in ways) for n, ways in wanted)


def arguments(known: Known) -> dict[str, int]:
    return {leaf.name: n for leaf, n in known.items() if leaf.op == "arg"}


def _name(module: Module) -> str:
    return next(w for w in module.kernel.words if w.startswith("@"))
