"""From what a load addresses to the tensor descriptor that addresses the same: base, shape, strides, block, offsets.

A tile of addresses is `base + i0 * stride0 + i1 * stride1`; one stride must be 1 (known from the source, or checked by
the launch), the other a multiple of 16 bytes. A mask becomes a bound of the shape: a descriptor reads zeros outside.
Where the load has no mask nothing is cut off. What cannot be shown to read the same raises DoesNotApply.
"""

from dataclasses import dataclass

import sympy
from pgo_agent.agent.moves import tiles
from pgo_agent.agent.moves.base import DoesNotApply
from pgo_agent.agent.moves.flow import Flow, Load, mentions
from pgo_agent.agent.moves.tiles import Mask, Poly, Tile, Unknown

UNBOUNDED = "unbounded"  # name of the constant that stands for a dimension without a mask


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
    checked: tuple[str, ...]  # texts over the parameters: must be multiples of 16 bytes
    constant: frozenset[str]  # names that must not change while the descriptor is in use

    @property
    def inner(self) -> int | None:
        """The contiguous dimension, if the source tells."""
        known = [d for d in (1, 0) if self.dimensions[d].stride == 1]
        return known[0] if len(known) == 1 else None

    @property
    def key(self) -> tuple[object, ...]:
        """Loads of the same key share a descriptor."""
        return self.base, *((d.stride, d.extent, d.bound) for d in self.dimensions)


def operand(load: Load, flow: Flow) -> Operand:
    """The descriptor for a load. Raises DoesNotApply with the reason."""
    try:
        return _operand(load, flow)
    except Unknown as e:
        raise DoesNotApply(str(e)) from None


def _operand(load: Load, flow: Flow) -> Operand:
    if load.pointer.rank != 2:
        raise DoesNotApply(f"a load of a tile with {load.pointer.rank} dimensions")
    pointer = _pointer(load.pointer, flow)
    ranges = tiles.axes(load.pointer.value)
    if set(ranges) != {0, 1}:
        raise DoesNotApply("a load that does not step through both dimensions of its tile")
    rest = sympy.expand(load.pointer.value - tiles.symbol(pointer))
    strides = []
    for d in (0, 1):
        polynomial = sympy.Poly(rest, ranges[d][0])
        if polynomial.degree() != 1 or polynomial.coeff_monomial(ranges[d][0]).free_symbols & {
            r for r, _ in ranges.values()
        }:
            raise DoesNotApply("a load whose addresses are not an affine tile")
        strides.append(polynomial.coeff_monomial(ranges[d][0]))
        rest = polynomial.coeff_monomial(1)
    changing = {n for loop in load.loops for n in _assigned(loop)}
    offsets, base = _offsets(rest, strides, changing)
    dimensions = tuple(
        Dimension(
            strides[d],
            ranges[d][1],
            _text(offsets[d], flow.wide),
            _bound(d, ranges[d], offsets[d], load.mask, changing),
        )
        for d in (0, 1)
    )
    if load.mask is not None and any(not tiles.axes(t.value) for t in load.mask.positive):
        raise DoesNotApply("a mask that does not depend on the place in the tile")
    moves = [*_terms(base), *(t for p in flow.moved.get(pointer, []) for t in _terms(p))]
    checked = tuple(dict.fromkeys(_launch_text(t, flow) for t in moves))
    if any(s != 1 and not _of_parameters(s, flow) for s in strides):
        raise DoesNotApply(f"a stride that is no parameter of the kernel: {strides[0]}, {strides[1]}")
    constant = mentions(Tile(base, 0)) | {pointer} | {n for s in strides for n in mentions(Tile(s, 0))}
    text = " + ".join([pointer, *(_wide_term(t) for t in _terms(base))])
    return Operand(pointer, text, (dimensions[0], dimensions[1]), checked, frozenset(constant))


def _assigned(loop: object) -> set[str]:
    from pgo_agent.agent.moves.syntax import writes

    return writes(loop)  # type: ignore[arg-type]


def _pointer(pointer: Tile, flow: Flow) -> str:
    """The parameter that the addresses are based on: the one that stands alone and is never used as a number."""
    alone = [t.name for t in _terms(pointer.value) if isinstance(t, sympy.Symbol) and t.name in flow.parameters]
    factors = {s.name for t in _terms(pointer.value) if not isinstance(t, sympy.Symbol) for s in t.free_symbols}
    found = [n for n in alone if n not in factors and n not in flow.numbers]
    if len(found) != 1:
        raise DoesNotApply("a load whose base pointer is not a parameter of the kernel")
    return str(found[0])


