"""Polynomials of index arithmetic as text: for the kernel, in 32 or 64 bits, and for the launch, over its arguments.

Relies on `index_algebra.py` for what the symbols of a polynomial mean. A text means the same in any place of an
expression.
"""

import ast
import re
from collections.abc import Iterable, Set

import libcst as cst
import sympy
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import code, listed
from pgo_agent.agent.moves.analysis.dataflow import IndexFlow
from pgo_agent.agent.moves.analysis.index_algebra import Poly, Tile, mentions, parse

_QUOTED = re.compile(r"args(\[|\.get\()'(\w+)'")
_ATOMS = ast.Name | ast.Call | ast.Constant | ast.Attribute


def terms(p: Poly) -> list[Poly]:
    """Return the terms of a polynomial."""
    return [t for t in sympy.Add.make_args(sympy.expand(p)) if t != 0]


def integral(p: Poly) -> bool:
    """Tell whether a polynomial has whole coefficients: others are right on paper, but no kernel computes them."""
    return bool(p.is_polynomial()) and all(t.as_coeff_mul()[0].is_Integer for t in terms(p))


def in_kernel(p: Poly, wide: Set[str] = frozenset()) -> str:
    """Return a polynomial as an expression of the kernel, in 32 bits."""
    text = _sum(sorted(terms(p), key=lambda t: (str(t).startswith("-"), str(t))))
    return f"tl.cast({text}, tl.int32)" if mentions(Tile(p, 0)) & wide else text


def _sum(ordered: Iterable[Poly]) -> str:
    text = ""
    for term in ordered:
        coefficient, factors = term.as_coeff_mul()
        number = [str(abs(coefficient))] if abs(coefficient) != 1 or not factors else []
        product = " * ".join([*(factor(f) for f in sorted(factors, key=_order)), *number])
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {product}" if text else f"-{product}" if sign == "-" else product
    return text or "0"


def in_64_bits(term: Poly) -> str:
    """Return a term as addresses are computed."""
    coefficient, factors = term.as_coeff_mul()
    texts = [factor(f) for f in sorted(factors, key=_order)] or ["1"]
    number = [str(coefficient)] if coefficient != 1 else []
    return " * ".join([f"tl.cast({texts[0]}, tl.int64)", *texts[1:], *number])


def at_launch(text: str, flow: IndexFlow) -> str:
    """Return an expression over parameters as the launch knows it. Raises DoesNotApply for any other."""
    node = parse(text)
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if not flow.given(names):
        raise DoesNotApply(f"'{text}' is not known when the kernel is launched")
    return _QUOTED.sub(r'args\1"\2"', ast.unparse(_Arguments(flow).visit(node)))


def multiple_at_launch(term: Poly, flow: IndexFlow) -> str:
    """Return what the launch knows of a term: it is a multiple of 16 bytes if that is. Raises DoesNotApply."""
    coefficient, factors = term.as_coeff_mul()
    names = [f.name for f in factors if isinstance(f, sympy.Symbol) and flow.given({f.name})]
    number = [str(abs(coefficient))] if abs(coefficient) != 1 else []
    if not names and coefficient % 4:
        raise DoesNotApply(f"it starts at {in_kernel(term)}, which may not be a multiple of 16 bytes")
    return " * ".join([*number, *(at_launch(n, flow) for n in sorted(names))])


class _Arguments(ast.NodeTransformer):
    """Puts the arguments of a launch in the places of parameters: `args["M"]`, or the parameter's default."""

    def __init__(self, flow: IndexFlow) -> None:
        given = listed(flow.function)
        self.defaults = {p.name.value: code(p.default) for p in given if isinstance(p.default, cst.BaseExpression)}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        default = self.defaults.get(node.id)
        return parse(f'args["{node.id}"]' if default is None else f'args.get("{node.id}", {default})')


def factor(f: Poly) -> str:
    """Return a factor of a term, in brackets where it needs them."""
    if isinstance(f, sympy.Pow):
        return " * ".join([factor(f.base)] * int(f.exp))
    return str(f.name) if isinstance(parse(f.name), _ATOMS) else f"({f.name})"


def _order(f: Poly) -> tuple[bool, str]:
    return str(f).isupper(), str(f)
