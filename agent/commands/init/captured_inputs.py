"""Writes inputs() and the cases of a target from captured calls, and guesses flops() and bytes_moved() from shapes.

Relies on `cases.py` for the names of sizes. Values of tensors are normal numbers, and whole ones in the range that the
program drew them from, where that was seen.
"""

import ast
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from pgo_agent.agent.commands.init import cases as sizing
from pgo_agent.agent.commands.init import program_inputs, render
from pgo_agent.agent.commands.init.captured_calls import Captured
from pgo_agent.agent.commands.init.cases import LARGE
from pgo_agent.agent.commands.init.seen import Tensor, tensor, tensors
from pgo_agent.sandbox import parsing

ATTENTION_RANK = 4
ABOUT = frozenset({"dtype", "device", "shape", "size", "stride", "dim", "ndim", "numel", "element_size"})
ALIKE = 4  # tensors of a list that are written as one
LONGEST = 60  # letters of the name of a case


class Inputs:
    """Writes the inputs of captured calls, and their cases."""

    def __init__(self, captured: Captured, known: sizing.Sizes, own: bool) -> None:
        self.captured, self.known = captured, known
        self.given = {n: [c.given[n] for c in captured.calls] for n in captured.arguments}
        if captured.backward:
            self.given |= {n: [v] * len(captured.calls) for n, v in captured.backward.given.items()}
        self.tensors = [t for values in self.given.values() for v in values for t in tensors(v)]
        per_call = [
            {t.dtype for vs in self.given.values() for t in tensors(vs[i]) if not t.whole}
            for i in range(len(captured.calls))
        ]
        self.dtype = [next(iter(d)) for d in per_call] if all(len(d) == 1 for d in per_call) else None
        self.plain = [
            n
            for n, vs in self.given.items()
            if len({str(v) for v in vs}) > 1 and all("plain" in v for v in vs) and (n, sizing.NUMBER) not in known.names
        ]

        self.own = program_inputs.found(captured, known, self.dtype[0] if self.dtype else "") if own else None
        self.own_lines = self.own.lines if self.own else ()
        self.module = self.own.module if self.own else ""

    def lines(self) -> Iterator[tuple[str, str]]:
        for name, values in self.given.items():
            if self.own and name in self.own.values:
                yield name, f"{self.own.values[name]},"
                continue
            text, mark = self._text(name, values[0])
            yield name, f"{text},{mark}"

    def _text(self, name: str, value: dict[str, Any]) -> tuple[str, str]:
        t = tensor(value)
        if t is not None:
            return self._tensor(name, t)
        if "list" in value:
            parts = [self._text(f"{name}.{i}", v) for i, v in enumerate(value["list"])]
            inner, mark = ", ".join(p for p, _ in parts), next((m for _, m in parts if m), "")
            if len(parts) >= ALIKE and len(set(parts)) == 1 and not value["tuple"]:
                return f"[{parts[0][0]} for _ in range({len(parts)})]", mark
            return (f"({inner}{',' if len(parts) == 1 else ''})" if value["tuple"] else f"[{inner}]"), mark
        if size := self.known.names.get((name, sizing.NUMBER)):
            return f'case["{size}"]', ""
        if name in self.plain:
            return f'case["{name}"]', ""
        if "plain" in value:
            return _literal(value["plain"]), ""
        if "dtype_" in value:
            return f"torch.{value['dtype_']}", ""
        return "None", f"  {render.TO_WRITE}: it was of type {value.get('other')}"

    def _tensor(self, name: str, t: Tensor) -> tuple[str, str]:
        shape = self._shape(name, t)
        dtype = "dtype" if self.dtype is not None and not t.whole else f"torch.{t.dtype}"
        order = sorted(range(len(t.shape)), key=lambda i: -t.stride[i])
        moved = (
            not t.contiguous
            and Tensor(0, tuple(t.shape[i] for i in order), tuple(t.stride[i] for i in order), "", False).contiguous
        )
        listed = [shape[i] for i in order] if moved else shape
        size = f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
        back = f".permute({', '.join(str(order.index(i)) for i in range(len(order)))})" if moved else ""
        guesses = [] if t.contiguous or moved else [f"its strides were {t.stride} for {t.shape}"]
        guesses += [f"it held {' and '.join(t.held)}, and here it does not"] if t.held else []
        mark = f"  {render.GUESSED}: {'; '.join(guesses)}" if guesses else ""
        if not t.whole and t.values and not _normal(t.values):
            return f"within({size}, {dtype}, {', '.join(f'{v:.6g}' for v in t.values)}){back}", mark
        if not t.whole:
            return f"normal({size}, {dtype}){back}", mark
        known = t.low is not None and t.high is not None
        mark = mark if known else f"  {render.GUESSED}: which numbers are valid"
        low, high = (t.low, t.high) if known else (0, 2)
        of_case = next((f'case["{n}"]' for n, s in self.known.by_call[0].items() if s == high and s >= LARGE), high)
        if _stands_for_none(low, high):
            return f"labels({low}, {of_case}, {size}, {dtype}){back}", f"  {render.GUESSED}: {low} stands for none"
        return f"integers({low}, {of_case}, {size}, {dtype}){back}", mark

    def _shape(self, name: str, t: Tensor) -> list[str]:
        if (name, 0) in self.known.names or name.partition(".")[0] in self.captured.calls[0].given:
            return self.known.shape(name, t)
        by_size = {s: n for n, s in self.known.by_call[0].items()}  # of a gradient: sizes of the inputs
        return [f'case["{by_size[s]}"]' if s in by_size else str(s) for s in t.shape]

    def case(self, i: int) -> str:
        return self._dict(self.known.by_call[i], i)

    def with_sizes(self, sizes: Mapping[str, int]) -> str:
        return self._dict(sizes, 0)

    def _dict(self, sizes: Mapping[str, int], i: int) -> str:
        pairs = [
            *((n, str(s)) for n, s in sizes.items()),
            *((n, _literal(self.given[n][i]["plain"])) for n in self.plain),
        ]
        pairs += [("dtype", f'"{self.dtype[i]}"')] if self.dtype is not None else []
        return f"dict({', '.join(f'{n}={v}' for n, v in pairs)})"

    def label(self, i: int) -> str:
        """Return a name for a case: its sizes, and what else tells it from the others."""
        text = "-".join(str(s) for s in self.known.by_call[i].values()) or "only"
        text = text if len(text) <= LONGEST else f"call-{i + 1}"
        others = [self.known.by_call[j] for j in range(len(self.captured.calls)) if j != i]
        return f"{text}-{i}" if self.known.by_call[i] in others else text


