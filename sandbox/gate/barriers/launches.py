"""The launches of a kernel in plans, as numbers that a simulation of its TTGIR can start from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pgo_agent.sandbox.gate.barriers.interpret import argument_leaf
from pgo_agent.sandbox.gate.barriers.terms import Known, Term
from pgo_agent.sandbox.gate.evidence import Side
from pgo_agent.sandbox.ttgir.tree import Module


@dataclass(frozen=True)
class LaunchFacts:
    """The numbers of a kernel that one launch fixes."""

    known: Known = field(hash=False)
    secret: bool  # of a held-out case: its numbers are never shown

    def blocks(self) -> Iterator["LaunchFacts"]:
        """Give the facts of single blocks of its grid: the last, the middle one, and the first."""
        grid = {leaf.name[-2]: n for leaf, n in self.known.items() if leaf.op == "programs"}
        for at in ({d: n - 1 for d, n in grid.items()}, {d: n // 2 for d, n in grid.items()}, dict.fromkeys(grid, 0)):
            place = {Term("pid", (), 32, f"program_id({d})"): i for d, i in at.items()}
            yield replace(self, known={**self.known, **place})

    @property
    def on_any_grid(self) -> Known:
        """Its numbers without the grid: with more programs each has less work."""
        return {leaf: n for leaf, n in self.known.items() if leaf.op not in ("programs", "pid")}


def of(side: Side, key: str, module: Module) -> list[LaunchFacts]:
    """Return the facts of each launch of that kernel in any case; equal ones once, public ones first."""
    facts: dict[str, LaunchFacts] = {}
    for case, plans in sorted(side.plans.items(), key=lambda c: is_secret(c[0])):
        for step in (s for p in plans for s in p["steps"] if s.get("kernel") == key):
            known = settled_by(step, module)
            if known is not None:
                facts.setdefault(
                    str(sorted((leaf.name, n) for leaf, n in known.items())), LaunchFacts(known, is_secret(case))
                )
    return list(facts.values())


def is_secret(case: str) -> bool:
    """Whether a case is held out."""
    return case.startswith("HELD_OUT")


def settled_by(step: Mapping[str, Any], module: Module) -> Known | None:
    """Return the numbers that a launch fixes; None where its arguments do not match the text."""
    arguments, kernel = list(values(step["signature"], step["args"])), module.kernel
    if len(arguments) != len(kernel.defined):
        return None
    head = str(kernel.parts[0])
    known: dict[Term, int] = {
        argument_leaf(a, head): int(v) for a, v in zip(kernel.defined, arguments, strict=True) if isinstance(v, int)
    }
    grid = {Term("programs", (), 32, f"num_programs({d})"): n for d, n in zip("xyz", step["grid"], strict=True)}
    return known | grid


def values(signature: Any, args: Any) -> Iterator[Any]:
    """Give a launch's arguments as the kernel's: a descriptor is followed by its sizes and strides."""
    for kind, arg in zip(signature, args, strict=True):
        if isinstance(kind, list | tuple):
            yield from values(kind, arg)
        elif kind.startswith("tensordesc"):
            yield from (arg, *arg["shape"], *arg["strides"])
        elif kind != "constexpr":
            yield arg
