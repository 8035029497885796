"""From what a load addresses to the tensor descriptor that addresses the same: base, shape, strides, block, offsets.

A tile of addresses is `base + i0 * stride0 + i1 * stride1`; one stride must be 1 (known from the source, or checked by
the launch), the other a multiple of 16 bytes, like everything that moves the base or the offset in the contiguous
dimension. A mask becomes a bound of the shape: a descriptor reads zeros from there on, and below index zero, so that
only what cannot be negative becomes an offset. Where the load has no mask nothing is cut off. What cannot be shown to
read the same raises DoesNotApply.
"""

from collections.abc import Callable
from dataclasses import dataclass

import sympy
from pgo_agent.agent.moves.analysis import DoesNotApply, index_algebra, nonnegative, poly_text
from pgo_agent.agent.moves.analysis.cst_util import writes
from pgo_agent.agent.moves.analysis.dataflow import IndexFlow
from pgo_agent.agent.moves.analysis.index_algebra import Poly, Tile, Unknown, identifiers, mentions
from pgo_agent.agent.moves.analysis.load_site import Load
from pgo_agent.agent.moves.analysis.nonnegative import Sign
from pgo_agent.agent.moves.analysis.poly_text import in_kernel, terms

UNBOUNDED = "2147483647"  # size of a dimension without a mask


@dataclass(frozen=True)
class Dimension:
    stride: Poly
    extent: str  # of the block
    offset: str  # text of the block's first index, where the load stands
    bound: str  # text of the dimension's size


@dataclass(frozen=True)
class Operand:
    """A descriptor, and where one load finds its block in it."""

    pointer: str  # the parameter that it is based on
    base: str  # text of the address of element (0, 0)
    dimensions: tuple[Dimension, Dimension]
    strides: tuple[str, str]  # as the launch knows them
    block: tuple[str, str]  # the extents, as the launch knows them
    steps: tuple[str, ...]  # texts for the launch: must be multiples of 16 bytes
    sizes: tuple[str, ...]  # texts for the launch: must not be negative
    constant: frozenset[str]  # names that must not change while the descriptor is in use

    @property
    def inner(self) -> int | None:
        """Return the contiguous dimension, if the source tells."""
        contiguous = [d for d in (1, 0) if self.dimensions[d].stride == 1 or _number(self.dimensions[1 - d].stride)]
        return contiguous[0] if len(contiguous) == 1 else None

    @property
    def key(self) -> tuple[object, ...]:
        """Return what loads that share a descriptor have in common."""
        return self.base, *((d.stride, d.extent, d.bound) for d in self.dimensions)

    @property
    def address(self) -> tuple[object, ...]:
        """Return what loads of the same tile have in common, up to their masks."""
        return self.base, *((d.stride, d.extent, d.offset) for d in self.dimensions)


def operand(load: Load, flow: IndexFlow) -> Operand:
    """Return the descriptor for a load. Raises DoesNotApply with the reason."""
    try:
        return _Finder(load, flow).operand()
    except Unknown as e:
        raise DoesNotApply(str(e)) from None


