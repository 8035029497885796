"""Index arithmetic as polynomials: what is said of a load is what the kernel reads there, on numbers."""

import inspect
import itertools
from contextlib import suppress
from random import Random
from types import FrameType
from typing import Any

import libcst as cst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libcst.metadata import MetadataWrapper, PositionProvider
from pgo_agent.agent.moves.analysis import index_algebra
from pgo_agent.agent.moves.analysis.cst_util import functions
from pgo_agent.agent.moves.analysis.dataflow import IndexFlow
from pgo_agent.agent.moves.analysis.index_algebra import Mask, Poly, Tile, Unknown
from pgo_agent.agent.moves.analysis.load_site import Load
from pytest import MonkeyPatch

from tests.agent import evaluating
from tests.agent.descriptor_kernels import body, file_of, launches, random_kernel

ENV = {n: Tile(index_algebra.symbol(n), 0) for n in ("A", "x", "y", "n")} | {
    "i": index_algebra.evaluate("tl.arange(0, BM)", {}),
    "j": index_algebra.evaluate("tl.arange(0, BN)", {}),
}


def said(text: str) -> str:
    found = index_algebra.evaluate(text, ENV)
    return " & ".join(f"{t.value} > 0" for t in found.positive) if isinstance(found, Mask) else str(found.value)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("(x + i)[:, None] * y + j[None, :]", "@0:BM*y + @1:BN + x*y"),
        ("A + i[:, None] + j", "@0:BM + @1:BN + A"),  # a tile of one dimension gets another in front
        ("x.to(tl.int64) * (y - -3)", "x*y + 3*x"),
        ("tl.multiple_of(x, 8) + tl.cast(y, tl.int64)", "x + y"),
        ("x // (y + 1) * 2", "2*x // (y + 1)"),
        ("tl.program_id(axis=0) + tl.cdiv(x, 2)", "tl.cdiv(x, 2) + tl.program_id(axis=0)"),
        ("A\n  + x  # the row", "A + x"),
        ("i < x", "-@0:BM + x > 0"),
        ("x - 1 >= i", "-@0:BM + x > 0"),
        ("(i[:, None] < x) & (0 <= j[None, :])", "-@0:BM + x > 0 & @1:BN + 1 > 0"),
    ],
)
def test_an_expression_is_a_polynomial(text: str, meaning: str) -> None:
    assert said(text) == meaning


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("i % x", "divides a tile"),
        ("x / 2", "not index arithmetic"),
        ("x == y", "not a comparison of order"),
        ("(i < x) | (i < y)", "is a condition"),
        ("i + (x < y)", "is a condition"),
        ("x if n else y", "not index arithmetic"),
        ("i[:, 0]", "picks elements"),
        ("x.to(tl.int8)", "may change the value"),
        ("i.to(tl.int32)", "may change the value"),
        ("A.to(tl.pointer_type(tl.int8))", "may change the value"),
        ("tl.cast(x, tl.int64, bitcast=True)", "not index arithmetic"),
        ("tl.arange(x, BM)", "not index arithmetic"),
        ("tl.minimum(x, y=i)", "is a tile"),
        ("minimum(x, y)", "not index arithmetic"),
        ("tl.load(A)", "not index arithmetic"),
        ("unheard + 1", "nothing is known of unheard"),
        ("x + 0.5", "not index arithmetic"),
        ("x + True", "not index arithmetic"),
    ],
)
def test_what_is_not_index_arithmetic_is_said_to_be_unknown(text: str, why: str) -> None:
    with pytest.raises(Unknown, match=why):
        said(text)


def test_two_ranges_along_one_dimension_are_told_apart() -> None:
    with pytest.raises(Unknown, match="two ranges"):
        index_algebra.axes(index_algebra.tile("i + j", ENV).value)


def test_a_mask_with_more_dimensions_than_its_tile_is_refused() -> None:
    mask = index_algebra.evaluate("i[:, None] < x", ENV)
    assert isinstance(mask, Mask)
    with pytest.raises(Unknown, match="more dimensions"):
        index_algebra.shifted(mask, 1)


@settings(max_examples=25, derandomize=True)
@given(st.integers(0, 1 << 32))
def test_what_is_said_of_a_load_is_what_a_random_kernel_reads_there(seed: int) -> None:
    random = Random(seed)
    check(file_of(random_kernel(random)), random, 2)


