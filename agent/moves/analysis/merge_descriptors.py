"""One descriptor for loads of the same addresses in different branches, where compile-time constants choose the branch.

A load may be masked in one branch and not in another. Nothing is taken from one branch for the other: the constant that
chooses the branch chooses the bound. Where a branch is chosen at run time, its load keeps a descriptor of its own.
"""

from collections.abc import Sequence
from dataclasses import replace

from pgo_agent.agent.moves.analysis.descriptor_operand import Operand
from pgo_agent.agent.moves.analysis.load_site import Branch


def merged(operands: dict[int, Operand], paths: dict[int, tuple[Branch, ...]]) -> dict[int, Operand]:
    """Give loads of the same addresses one descriptor, where compile-time constants tell their bounds apart."""
    same: dict[object, list[int]] = {}
    for call, o in operands.items():
        same.setdefault(o.address, []).append(call)
    result = dict(operands)
    for calls in same.values():
        bounds_of_both = (_bound([(paths[c], operands[c].dimensions[d].bound) for c in calls]) for d in (0, 1))
        bounds = [b for b in bounds_of_both if b is not None]
        if len(bounds) != 2:
            continue
        constant = frozenset[str]().union(*(operands[c].constant for c in calls))
        for c in calls:
            first, second = (replace(x, bound=b) for x, b in zip(operands[c].dimensions, bounds, strict=True))
            result[c] = replace(operands[c], dimensions=(first, second), constant=constant)
    return result


def _bound(leaves: Sequence[tuple[Sequence[Branch], str]]) -> str | None:
    """One text for the bounds of loads in different branches; None when they are not told apart at compile time."""
    if len({b for _, b in leaves}) == 1:
        return leaves[0][1]
    if not all(path for path, _ in leaves) or len({path[0].node for path, _ in leaves}) > 1:
        return None
    sides = [[(p[1:], b) for p, b in leaves if p[0].taken is taken] for taken in (True, False)]
    texts = [_bound(side) for side in sides if side]
    if None in texts or len(texts) == 1 or texts[0] == texts[1]:
        return texts[0] if None not in texts else None
    test = leaves[0][0][0].test
    yes, no = (f"({side})" if " if " in str(side) else side for side in texts)
    return None if test is None else f"{yes} if {test} else {no}"
