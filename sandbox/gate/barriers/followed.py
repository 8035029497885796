"""Which parameters of the cases the arguments of a kernel's launches follow.

kernel() is traced for cases with one parameter doubled, and halved. An argument follows a parameter if it
changes by the same factor wherever the kernel is launched then: a size, a size times a constant, a number of rows.
Held-out cases are asked about only where no public one launches the kernel; nothing of them is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from pgo_agent.sandbox.gate.barriers import launches
from pgo_agent.sandbox.gate.barriers.terms import Known
from pgo_agent.sandbox.gate.case_variants import Launcher, Variant
from pgo_agent.sandbox.gate.evidence import Side
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
            if case in self.launcher.cases and (first := next(known, None)) is not None:
                cases[case] = first
        return {c: k for c, k in cases.items() if not launches.is_secret(c)} or cases

    def ways(self, variants: Sequence[Variant]) -> dict[Variant, list[Way]]:
        """Return how kernel() launches the kernel for variants: also the other texts that Triton makes of it for such
        numbers. Without variants that cannot be traced."""
        found = self.launcher.launches(variants)
        own = {self.key, self.side.replaced.get("key")}
        modules = {v: [(self.module if x.key in own else x.module, x.step) for x in ls] for v, ls in found.items()}
        same = {v: [(m, step) for m, step in ls if m.name == self.module.name] for v, ls in modules.items()}
        return {v: [(m, k) for m, s in ls if (k := launches.settled_by(s, m)) is not None] for v, ls in same.items()}


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
    cases = dict(islice(kernel.launched().items(), CASES))
    sizes = {c: {p: n for p, n in kernel.launcher.cases[c].items() if type(n) is int} for c in cases}
    seen = kernel.ways([v for c in cases for v in _moved(c, sizes[c])])
    of_case = {c: {v: ways for v, ways in seen.items() if v.case == c and ways} for c in cases}
    return {c: Followed(base, _factors(base, sizes[c], of_case[c])) for c, base in cases.items()}


def _moved(case: str, sizes: Mapping[str, int]) -> Iterator[Variant]:
    """Give the case with each parameter doubled, and halved."""
    for parameter, size in sizes.items():
        yield from (Variant(case, ((parameter, n),)) for n in (2 * size, size // 2) if size > 1)


def _factors(
    base: Known, sizes: Mapping[str, int], seen: Mapping[Variant, list[Way]]
) -> dict[str, dict[str, Fraction]]:
    """Return argument -> parameter that it follows -> what makes the parameter of the argument. `seen`: the variants
    that launch the kernel, each with one parameter changed."""
    tried: dict[str, list[tuple[int, list[Way]]]] = {}
    for variant, ways in seen.items():
        ((parameter, value),) = variant.changes
        tried.setdefault(parameter, []).append((value, ways))
    factors = {a: {p: Fraction(sizes[p], n) for p in tried if n} for a, n in arguments(base).items()}
    return {a: {p: f for p, f in of.items() if _follows(a, f, tried[p])} for a, of in factors.items()}


def _follows(argument: str, factor: Fraction, tried: Sequence[tuple[int, list[Way]]]) -> bool:
    """Whether the argument has the value that the parameter's gives it, in each variant that launches the kernel."""
    return all(any(arguments(k).get(argument, 0) * factor == value for _, k in ways) for value, ways in tried)


def arguments(known: Known) -> dict[str, int]:
    return {leaf.name: n for leaf, n in known.items() if leaf.op == "arg"}
