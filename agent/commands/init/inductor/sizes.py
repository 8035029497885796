"""The sizes of a group's tensors as Python: numbers, the rows that are free, or the symbols of a dynamic graph.

Relies on `rows.py` for what is free.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgo_agent.agent.commands.init.inductor.calls import Arg
from pgo_agent.agent.commands.init.inductor.fragment import Layout, Node
from pgo_agent.agent.commands.init.inductor.groups import Group
from pgo_agent.agent.commands.init.inductor.rows import Rows

ROWS = "rows"
SMALL_ELEMENTS = 1 << 14  # of the largest tensor of a small case, about
MOST_ELEMENTS = 1 << 18  # of the largest tensor of a second small case
LARGER = 8  # times: blocks of candidates, at most
USUAL_BLOCK = 1024  # elements of a block along the axis of the rows
SYMBOL = re.compile(r"\b[su]\d+\b")


@dataclass(frozen=True)
class Sizes:
    """What a group's sizes follow."""

    group: Group
    rows: Rows | None  # None: they are fixed, or symbols
    blocks: Mapping[str, int] = field(default_factory=dict)  # kernel -> elements of its largest block along the rows

    @property
    def symbols(self) -> list[str]:
        """The symbols of sizes that the group uses, in order."""
        texts = [s for a in self._tensors() if a.layout for s in (*a.layout.size, *a.layout.stride)]
        texts += [a.text for launch in self.group.launches for a in launch.args if not a.tensor]
        texts += [s for n in self.group.nodes.values() if n.layout for s in n.layout.size]
        return list(dict.fromkeys(s for t in texts for s in SYMBOL.findall(t)))

    def _tensors(self) -> Iterator[Arg]:
        return (a for launch in self.group.launches for a in launch.args if a.tensor)

    def size(self, name: str, layout: Layout) -> list[str]:
        """Return the sizes of an input or result as expressions on what is free."""
        result = list(layout.size)
        if self.rows is not None and (place := self.rows.tensors.get(name)) is not None:
            result[place.axis] = times(ROWS, place.times)
        return result

    def inner(self, sizes: Sequence[str]) -> list[str]:
        """Return the sizes of a value in between: the first one that is not 1 follows the rows, if it can."""
        result = list(sizes)
        first = next((i for i, s in enumerate(result) if s != "1"), None)
        if self.rows is None or first is None or not result[first].isdigit() or int(result[first]) % self.rows.count:
            return result
        result[first] = times(ROWS, int(result[first]) // self.rows.count)
        return result

    def where(self) -> str:
        """Return the rows of a call as an expression on its tensors; empty where they are not free."""
        if self.rows is None:
            return ""
        name, place = next((n, a) for n, a in self.rows.tensors.items() if n in self.group.inputs)
        return f"{name}.shape[{place.axis}]" + (f" // {place.times}" if place.times > 1 else "")

    def case(self) -> dict[str, int]:
        """Return the case that the call is."""
        if self.rows is not None:
            return {ROWS: self.rows.count}
        return {s: self.group.module.hints.get(s, 64) for s in self.symbols}

    def small(self) -> dict[str, dict[str, int]]:
        """Return small cases, by name."""
        seen = self.case()
        if self.rows is not None:
            return self._few()
        if not seen:
            return {"as_called": {}}
        caps = {symbol: 64 if i == 0 else 8 for i, symbol in enumerate(reversed(seen))}
        even = {s: min(n, caps[s]) for s, n in seen.items()}
        odd = {s: min(n, caps[s] - 3) for s, n in seen.items()}
        return {"even": even} | ({"odd": odd} if odd != even else {})

    def _few(self) -> dict[str, dict[str, int]]:
        """Return small cases that have fewer rows."""
        step, most, per_row = self._step(), self.case()[ROWS], self._largest()
        few = min(most, step * max(1, SMALL_ELEMENTS // (per_row * step)))
        more = 3 * few + step
        wider = more < most and more * per_row <= MOST_ELEMENTS
        return {"few": {ROWS: few}} | ({"more": {ROWS: more}} if wider else {})

    def held_out(self) -> dict[str, int]:
        """Return the case that nobody is shown."""
        seen = self.case()
        if self.rows is not None:
            step = self._step()
            return {ROWS: max(step, (seen[ROWS] * 3 // 4 - 1) // step * step) if seen[ROWS] > 2 * step else seen[ROWS]}
        return {s: n - n // 4 - 3 if n > 16 else n for s, n in seen.items()}

    def _step(self) -> int:
        """Return what rows must be divided by, where a kernel has no mask for less: also by the larger blocks that a
        candidate may have, as far as they divide the call's own sizes."""
        assert self.rows is not None
        steps = [1]
        for launch, turned in zip(self.group.launches, self.rows.launches, strict=True):
            block = self.blocks.get(launch.kernel.name, USUAL_BLOCK) * (LARGER if turned.prefix else 1)
            block = math.gcd(block, turned.numel) if turned.whole else 1
            steps.append(block // math.gcd(block, turned.numel // self.rows.count))
        return math.lcm(*steps)

    def _largest(self) -> int:
        """Return the elements that one row has in the largest tensor."""
        assert self.rows is not None
        every = {**self.group.inputs, **self.group.outputs}
        layouts = [a.layout for n in self.rows.tensors if (a := every.get(n)) is not None and a.layout is not None]
        return max([1, *(math.prod(map(int, layout.size)) // self.rows.count for layout in layouts)])

    def elements(self, node: Node) -> str:
        """Return how many elements a value in between has, as an expression on the case."""
        return product(self.inner(node.layout.size)) if node.layout else "0"

    def fixed(self) -> "Sizes":
        """Return the same without free rows."""
        return replace(self, rows=None)


def times(name: str, n: int) -> str:
    return name if n == 1 else f"{name} * {n}"


def product(sizes: Sequence[str]) -> str:
    """Return the product of sizes, numbers together and first."""
    numbers, others = 1, list[str]()
    for size in sizes:
        for factor in size.split(" * ") if SYMBOL.sub("", size).strip("*0123456789rows ") == "" else [f"({size})"]:
            if factor.isdigit():
                numbers *= int(factor)
            else:
                others.append(factor)
    return " * ".join([*([str(numbers)] if numbers != 1 or not others else []), *others])


def in_case(text: str, symbols: Sequence[str]) -> str:
    """Return an expression on sizes as one on a case."""
    names = {ROWS, *symbols}
    return re.sub(r"\b[a-z]\w*\b", lambda m: f'case["{m[0]}"]' if m[0] in names else m[0], text)


def contiguous(size: Sequence[str], stride: Sequence[str], seen: Mapping[str, int]) -> bool:
    """Whether a tensor of these sizes is dense, in order: of numbers, or of symbols as they were seen."""
    expected = 1
    for s, t in zip(reversed(size), reversed(stride), strict=True):
        n, step = (value(x, seen) for x in (s, t))
        if n is None or step is None or (n != 1 and step != expected):
            return False
        expected *= n
    return True


def value(text: str, seen: Mapping[str, int]) -> int | None:
    """Return a product of sizes as a number; None where it is more than that."""
    result = 1
    for factor in text.strip("()").split("*"):
        word = factor.strip(" ()")
        n = int(word) if word.isdigit() else seen.get(word)
        if n is None:
            return None
        result *= n
    return result
