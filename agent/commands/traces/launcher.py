"""Writes a launcher for traced launches of a kernel, and what it was called with, as `init` has them of a program.

What the kernel writes and never reads is allocated; what it reads and writes is given, and changes. Grid and numbers
are sizes where they are in every launch. Relies on `symbolic.py` for the expressions. What is no size in all launches
is an argument of its own.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pgo_agent.agent.commands.traces import forms, launcher_text, symbolic
from pgo_agent.agent.commands.traces.events import Other, Plain, TracedTensor
from pgo_agent.agent.commands.traces.forms import Form
from pgo_agent.agent.commands.traces.symbolic import Term, Vector

AXES = ("XM", "YN", "Z")  # letters in the names of block sizes, by axis of the grid
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass
class Launcher:
    """A launcher of one form."""

    form: Form
    warps: int | None = None  # that the code was compiled for, where that is known
    memory: int = 0  # bytes of the GPU that must hold its cases; 0: not known
    given: bool = False  # whether what it only writes is given, too, for it leaves elements unwritten
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "launch_" + self.form.source.function.strip("_")

    # parts ------------------------------------------------------------------------------------------------------------

    @cached_property
    def outputs(self) -> dict[str, str]:
        """Tensors that it allocates, with the expression that does."""
        if self.given:
            return {}
        terms = self.form.sizes([n for n in self.form.tensors if n not in self.form.outputs])
        found = {n: self._allocation(n, terms) for n in self.form.outputs}
        return {n: text for n, text in found.items() if text} if len(found) < len(self.form.tensors) else {}

    @property
    def inputs(self) -> list[str]:
        return [n for n in self.form.tensors if n not in self.outputs]

    @cached_property
    def changed(self) -> list[str]:
        """Tensors that it is given and that the kernel may write into."""
        return [n for n in self.inputs if n in self.form.stored]

    @cached_property
    def sizes(self) -> list[Term]:
        return self.form.sizes(self.inputs)

    def _allocation(self, name: str, sizes: Sequence[Term]) -> str:
        """Return the expression that allocates an output; empty where its shape is no function of sizes."""
        listed = self.form.tensors[name]
        others = {n: ts for n, ts in self.form.tensors.items() if n not in self.form.outputs}
        if not others:
            return ""
        same = [n for n, ts in others.items() if all(a.dtype == b.dtype for a, b in zip(ts, listed, strict=True))]
        alike = [n for n, ts in others.items() if all(a.shape == b.shape for a, b in zip(ts, listed, strict=True))]
        shape = [f"{n}.shape[{i}]" for n in alike[:1] for i in range(len(listed[0].shape))] or self._axes(name, sizes)
        if shape is None:
            return ""
        exact = [n for n in same if all(a.shape == b.shape for a, b in zip(others[n], listed, strict=True))]
        dtype = f"{(exact or same)[0]}.dtype" if exact or same else f"torch.{listed[0].dtype}"
        if len({t.dtype for t in listed}) > 1 and not same:
            return ""
        where = f"device={(exact or list(others))[0]}.device, dtype={dtype}"
        if all(launcher_text.contiguous(t) for t in listed):
            return f"torch.empty({launcher_text.listed(shape)}, {where})"
        strides = self._shape([tuple(t.stride[i] for t in listed) for i in range(len(listed[0].shape))], sizes)
        return (
            f"torch.empty_strided({launcher_text.listed(shape)}, {launcher_text.listed(strides)}, {where})"
            if strides is not None
            else ""
        )

    def _axes(self, name: str, sizes: Sequence[Term]) -> list[str] | None:
        """Return the shape of an output by sizes; of those of equal value first the one at the same place."""
        listed = self.form.tensors[name]
        found = list[str]()
        for i in range(len(listed[0].shape)):
            values = tuple(t.shape[i] for t in listed)
            here = [t for t in sizes if t.text.endswith(f".shape[{i}]")]
            found.append(symbolic.find(values, here, 2) or self._size(values, sizes))
        return found if all(found) else None

    def _shape(self, vectors: Sequence[Vector], sizes: Sequence[Term]) -> list[str] | None:
        found = [self._size(v, sizes) for v in vectors]
        return [f for f in found if f] if all(found) else None

    def _size(self, values: Vector, sizes: Sequence[Term]) -> str:
        if text := symbolic.find(values, sizes):
            return text
        if len(set(values)) == 1:
            return str(values[0])
        blocks = [Term(str(v[0]), v) for v in self._blocks.values() if len(set(v)) == 1]
        return symbolic.grid(values, sizes, blocks)

    @cached_property
    def _blocks(self) -> dict[str, Vector]:
        """Compile-time constants that are whole numbers."""
        constants = self.form.source.constants
        found = {n: self.form.integers(n) for n in self.form.given[0] if n in constants}
        return {n: v for n, v in found.items() if v is not None}

    # numbers ----------------------------------------------------------------------------------------------------------

    @cached_property
    def values(self) -> dict[str, str]:
        """Each parameter of the kernel with what it is given."""
        return dict(self._values())

    @cached_property
    def plain(self) -> list[str]:
        """Numbers that it is given."""
        return [n for n, text in self.values.items() if text == n and n not in self.form.tensors]

    def _values(self) -> Iterator[tuple[str, str]]:
        for name in self.form.source.parameters:
            value = self.form.given[0][name]
            if isinstance(value, TracedTensor):
                yield name, self.form.aliases.get(name, name)
            elif name in self.form.source.constants:
                yield name, self._constant(name)
            else:
                yield name, self._number(name)

    def _number(self, name: str) -> str:
        first, vector = self.form.given[0][name], self.form.integers(name)
        if vector is None:
            plain = isinstance(first, Plain) and type(first.value) in (float, bool)
            return name if plain else forms.literal(first) if isinstance(first, Plain | Other) else name
        if "stride" in name.lower() and (text := self._stride(name, vector)):
            return text
        if text := symbolic.find(vector, self.sizes):
            return text
        return str(vector[0]) if len(set(vector)) == 1 and name not in self.form.counting else name

    def _stride(self, name: str, vector: Vector) -> str:
        """Return the stride of a tensor: first of one that the number is named after, then of the nearest before it."""
        order, about = list(self.form.given[0]), name.lower().replace("stride", "").strip("_")
        before = [n for n in self.form.tensors if order.index(n) < order.index(name)]
        others = [*reversed(before), *(n for n in self.form.tensors if n not in before)]
        listed = sorted(others, key=lambda n: not about.startswith(launcher_text.base(n)))
        return symbolic.find(vector, symbolic.strides({n: self.form.tensors[n] for n in listed}), 2)

    def _constant(self, name: str) -> str:
        first, vector = self.form.given[0][name], self._blocks.get(name)
        if vector is None:
            return forms.literal(first) if isinstance(first, Plain | Other) else name
        same, block = len(set(vector)) == 1, forms.setting(name, self.form.source)
        if not (same and (name in self.form.source.tuned or vector[0] < 2 * symbolic.LARGE)):
            terms = self._last if same else [*self._last, *self.sizes]
            power = symbolic.power(vector, terms) if all(n & (n - 1) == 0 for n in vector) else ""
            if text := (power if block else "") or ("" if block else symbolic.find(vector, terms)) or power:
                return text
        return str(vector[0]) if same else self._setting(name, vector)

    @cached_property
    def _last(self) -> list[Term]:
        """The last sizes of what it is given."""
        texts = {f"{n}.shape[{len(self.form.tensors[n][0].shape) - 1}]" for n in self.inputs}
        return [t for t in self.sizes if t.text in texts]

    def _setting(self, name: str, vector: Vector) -> str:
        """Return a number that differs between launches: by another one that it goes with, else the most usual."""
        if by := self._going_with(vector):
            return by
        launches = Counter[int]()
        for value, one in zip(vector, self.form.signatures, strict=True):
            launches[value] += one.launches
        usual = launches.most_common(1)[0][0]
        self.notes.append(f"{name} was {', '.join(map(str, sorted(set(vector))))}: the target always has {usual}")
        return str(usual)

    def _going_with(self, vector: Vector) -> str:
        """Return `{1024: 4, 4096: 8}.get(n, 8)` for a last size n that tells the number; empty for none."""
        for term in sorted((*self._last, *self.sizes), key=lambda t: len(set(t.values))):
            pairs = set(zip(term.values, vector, strict=True))
            if len({s for s, _ in pairs}) == len(pairs) <= symbolic.LARGE and len(set(term.values)) > 1:
                listed = ", ".join(f"{s}: {v}" for s, v in sorted(pairs))
                return f"{{{listed}}}.get({term.text}, {vector[0]})"
        return ""

    def _options(self) -> Iterator[tuple[str, str]]:
        for name in (o for o in OPTIONS if o not in self.form.source.parameters):
            vector = tuple(s.first.options.get(name, 0) for s in self.form.signatures)
            if name == "num_warps" and self.warps and len(set(vector)) == 1:
                vector = (self.warps,) * len(vector)
            usual = {"num_ctas": 1}.get(name, 0)
            if any(v not in (0, usual) for v in vector) and all(vector):
                yield name, str(vector[0]) if len(set(vector)) == 1 else self._setting(name, vector)

    @cached_property
    def grid(self) -> list[str]:
        grids = [(*s.first.grid, 1, 1, 1)[:3] for s in self.form.signatures]
        count = max(len(s.first.grid) for s in self.form.signatures)
        found = list[str]()
        for i in range(count):
            vector = tuple(g[i] for g in grids)
            same = str(vector[0]) if len(set(vector)) == 1 else ""
            blocks, named = self._of_axis(i, found)
            text = symbolic.grid(vector, self.sizes, blocks, named) or same
            if not text:
                self.notes.append(f"the grid's number {i} is no function of sizes: each case has its own")
            found.append(text or f"grid{i}")
        return found

    def _of_axis(self, i: int, taken: Sequence[str]) -> tuple[list[Term], list[Term]]:
        """Return block sizes, last those that another axis of the grid has, and those that this axis is named after."""
        terms = {n: Term(f'meta["{n}"]', v) for n, v in self._blocks.items()}
        named = [t for n, t in terms.items() if {n[0].upper(), n[-1].upper()} & set(AXES[i]) and "BLOCK" in n]
        listed = [*named, *(t for t in terms.values() if t not in named)]
        return sorted(listed, key=lambda t: any(t.text in g for g in taken)), named

    @property
    def tiles(self) -> tuple[str, ...]:
        """Block sizes that the grid follows; none where a result, or what changes in place, may have a part for each
        block."""
        whole = all(
            re.fullmatch(r"torch\.empty\(\((\w+\.shape\[\d\](, |,\)|\)))+, .*", text) for text in self.outputs.values()
        )
        used = [n for n in self._blocks if any(f'meta["{n}"]' in g for g in self.grid)]
        return tuple(used) if whole and self.outputs and not self.changed else ()

    # the whole --------------------------------------------------------------------------------------------------------

    @cached_property
    def of_grid(self) -> list[str]:
        return [g for g in self.grid if g.startswith("grid")]

    @cached_property
    def arguments(self) -> list[str]:
        return [*self.inputs, *self.plain, *self.of_grid]

    @cached_property
    def text(self) -> str:
        """Its text, with the kernel and what that needs."""
        source = self.form.source
        lines = [f"{n} = {text}" for n, text in self.outputs.items()]
        given = [f"{n}={text}" if n in source.constants else text for n, text in self.values.items()]
        given = launcher_text.by_name(list(self.values), given, source.constants)
        given += [f"{n}={text}" for n, text in self._options()]
        meta = any("meta[" in g for g in self.grid)
        grid = f"{'lambda meta: ' if meta else ''}{launcher_text.listed(self.grid)}"
        lines += launcher_text.wrapped(f"{source.function}[{grid}](", given)
        lines += [f"return {', '.join(self.outputs)}"] if self.outputs else []
        body = "\n".join(f"    {line}" for line in lines)
        blocks = source.blocks({source.function})
        missing = {
            n: line
            for n, line in (("torch", "import torch"), ("triton", "import triton"))
            if not any(n in b.names for b in blocks)
        }
        part = "".join(b.text for b in blocks).strip("\n")
        return "\n".join(missing.values()) + f"\n{part}\n\n\ndef {self.name}({', '.join(self.arguments)}):\n{body}\n"
