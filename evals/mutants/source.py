"""All mutants of a kernel's Python text: each operator of mutation at each place of its kernel part."""

from collections.abc import Callable, Iterator, Mapping

from pgo_agent.evals.mutants import calls, expressions
from pgo_agent.evals.mutants.edits import Change, Edit, changes
from pgo_agent.evals.mutants.expressions import Pair
from pgo_agent.evals.mutants.sites import Site, sites

OPERATORS: Mapping[str, Callable[[Site], Iterator[Pair]]] = {
    "constant": expressions.constant,
    "launch": expressions.launch,
    "tile": expressions.tile,
    "arithmetic": expressions.arithmetic,
    "operand": expressions.operand,
    "comparison": expressions.comparison,
    "logic": expressions.logic,
    "dtype": expressions.dtype,
    "stride": expressions.stride,
    "axis": expressions.axis,
    "mask": calls.mask,
    "loop": calls.loop,
    "grid": calls.grid,
    "initial": calls.initial,
    "function": calls.function,
    "arguments": calls.arguments,
    "statement": calls.statement,
    "sync": calls.sync,
}


def mutants(source: str) -> list[Change]:
    """Return every change of the kernel part of a target's text, in the order of the text. Raises what `ast.parse`
    raises."""
    edits = [
        Edit(name, start, end, new)
        for site in sites(source)
        for name, operator in OPERATORS.items()
        for (start, end), new in operator(site)
    ]
    return list(changes(source, edits))
