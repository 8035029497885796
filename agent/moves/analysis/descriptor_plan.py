"""Which loads of a kernel become loads of tensor descriptors, and around which loop each descriptor is made.

A plan is made for the outermost loop outside of which all its descriptors can be made. Relies on `dataflow.py` for what
the loads address, and on `descriptor_operand.py` for the descriptor of each.
"""

from dataclasses import dataclass, field

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import called, contains, names, nodes, writes
from pgo_agent.agent.moves.analysis.dataflow import IndexFlow
from pgo_agent.agent.moves.analysis.descriptor_operand import Operand, operand
from pgo_agent.agent.moves.analysis.load_site import Load
from pgo_agent.agent.moves.analysis.merge_descriptors import merged


@dataclass
class DescriptorPlan:
    """What becomes of one outermost loop, or of one statement before the loops."""

    node: cst.For | cst.SimpleStatementLine
    operands: dict[int, Operand] = field(default_factory=dict)  # id of a load's call -> its operand
    inner: list["DescriptorPlan"] = field(default_factory=list)  # loops inside of it with descriptors of their own


def planned(flow: IndexFlow, targets: set[str]) -> tuple[dict[int, DescriptorPlan], list[str]]:
    """Return the outermost loops outside of which all their descriptors can be made, and why other loads stay."""
    plans, reasons = dict[int, DescriptorPlan](), list[str]()
    multiplied = _multiplied(flow.function)
    for load in flow.loads:
        if load.pointer.rank < 2 or not (_for_dots(load) or _before(load, multiplied)):
            continue
        try:
            result = operand(load, flow)
            if result.pointer in targets:
                raise DoesNotApply(f"the kernel writes through {result.pointer}, too")
            node = _outside(load, result)
            plans.setdefault(id(node), DescriptorPlan(node)).operands[id(load.call)] = result
        except DoesNotApply as e:
            reasons.append(str(e))
    if not any(isinstance(p.node, cst.For) for p in plans.values()):
        return {}, reasons
    for plan in plans.values():
        plan.operands = merged(plan.operands, {id(x.call): x.path for x in flow.loads})
    return _outermost({i: p for i, p in plans.items() if _whole(p)}), reasons


def _outermost(plans: dict[int, DescriptorPlan]) -> dict[int, DescriptorPlan]:
    """The plans that stand in no other one; these take in those that stand in them."""
    below = {i: {id(n) for n in nodes(p.node) if n is not p.node} & set(plans) for i, p in plans.items()}
    nested = set[int]().union(*below.values())
    for i, plan in plans.items():
        plan.inner = [p for n, p in plans.items() if n in below[i] and i not in nested]
    return {i: p for i, p in plans.items() if i not in nested}


def _whole(plan: DescriptorPlan) -> bool:
    """A loop, or a statement of which every load becomes one of a descriptor."""
    return isinstance(plan.node, cst.For) or _all_loads(plan.node) <= set(plan.operands)


def _all_loads(line: cst.CSTNode) -> set[int]:
    return {id(c) for c in nodes(line) if isinstance(c, cst.Call) and called(c) == "load"}


def _multiplied(function: cst.FunctionDef) -> set[str]:
    """Names that the operands of the dots mention."""
    dots = (c for c in nodes(function) if isinstance(c, cst.Call) and called(c) == "dot")
    return set[str]().union(*map(names, dots))


def _for_dots(load: Load) -> bool:
    return any(contains(loop, "dot") for loop in load.loops)


def _before(load: Load, multiplied: set[str]) -> bool:
    """Whether a load outside of loops gives an operand of a dot."""
    return not load.loops and load.line is not None and bool(writes(load.line) & multiplied)


def _outside(load: Load, described: Operand) -> cst.For | cst.SimpleStatementLine:
    """The outermost loop around a load, with a dot in it, that leaves alone what the descriptor is made of."""
    if not load.loops and load.line is not None:
        return load.line
    for loop in load.loops:
        if contains(loop, "dot") and not writes(loop) & described.constant:
            return loop
    raise DoesNotApply("its base or its bound changes in the loop")