def _stands_for_none(low: int | None, high: int | None) -> bool:
    """Whether the lowest of whole numbers is no index, but a mark such as -100 of labels: others are far above it."""
    return low is not None and high is not None and low < 0 and -4 * low <= high


def _normal(values: Sequence[float]) -> bool:
    """Whether values look like normal numbers with mean 0 and deviation 1."""
    low, high, mean, std = values
    return abs(mean) < 0.1 and 0.8 < std < 1.25 and low < -1 and high > 1


def _literal(value: object) -> str:
    text = repr(value)
    return f'float("{text}")' if isinstance(value, float) and text.lstrip("-") in ("inf", "nan") else text


def moved(captured: Captured, known: sizing.Sizes, dtype: str, reference: Sequence[str]) -> list[str]:
    """Return the bytes of each tensor that is read or written, as expressions of a case: the fewest, for no kernel is
    believed to be faster than these take. `reference`: the lines of reference()."""
    names = _named(captured, known)

    def term(t: Tensor, shape: Sequence[str]) -> str:
        of_case = 'getattr(torch, case["dtype"])' if t.dtype == dtype else f"torch.{t.dtype}"
        return " * ".join([*shape, f"{of_case}.itemsize"])

    given = [(n, t) for a in captured.arguments for n, t in sizing.leaves(a, captured.calls[0].given[a])]
    own = {t.storage for n, t in given if n.split(".")[0] in captured.changed}
    kept = [(n, t) for n, t in given if t.storage not in own]
    changed = _changed(captured, known, [x for x in given if x not in kept], kept, reference)
    others = [(i, t) for i, t in enumerate(captured.outputs) if t.storage not in own] + [
        (-1, t) for v in (captured.backward.given.values() if captured.backward else ()) for t in tensors(v)
    ]
    rest = [term(t, [names(i, axis, s) for axis, s in enumerate(t.shape)]) for i, t in others]
    return [*(term(t, known.shape(n, t)) for n, t in kept), *(term(*c) for c in changed), *rest]


