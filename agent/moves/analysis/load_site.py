"""A `tl.load`: what it is given, as index arithmetic, and where it stands. Relies on libcst and `index_algebra.py`."""

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst
from pgo_agent.agent.moves.analysis import index_algebra
from pgo_agent.agent.moves.analysis.cst_util import code, keywords
from pgo_agent.agent.moves.analysis.index_algebra import Env, Mask, Poly, Tile, Unknown
from pgo_agent.agent.moves.analysis.nonnegative import Sign

_HINTS = {"eviction_policy", "cache_modifier", "mask", "other"}
_ZEROS = ("0", "0.0", "0.", "None")


@dataclass(frozen=True)
class Branch:
    """One side of an `if` or of a conditional expression."""

    node: int  # id of the node
    test: str | None  # its text, where only compile-time constants decide
    taken: bool


@dataclass(frozen=True)
class Load:
    """A `tl.load`, where it stands, and what is known there."""

    call: cst.Call
    pointer: Tile
    mask: Mask | None
    loops: tuple[cst.For, ...]  # outermost first
    line: cst.SimpleStatementLine | None  # its statement, if that is a simple one
    path: tuple[Branch, ...]  # outermost first
    signs: dict[str, Sign]  # of every symbol in pointer and mask
    starts: dict[str, tuple[Poly, Poly]]  # loop variable -> first value and step


def addressed(call: cst.Call, env: Env) -> tuple[Tile, Mask | None]:
    """Return the addresses that a load reads, and where it reads them. Raises Unknown."""
    plain = [a.value for a in call.args if a.keyword is None]
    if len(plain) > 3 or any(a.star for a in call.args):
        raise Unknown("a load with arguments that are not followed")
    given = dict(zip(("pointer", "mask", "other"), plain, strict=False))
    given |= keywords(call)
    if set(given) - _HINTS != {"pointer"}:
        raise Unknown(f"a load with {', '.join(sorted(set(given) - _HINTS - {'pointer'}))}")
    pointer = index_algebra.tile(code(given["pointer"]), env)
    return pointer, _mask(given, env, pointer.rank)


def _mask(given: Mapping[str, cst.BaseExpression], env: Env, rank: int) -> Mask | None:
    if "mask" not in given or code(given["mask"]) == "None":
        return None
    mask = index_algebra.evaluate(code(given["mask"]), env)
    if not isinstance(mask, Mask):
        raise Unknown("a mask that is not a comparison of indices")
    if "other" in given and code(given["other"]) not in _ZEROS:
        raise Unknown("a load that puts something other than zero where the mask is false")
    return index_algebra.shifted(mask, rank)
