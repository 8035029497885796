"""The launches of a kernel in plans, as numbers that a simulation of its TTGIR can start from."""

from collections.abc import Iterator, Mapping
from typing import Any

from pgo_agent.sandbox.gate.deadlock.terms import Known, Term
from pgo_agent.sandbox.gate.deadlock.unroll import argument_leaf
from pgo_agent.sandbox.gate.evidence import Side
from pgo_agent.sandbox.ttgir.tree import Module

HELD_OUT = "HELD_OUT"  # cases whose numbers nobody is told


def of(side: Side, key: str, module: Module) -> list[Known]:
    """The integers and the grid of each launch of that kernel in a public case; equal ones once."""
    found: list[Known] = []
    for step in launches(side, key):
        known = known_of(step, module)
        if known is not None and known not in found:
            found.append(known)
    return found


def launches(side: Side, key: str) -> Iterator[Mapping[str, Any]]:
    """The steps of public cases' plans that launch the kernel."""
    public = (plans for case, plans in side.plans.items() if not case.startswith(HELD_OUT))
    return (s for plans in public for p in plans for s in p["steps"] if s.get("kernel") == key)


def known_of(step: Mapping[str, Any], module: Module) -> Known | None:
    """What a launch settles of a kernel's numbers; None where its arguments are not those of the text."""
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
    """A launch's arguments, one for each of the kernel's: a descriptor is followed by its sizes and strides."""
    for kind, arg in zip(signature, args, strict=True):
        if isinstance(kind, list | tuple):
            yield from values(kind, arg)
        elif kind.startswith("tensordesc"):
            yield from (arg, *arg["shape"], *arg["strides"])
        elif kind != "constexpr":
            yield arg