def _named(captured: Captured, known: sizing.Sizes) -> Callable[[int, int, int], str]:
    """Return what gives a size of an output, by its place and axis, as an expression: the name that has that size in
    every call. The place of what is no output is -1."""
    by_size = {s: n for n, s in known.by_call[0].items()}
    given = [captured.given_back(c) for c in captured.calls] if not captured.backward else []

    def name(place: int, axis: int, size: int) -> str:
        sizes = [c[place].shape[axis] for c in given if 0 <= place < len(c) and axis < len(c[place].shape)]
        same = [n for n in known.by_call[0] if sizes == [c[n] for c in known.by_call]]
        found = same[0] if same else by_size.get(size)
        return f'case["{found}"]' if found else str(size)

    return name


def _changed(
    captured: Captured,
    known: sizing.Sizes,
    changed: Sequence[tuple[str, Tensor]],
    kept: Sequence[tuple[str, Tensor]],
    reference: Sequence[str],
) -> Iterator[tuple[Tensor, list[str]]]:
    """Give arguments that are written into, with the shape of what is moved: twice where a kernel reads them, too."""
    largest, partly = max(kept, key=_elements, default=None), _values_of(reference)
    for n, t in changed:
        read, shape = t.storage in captured.read, known.shape(n, t)
        if largest and not read and n.split(".")[0] in partly and t.elements > _elements(largest):
            shape = known.shape(*largest)  # a part of it stays, so no more is written than another one holds
        yield from [(t, shape)] * (1 + read)


def _elements(leaf: tuple[str, Tensor]) -> int:
    return leaf[1].elements


def _values_of(lines: Sequence[str]) -> set[str]:
    """Return the names whose values some lines use, and not their type or shape alone."""
    tree = parsing.module("def reference():\n" + textwrap.indent("\n".join(lines), "    "))
    nodes = list(ast.walk(tree))
    apart = {id(n.value) for n in nodes if isinstance(n, ast.Attribute) and n.attr in ABOUT}
    apart |= {id(a) for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("_like") for a in n.args}
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in apart}


def _products(captured: Captured, known: sizing.Sizes, floats: Sequence[tuple[str, Tensor]]) -> list[list[str]]:
    """Return, for each result that a product of matrices gives, its sizes; nothing where the first result is none."""
    found = [_product(result, known, floats) for result in captured.outputs]
    return [product for product in found if product] if found and found[0] else []


def _product(result_of: Tensor, known: sizing.Sizes, floats: Sequence[tuple[str, Tensor]]) -> list[str]:
    """Return the sizes of a product of matrices that gives a result, of the largest that fit; else nothing."""
    result = sorted(result_of.shape)
    matrices = [
        (known.shape(*f), f[1].shape) for f in sorted(floats, key=_elements, reverse=True) if len(f[1].shape) == 2
    ]
    for (one, a), (other, b) in combinations(matrices, 2):
        for i, j in ((1, 0), (1, 1), (0, 0), (0, 1)):
            if one[i] == other[j] and sorted((a[1 - i], b[1 - j])) == result:
                return [one[1 - i], other[1 - j], one[i]]
    return []


def flops(captured: Captured, known: sizing.Sizes) -> str:
    """Return the arithmetic as an expression: of products or attention by their shapes; else one for each element."""
    floats = [
        (n, t) for a in captured.arguments for n, t in sizing.leaves(a, captured.calls[0].given[a]) if not t.whole
    ]
    if not floats:
        return "1"
    if "tl.dot" not in "".join(b.text for b in captured.needed):
        return " * ".join(known.shape(*max(floats, key=lambda f: f[1].elements)))
    if products := _products(captured, known, floats):
        return " + ".join(" * ".join(["2", *product]) for product in products)
    (first, a), *others = floats
    if others and len(a.shape) == 2 and len(others[0][1].shape) == 2 and a.shape[1] == others[0][1].shape[0]:
        (m, k), (_, n) = known.shape(first, a), known.shape(*others[0])
        return f"2 * {m} * {n} * {k}"
    if len(a.shape) == ATTENTION_RANK and len(others) > 1 and len(others[0][1].shape) == ATTENTION_RANK:
        b, h, s, d = known.shape(first, a)
        return f"4 * {b} * {h} * {s} * {known.shape(*others[0])[2]} * {d}"
    sizes = dict.fromkeys(n for place, t in floats for n in known.shape(place, t) if n.startswith("case["))
    return " * ".join(["2", *sizes])