class _Finder:
    """One load, taken apart."""

    def __init__(self, load: Load, flow: IndexFlow) -> None:
        if load.pointer.rank != 2:
            raise DoesNotApply(f"a load of a tile with {load.pointer.rank} dimensions")
        self.load, self.flow = load, flow
        self.pointer = _pointer(load.pointer, flow)
        self.ranges = index_algebra.axes(load.pointer.value)
        if set(self.ranges) != {0, 1}:
            raise DoesNotApply("a load that does not step through both dimensions of its tile")
        self.strides, rest = self._strides()
        self.changing = set[str]().union(*(writes(loop) for loop in load.loops))
        self.sizes = set[str]()  # parameters that must not be negative
        full, _ = self._split(rest, lambda _: nonnegative.NONE, lambda _: True)
        bounded = {d for d in (0, 1) if self._bounded_below(d, full[d])}
        self.offsets, self.base = self._split(rest, self._sign, bounded.__contains__)

    def operand(self) -> Operand:
        extents = [self.ranges[d][1] for d in (0, 1)]
        bounds = [self._bound(d) for d in (0, 1)]
        first, second = (
            Dimension(s, e, in_kernel(o, self.flow.wide), text)
            for s, e, o, (text, _) in zip(self.strides, extents, self.offsets, bounds, strict=True)
        )
        values = [self.base, *self.strides, *(p for _, p in bounds)]
        constant = {self.pointer}.union(*(mentions(Tile(p, 0)) for p in values), *map(identifiers, extents))
        return Operand(
            pointer=self.pointer,
            base=" + ".join([self.pointer, *map(poly_text.in_64_bits, terms(self.base))]),
            dimensions=(first, second),
            strides=(self._known(self.strides[0]), self._known(self.strides[1])),
            block=(poly_text.at_launch(extents[0], self.flow), poly_text.at_launch(extents[1], self.flow)),
            steps=tuple(dict.fromkeys(self._steps())),
            sizes=tuple(poly_text.at_launch(n, self.flow) for n in sorted(self.sizes)),
            constant=frozenset(constant),
        )

    def _known(self, stride: Poly) -> str:
        return poly_text.at_launch(in_kernel(stride), self.flow)

    def _strides(self) -> tuple[list[Poly], Poly]:
        """The strides, and the rest of the address without its pointer and ranges."""
        rest = sympy.expand(self.load.pointer.value - index_algebra.symbol(self.pointer))
        indices = {r for r, _ in self.ranges.values()}
        strides = []
        for d in (0, 1):
            polynomial = sympy.Poly(rest, self.ranges[d][0])
            stride, rest = polynomial.coeff_monomial(self.ranges[d][0]), polynomial.coeff_monomial(1)
            if polynomial.degree() != 1 or stride.free_symbols & indices:
                raise DoesNotApply("a load whose addresses are not an affine tile")
            strides.append(stride)
        self._check_strides(strides)
        return strides, rest

    def _check_strides(self, strides: list[Poly]) -> None:
        if not all(poly_text.integral(s) and self.flow.given({x.name for x in s.free_symbols}) for s in strides):
            shown = ", ".join(map(str, strides))
            raise DoesNotApply(f"a stride that is no parameter of the kernel: {shown}")
        if strides[0] == strides[1] == 1 or all(_number(s) for s in strides):
            raise DoesNotApply("a load that is contiguous in no dimension, or in both")

    def _split(self, rest: Poly, sign: Callable[[Poly], Sign], free: Callable[[int], bool]) -> tuple[list[Poly], Poly]:
        """The scalar part of an address: offsets along the two dimensions, and what moves the base."""
        offsets, base = [sympy.Integer(0), sympy.Integer(0)], sympy.Integer(0)
        for term in terms(rest):
            place = self._along(term)
            needed = None if place is None else nonnegative.NONE if free(place[0]) else sign(place[1])
            if place is None or needed is None:
                base += term
            else:
                self.sizes |= needed
                offsets[place[0]] += place[1]
        if not poly_text.integral(base):
            raise DoesNotApply("an address that is no whole number of steps")
        return offsets, base

    def _along(self, term: Poly) -> tuple[int, Poly] | None:
        """The dimension that a term steps along, and the steps. In a contiguous one, only what a loop changes."""
        for d in (0, 1):
            steps = sympy.cancel(term / self.strides[d])
            if self.strides[d] != 1 and poly_text.integral(steps):
                return d, steps
        contiguous = next((d for d in (0, 1) if self.strides[d] == 1), None)
        if contiguous is not None and mentions(Tile(term, 0)) & self.changing:
            return contiguous, term
        return None

    def _sign(self, p: Poly) -> Sign:
        """Under which condition a polynomial is not negative."""
        signs: list[Sign] = [nonnegative.NONE]
        for term in terms(p):
            coefficient, factors = term.as_coeff_mul()
            bases = [f.base if isinstance(f, sympy.Pow) else f for f in factors]
            signs += [None] if coefficient < 0 else [self.load.signs.get(b.name) for b in bases]
        return nonnegative.every(*signs)

    def _bounds_along(self, d: int) -> list[tuple[int, Poly]]:
        """What a mask says of the index along a dimension: slope s and rest r, for s * index + r > 0."""
        bounds = []
        for t in self.load.mask.positive if self.load.mask else ():
            inside = index_algebra.axes(t.value)
            if len(inside) != 1:
                raise DoesNotApply("a mask that compares the dimensions with each other, or neither")
            if d in inside:
                bounds.append(self._bound_by(t.value, inside[d][0], self.ranges[d][0]))
        return bounds

    def _bound_by(self, positive: Poly, index: Poly, own: Poly) -> tuple[int, Poly]:
        if index != own:
            raise DoesNotApply("a mask over another range than the load's")
        slope = sympy.Poly(positive, index).coeff_monomial(index)
        rest = sympy.expand(positive - slope * index)
        if slope not in (1, -1) or index in rest.free_symbols or not poly_text.integral(rest):
            raise DoesNotApply("a mask that is not a bound of an index")
        return int(slope), rest

    def _bounded_below(self, d: int, offset: Poly) -> bool:
        """Whether the mask asks that index + offset is not negative, as a descriptor does."""
        return any(slope == 1 and sympy.expand(rest - offset) == 1 for slope, rest in self._bounds_along(d))

    def _bound(self, d: int) -> tuple[str, Poly]:
        """The size of a dimension, as text and polynomial: what the mask says, or the block's own extent, or none."""
        offset, bounds = self.offsets[d], self._bounds_along(d)
        if any(slope == 1 and sympy.expand(rest - offset) != 1 for slope, rest in bounds):
            raise DoesNotApply("a mask that is not an upper bound of an index")
        above = [sympy.expand(rest + offset) for slope, rest in bounds if slope == -1]
        if len(above) > 1:
            raise DoesNotApply("a mask with two bounds along one dimension")
        if not above:
            return self.ranges[d][1] if offset == 0 else UNBOUNDED, sympy.Integer(0)
        needed = self._sign(above[0])
        self.sizes |= needed or set()
        text = in_kernel(above[0])
        return text if needed is not None else f"tl.maximum({text}, 0)", above[0]

    def _steps(self) -> list[str]:
        """What must be a multiple of 16 bytes: all that moves the base, and the offset in a contiguous dimension."""
        moves = [*terms(self.base), *(t for p in self.flow.moved.get(self.pointer, []) for t in terms(p))]
        texts = [poly_text.multiple_at_launch(t, self.flow) for t in moves]
        for d in (0, 1):
            if self.strides[d] == 1 or 1 not in self.strides:
                texts += self._offset_steps(d)
        return texts

    def _offset_steps(self, d: int) -> list[str]:
        try:
            return [poly_text.multiple_at_launch(t, self.flow) for t in self._unrolled(self.offsets[d])]
        except DoesNotApply:
            if self.strides[d] == 1:
                raise
            return [f"int({self._known(self.strides[d])} == 1)"]  # one element is not 16 bytes: not this dimension

    def _unrolled(self, offset: Poly) -> list[Poly]:
        """The terms of an offset with loop variables written as first value + iteration * step."""
        for _ in self.load.starts:
            for name, (low, step) in self.load.starts.items():
                value = low + step * index_algebra.symbol(f"iteration_of_{name}")
                offset = sympy.expand(offset.subs(index_algebra.symbol(name), value))
        return terms(offset)


def _number(stride: Poly) -> bool:
    """Whether a stride is a literal that steps over elements: the other dimension must be the contiguous one."""
    return bool(stride.is_number) and stride != 1


def _pointer(pointer: Tile, flow: IndexFlow) -> str:
    """The parameter that the addresses are based on: the one that stands alone and is never used as a number."""
    alone = [t.name for t in terms(pointer.value) if isinstance(t, sympy.Symbol) and t.name in flow.parameters]
    factors = {s.name for t in terms(pointer.value) if not isinstance(t, sympy.Symbol) for s in t.free_symbols}
    pointers = [n for n in alone if n not in factors and n not in flow.numbers]
    if len(pointers) != 1 or pointers[0] in flow.reassigned:
        raise DoesNotApply("a load whose base pointer is not a parameter of the kernel")
    return str(pointers[0])