MOST = 12  # loads of one launch that are looked at
LOAD = "    a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (k + offs_k[None, :] < K), other=0.0)\n"
TRAPS = {
    "a step that changes": (("    a_ptrs += BK * sak\n", ""), ("acc = tl.zeros", "off = BK\nacc = tl.zeros"),
                            ("    b_ptrs +=", "    a_ptrs += off * sak\n    off = BK * 2 - off // 2\n    b_ptrs +=")),
    "a step named before like the loop's variable": (("acc = tl.zeros", "k = 16\nacc = tl.zeros"),
                                                     ("a_ptrs += BK * sak", "a_ptrs += k * sak")),
    "a start that the loop's variable hides": (("acc = tl.zeros", "k = pid_m\na_ptrs += k * sam\nacc = tl.zeros"),),
    "a start that the loop assigns": (("acc = tl.zeros", "y = tl.load(C)\na_ptrs += y\nacc = tl.zeros"),
                                      ("    b_ptrs +=", "    y = tl.load(C + k)\n    b_ptrs +=")),
    "a range that starts at its own variable": (("acc = tl.zeros", "k = pid_m * 16\nacc = tl.zeros"),
                                                ("range(0, K, BK)", "range(k, K, BK)")),
    "a step given by its name": (("range(0, K, BK)", "tl.range(0, K, step=BK)"),),
    "an assignment on the line of an if": (("acc = tl.zeros", "if X > 2: a_ptrs = a_ptrs + 8\nacc = tl.zeros"),),
    "an advance on the line of an if": (("a_ptrs += BK * sak", "if k > 16: a_ptrs += BK * sak"),),
    "a loop on one line": (("acc = tl.zeros", "for i in range(0, 3): a_ptrs += 8\nacc = tl.zeros"),),
    "a name computed from itself": (("acc = tl.zeros", "pid_m = pid_m + tl.arange(0, BM)\nacc = tl.zeros"),),
    "a pointer that holds another": (("pid_m = tl", "A, B = B, A\npid_m = tl"),),
    "a mask of one dimension": ((LOAD, LOAD.replace("(offs_m[:, None] < M)", "(offs_n < N)")),),
    "a mask before and after": ((LOAD, LOAD.replace("a_ptrs", "a_ptrs + X") + "    X = X + 1\n"),),
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_said_of_a_load_is_what_the_kernel_reads_there_with(trap: str) -> None:
    check(file_of(body(*TRAPS[trap])), Random(1), 6)


class Read:
    """A load that was executed: where, what it was given, and the names of the kernel at that moment."""

    def __init__(self, frame: FrameType, pointer: Any, mask: Any) -> None:
        line, _, column, _ = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        self.place = line or 0, column or 0
        self.names, self.pointer, self.mask = dict(frame.f_locals), pointer, mask


def check(source: str, random: Random, number: int) -> None:
    """Evaluates what is said of the loads that some launches execute."""
    known = loads(source)
    for arguments, programs in launches(random, number):
        for read in reads(source, arguments, programs)[:MOST]:
            if read.place in known:
                check_read(source, known[read.place], read, programs)


def check_read(source: str, load: Load, read: Read, programs: tuple[int, int, int]) -> None:
    assert np.array_equal(value(load.pointer.value, read, programs), read.pointer), source
    if load.mask is not None:
        inside = np.ones(np.shape(read.pointer), bool)
        for t in load.mask.positive:
            inside = inside & (value(t.value, read, programs) > 0)
        assert np.array_equal(inside, np.broadcast_to(read.mask, inside.shape)), source


def loads(source: str) -> dict[tuple[int, int], Load]:
    """Line and column -> what is said of the load there."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    places = wrapper.resolve(PositionProvider)
    flow = IndexFlow(functions(wrapper.module)["_k"])
    return {(places[x.call].start.line, places[x.call].start.column): x for x in flow.loads}


def reads(source: str, arguments: dict[str, Any], programs: tuple[int, int, int]) -> list[Read]:
    found: list[Read] = []
    plain = evaluating._load

    def noted(pointer: Any, mask: Any = None, other: Any = 0) -> Any:
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        found.append(Read(frame.f_back, pointer, mask))
        return plain(pointer, mask, other)

    with MonkeyPatch.context() as patch:
        patch.setattr(evaluating, "_load", noted)
        with suppress(evaluating.OutOfMemory, ZeroDivisionError, UnboundLocalError, ValueError):
            evaluating.run(source, "_k", arguments, programs)
    return found  # where it failed, what was read before is as good


def value(polynomial: Poly, read: Read, programs: tuple[int, int, int]) -> Any:
    """A polynomial on the numbers that the names had."""
    language = evaluating._language(programs, [])
    total: Any = 0
    rank = np.ndim(read.pointer)
    for term in polynomial.as_ordered_terms():
        coefficient, factors = term.as_coeff_mul()
        product: Any = coefficient.p / coefficient.q if coefficient.q != 1 else int(coefficient)
        for factor in factors:
            base, power = factor.as_base_exp()
            product = product * symbol(base.name, read, language, rank) ** int(power)
        total = total + product
    return total


def symbol(name: str, read: Read, language: Any, rank: int) -> Any:
    if not name.startswith("@"):
        return eval(name, {"tl": language}, read.names)
    dimension, extent = name[1:].split(":")
    index = np.arange(eval(extent, {}, read.names))
    return index.reshape([-1 if d == int(dimension) else 1 for d in range(rank)])
