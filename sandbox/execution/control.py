"""Operations of TTGIR that run others: branches, loops, conditions, calls, and the regions of reductions and scans.

A region of a reduction is run on whole tensors at once.
"""

from collections.abc import Callable
from typing import Any

import torch
from pgo_agent.sandbox.execution import tensors
from pgo_agent.sandbox.execution.errors import NotModelled
from pgo_agent.sandbox.execution.launch import End, Run, Step, Values, symbol
from pgo_agent.sandbox.execution.values import on_bits, unsigned
from pgo_agent.sandbox.ttgir.tokens import tokens
from pgo_agent.sandbox.ttgir.tree import Op


def _returns(op: Op) -> Step:
    return lambda _run, values: End(tuple(values[n] for n in op.operands))


def _branches(op: Op) -> Step:
    targets: list[tuple[str, list[str]]] = []
    for token in tokens(_head(op)):
        if token.kind == "label":
            targets.append((token.text, []))
        elif token.kind == "value" and targets:
            targets[-1][1].append(token.text)
    conditional = op.name == "cf.cond_br"

    def step(_run: Run, values: Values) -> End:
        chosen = targets[0 if not conditional or bool(values[op.operands[0]]) else 1]
        return End(tuple(values[n] for n in chosen[1]), chosen[0])

    return step


def _condition(op: Op) -> Step:
    first, *rest = op.operands
    return lambda _run, values: End(tuple(values[n] for n in rest), more=bool(values[first]))


def _for(op: Op) -> Step:
    low, high, by, *initial = op.operands
    counter, *carried = op.defined
    body = op.regions[0].blocks[0]
    without_sign = "unsigned" in op.words

    def step(run: Run, values: Values) -> None:
        at = [values[n] for n in initial]
        bounds = [int(unsigned(values[n])) if without_sign else int(values[n]) for n in (low, high, by)]
        for i in range(*bounds):
            values[counter.name] = torch.tensor(i, dtype=values[low].dtype)
            values.update((a.name, v) for a, v in zip(carried, at, strict=True))
            end = run.ops(body, values)
            at = list(end.values) if end else []
        values.update(zip(op.results, at, strict=True))

    return step


def _if(op: Op) -> Step:
    regions = op.regions

    def _both(run: Run, values: Values) -> None:
        """In a region that runs on whole tensors: take of each element what its condition says."""
        ends = [run.ops(r.blocks[0], dict(values)) for r in regions]
        chosen = [end.values if end else () for end in ends]
        for name, *two in zip(op.results, *chosen, strict=True):
            values[name] = on_bits(lambda x, y: torch.where(values[op.operands[0]], x, y), *two)

    def step(run: Run, values: Values) -> None:
        if values[op.operands[0]].dim():
            _both(run, values)
            return
        taken = 0 if bool(values[op.operands[0]]) else 1
        end = run.ops(regions[taken].blocks[0], values) if taken < len(regions) else None
        values.update(zip(op.results, end.values if end else (), strict=True))

    return step


def _while(op: Op) -> Step:
    before, after = (r.blocks[0] for r in op.regions)
    carried = op.defined

    def step(run: Run, values: Values) -> None:
        at = [values[n] for n in op.operands]
        while True:
            values.update((a.name, v) for a, v in zip(carried, at, strict=True))
            end = run.ops(before, values)
            if end is None or not end.more:
                values.update(zip(op.results, end.values if end else (), strict=True))
                return
            values.update((a.name, v) for a, v in zip(after.arguments, end.values, strict=True))
            done = run.ops(after, values)
            at = list(done.values) if done else []

    return step


def _calls(op: Op) -> Step:
    name = symbol(op)

    def step(run: Run, values: Values) -> None:
        values.update(zip(op.results, run.call(name, [values[n] for n in op.operands]), strict=True))

    return step


def _head(op: Op) -> str:
    first = op.parts[0]
    return first if isinstance(first, str) else ""


def _combined(op: Op) -> Step:
    axis = op.integer("axis") or 0
    reverse = bool(op.integer("reverse"))
    region = op.regions[0].blocks[0]
    names = [a.name for a in region.arguments]

    def step(run: Run, values: Values) -> None:
        def combine(first: list[Any], second: list[Any]) -> list[Any]:
            inner = values | dict(zip(names, [*first, *second], strict=True))
            end = run.ops(region, inner)
            return list(end.values) if end else []

        given = [values[n] for n in op.operands]
        out = (
            tensors.reduced(given, axis, combine)
            if op.name == "tt.reduce"
            else tensors.scanned(given, axis, reverse, combine)
        )
        values.update(zip(op.results, out, strict=True))

    return step


def _mapped(op: Op) -> Step:
    region = op.regions[0].blocks[0]
    if (op.integer("pack") or 1) > 1:
        raise NotModelled("several elements at a time (tl.map_elementwise)")

    def step(run: Run, values: Values) -> None:
        inner = values | dict(zip([a.name for a in region.arguments], [values[n] for n in op.operands], strict=True))
        end = run.ops(region, inner)
        values.update(zip(op.results, end.values if end else (), strict=True))

    return step


_RETURNS = ("tt.return", "scf.yield", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return")
_YIELDS = ("ttg.warp_yield", "ttg.warp_return")
STEPS: dict[str, Callable[[Op], Step]] = {
    **dict.fromkeys((*_RETURNS, *_YIELDS), _returns),
    "cf.br": _branches,
    "cf.cond_br": _branches,
    "scf.condition": _condition,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.call": _calls,
    "tt.reduce": _combined,
    "tt.scan": _combined,
    "tt.map_elementwise": _mapped,
}
