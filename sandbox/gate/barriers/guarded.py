"""Whether kernel() launches a kernel with the numbers under which the simulator found something wrong.

The simulator chooses numbers such as K = 0 by itself. A launcher may guard against them (`if K >= 256:`), and then
nothing is wrong. So kernel() is asked: it is traced for cases with these numbers in place of their own, one by
one and together (`followed.py` finds the parameters), and what it launches then is simulated. A finding goes only if

- the numbers that it depends on follow from parameters of the cases: all of them, or one at least that is larger in the
  cases, where nothing is wrong with larger ones;
- kernel() launches the kernel for none of these cases in a way that something is wrong;
- and the launches of the cases themselves could be followed (the stage sees to that).

Not a proof: another case may pass the guard.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pgo_agent.sandbox.gate.barriers import followed, runs
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind
from pgo_agent.sandbox.gate.barriers.followed import Followed, Kernel
from pgo_agent.sandbox.gate.barriers.launches import LaunchFacts
from pgo_agent.sandbox.gate.barriers.runs import Runs
from pgo_agent.sandbox.gate.barriers.terms import Known
from pgo_agent.sandbox.gate.case_variants import Launcher, Variant
from pgo_agent.sandbox.gate.evidence import Side
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Module

MOST_RUNS = 12  # with something wrong; more of them are not asked about
MOST_VARIANTS = 128
KEPT = 16  # explored kernels: a candidate is examined without its held-out cases, and then with them
Numbers = Mapping[str, int]  # argument -> value


def settled(side: Side, launcher: Launcher, key: str, finding: Finding) -> Finding:
    """Return the finding, or what is left of the simulation without the runs that kernel() never launches so.

    Raises what tracing the launcher raises.
    """
    kernel = Kernel(side, launcher, key, reader.parse(side.texts[key]))
    explored, found = _explored(side.texts[key].replace("bf16", "f16"))  # types of one size: the same runs, kept once
    if not found or len(found) > MOST_RUNS or any(not wrong.needed for wrong in found):
        return finding
    cases = followed.of_cases(kernel)
    asked = [v for case, f in cases.items() for wrong in found for v in _asked(case, wrong, f)]
    variants = list(dict.fromkeys(v for v in asked if v is not None))
    if None in asked or not 0 < len(variants) <= MOST_VARIANTS:
        return finding
    return _launched(kernel, variants, finding, found) or runs.without(explored, [wrong.known for wrong in found])


@dataclass(frozen=True)
class _Wrong:
    """A run in which something is wrong."""

    known: Known  # its numbers
    needed: Numbers  # the arguments on which that depends
    most: Numbers  # those above which all is well -> the largest value that is wrong
    undecided: Collection[str]  # arguments with whose other values it takes too long

    def fits(self, known: Known) -> bool:
        """Whether a launch with these numbers may be wrong as this run is, as far as is known."""
        own = followed.arguments(known)
        return all(own.get(a, n) <= n for a, n in self.most.items())


@lru_cache(maxsize=KEPT)
def _explored(text: str) -> tuple[Runs, list[_Wrong]]:
    """Return all runs by numbers of the simulator's own choice, and those in which something is wrong: no more than are
    asked about and one. An argument that is too much for a long run is looked up in a short one."""
    module = reader.parse(text)
    explored = runs.explored(module)
    wrong = [r.known for r in explored.ended if r.finding.found]
    found = [_run(module, known) for known in wrong[: MOST_RUNS + 1]]
    known = {(a, run.needed[a]): n for run in found for a, n in run.most.items()}
    looked_up = [{a: known[a, run.needed[a]] for a in run.undecided if (a, run.needed[a]) in known} for run in found]
    return explored, [replace(run, most={**run.most, **more}) for run, more in zip(found, looked_up, strict=True)]


def _run(module: Module, known: Known) -> _Wrong:
    values = {x: runs.by_value(module, known, x) for x in known if x.op == "arg"}
    needed = {x.name: known[x] for x, v in values.items() if v is None or v[0] or not v[1]}
    above = {x.name: max(v[1]) for x, v in values.items() if v and v[1] and sum(n > max(v[1]) for n in v[0]) > 1}
    return _Wrong(known, needed, above, [x.name for x, v in values.items() if v is None])


def _asked(case: str, wrong: _Wrong, by: Followed) -> Iterator[Variant | None]:
    """Give the case with each number in turn, and with all; None where the answers would not decide."""
    options = {a: values for a, n in wrong.needed.items() if (values := by.values(a, n))}
    if options.keys() != wrong.needed.keys():
        own = followed.arguments(by.base)
        options = {a: values for a, values in options.items() if own[a] > wrong.most.get(a, own[a])}
    if not options:
        yield None
    for changes in itertools.product(*options.values()) if options else ():
        yield from (Variant(case, (change,)) for change in changes)
        if 1 < len(changes) == len({parameter for parameter, _ in changes}):
            yield Variant(case, tuple(sorted(changes)))


def _launched(kernel: Kernel, variants: Sequence[Variant], finding: Finding, found: Sequence[_Wrong]) -> Finding | None:
    """Return what is wrong in a launch by kernel(); `finding` where that cannot be said; None: nothing is.

    A launch that takes too long does not matter where one of its numbers is larger than in any wrong run.
    """
    seen = kernel.ways(variants)
    undecided = len(seen) < len(variants)
    for variant, ways in seen.items():
        for module, known in ways:
            way = runs.launch(module, LaunchFacts(known, variant.secret))
            if way.found:
                return replace(way, trace=(*way.trace, f"kernel() launches it so for {variant.said}"))
            undecided = undecided or (way.kind is Kind.UNDECIDED and any(w.fits(known) for w in found))
    return finding if undecided else None