def _offsets(rest: Poly, strides: list[Poly], changing: set[str]) -> tuple[list[Poly], Poly]:
    """Splits the scalar part of an address into offsets along the two dimensions and what moves the base."""
    offsets, base = [sympy.Integer(0), sympy.Integer(0)], sympy.Integer(0)
    for term in _terms(rest):
        along = next((d for d in (0, 1) if strides[d] != 1 and sympy.cancel(term / strides[d]).is_polynomial()), None)
        unit = next((d for d in (0, 1) if strides[d] == 1), None)
        if along is not None:
            offsets[along] += sympy.cancel(term / strides[along])
        elif unit is not None and mentions(Tile(term, 0)) & changing:
            offsets[unit] += term
        else:
            base += term
    return offsets, base


def _bound(d: int, range_: tuple[Poly, str], offset: Poly, mask: Mask | None, changing: set[str]) -> str:
    """The size of a dimension: what the mask says of its index, or its block's own extent, or no bound."""
    found = []
    for t in mask.positive if mask else ():
        inside = tiles.axes(t.value)
        if len(inside) > 1:
            raise DoesNotApply("a mask that compares the two dimensions with each other")
        if d in inside:
            found.append(_size(t.value, inside[d][0], range_, offset))
    found = [f for f in found if f is not None]
    if len(found) > 1:
        raise DoesNotApply("a mask with two bounds along one dimension")
    if found:
        if mentions(Tile(found[0], 0)) & changing:
            raise DoesNotApply("a mask whose bound changes in the loop")
        return _text(found[0], set())
    return range_[1] if offset == 0 else UNBOUNDED


def _size(positive: Poly, index: Poly, range_: tuple[Poly, str], offset: Poly) -> Poly | None:
    """The bound that `positive > 0` puts on the index; None when it only asks that it is not negative."""
    if index != range_[0]:
        raise DoesNotApply("a mask over another range than the load's")
    slope = sympy.Poly(positive, index).coeff_monomial(index)
    rest = sympy.expand(positive - slope * index)
    if slope == -1:
        return sympy.expand(rest + offset)
    if slope == 1 and sympy.expand(rest - offset) == 1:
        return None  # index + offset >= 0, which a descriptor asks, too
    raise DoesNotApply("a mask that is not an upper bound of an index")


def _terms(p: Poly) -> list[Poly]:
    return [t for t in sympy.Add.make_args(sympy.expand(p)) if t != 0]


def _of_parameters(p: Poly, flow: Flow) -> bool:
    return all(s.name in flow.parameters and s.name not in flow.moved for s in p.free_symbols)


def _launch_text(term: Poly, flow: Flow) -> str:
    """The factors of a term that the launch knows: if their product is a multiple of 16 bytes, so is the term."""
    coefficient, factors = term.as_coeff_mul()
    known = [f.name for f in factors if isinstance(f, sympy.Symbol) and _of_parameters(f, flow)]
    if not known:
        raise DoesNotApply(f"its base is moved by {term}, which may not be a multiple of 16 bytes")
    return " * ".join([*([str(coefficient)] if coefficient != 1 else []), *(f'args["{n}"]' for n in sorted(known))])


def _wide_term(term: Poly) -> str:
    """A term in 64 bits, as addresses are computed."""
    coefficient, factors = term.as_coeff_mul()
    texts = [_factor(f) for f in sorted(factors, key=_order)] or ["1"]
    number = [str(coefficient)] if coefficient != 1 else []
    return " * ".join([f"tl.cast({texts[0]}, tl.int64)", *texts[1:], *number])


def _text(p: Poly, wide: set[str]) -> str:
    """A polynomial as an expression of the kernel, in 32 bits."""
    said = ""
    for term in sorted(_terms(p), key=lambda t: (str(t).startswith("-"), str(t))):
        coefficient, factors = term.as_coeff_mul()
        number = [str(abs(coefficient))] if abs(coefficient) != 1 or not factors else []
        product = " * ".join([*(_factor(f) for f in sorted(factors, key=_order)), *number])
        sign = "-" if coefficient < 0 else "+"
        said += f" {sign} {product}" if said else f"-{product}" if sign == "-" else product
    return f"({said}).to(tl.int32)" if mentions(Tile(p, 0)) & wide else said or "0"


def _factor(f: Poly) -> str:
    if isinstance(f, sympy.Pow):
        return " * ".join([_factor(f.base)] * int(f.exp))
    return str(f.name) if f.name.isidentifier() or f.name.endswith(")") else f"({f.name})"


def _order(f: Poly) -> tuple[bool, str]:
    return str(f).isupper(), str(f)
