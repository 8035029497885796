"""Rows that wrap around become rows that are masked, in every form of which it can be shown that nobody sees them.

Kernels are run as plain Python over numbers (`evaluating.py`), on launches whose sizes are seldom whole tiles.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import libcst as cst
import numpy as np
import pytest
import torch
from pgo_agent.agent.moves.analysis import unwrap_modulo
from pgo_agent.agent.moves.analysis.cst_util import change, functions

from tests.agent.composing import outputs, same_bits
from tests.agent.descriptor_kernels import body, file_of, launches, rewritten, together
from tests.agent.evaluating import OutOfMemory, launched, run

ROWS, COLUMNS = "(pid_m * BM + tl.arange(0, BM)) % M", "(pid_n * BN + tl.arange(0, BN)) % N"
IN_M = "(offs_m[:, None] < M)"
MASK = f"{IN_M} & (offs_n[None, :] < N)"
STORE = f"tl.store(C + offs_m[:, None] * N + offs_n[None, :], acc, mask={MASK})"
IN_K = "k + offs_k[None, :] < K"
LOAD_A = f"    a = tl.load(a_ptrs, mask={IN_K}, other=0.0)\n"
WRAPPED = (
    ("a_ptrs = A + offs_m", f"rows = {ROWS}\ncolumns = {COLUMNS}\na_ptrs = A + rows"),
    ("* sbk + offs_n[None, :]", "* sbk + columns[None, :]"),
    ("mask=(offs_m[:, None] < M) & (k + offs_k[None, :] < K), ", "mask=k + offs_k[None, :] < K, "),
    ("mask=(k + offs_k[:, None] < K) & (offs_n[None, :] < N), ", "mask=k + offs_k[:, None] < K, "),
)
SCALED = ("acc = tl.dot(a, b, acc)", "acc += tl.dot(a, b) * s[:, None]")
Changes = tuple[tuple[str, str], ...]
SHOWN: dict[str, Changes] = {
    "nothing changed": (),
    "hints around the index": ((ROWS, f"tl.max_contiguous(tl.multiple_of({ROWS}, BM), BM)"),),
    "a sum of dots": (("acc = tl.dot(a, b, acc)", "acc += tl.dot(a, b)"),),
    "an accumulator by its name": (("tl.dot(a, b, acc)", "tl.dot(a, b, acc=acc)"),),
    "no mask of the load": ((LOAD_A, "    a = tl.load(a_ptrs)\n"), ("range(0, K, BK)", "range(0, K // BK * BK, BK)")),
    "a mask by its place": (("mask=k + offs_k[None, :] < K, other=0.0", "k + offs_k[None, :] < K, 0.0"),),
    "a pointer that is assigned anew": (("a_ptrs += BK * sak", "a_ptrs = a_ptrs + BK * sak"),),
    "an address in the load": (
        ("tl.load(a_ptrs, ", "tl.load(A + rows[:, None] * sam + (k + offs_k[None, :]) * sak, "),
        ("    a_ptrs += BK * sak\n", ""), ("a_ptrs = A + rows[:, None] * sam + offs_k[None, :] * sak\n", ""),
    ),
    "casts": ((", acc, mask", ", tl.cast(acc, tl.float32), mask"),),
    "arithmetic element by element": (
        (STORE, f"out = tl.where(acc > 0, acc, acc * 3)\nout = out * 2 - 1\n{STORE.replace(', acc,', ', out,')}"),
    ),
    "a mask that has a name": ((STORE, f"inside = {MASK}\n{STORE.replace(MASK, 'inside')}"),),
    "masks that have one dimension": (
        (STORE, f"in_m = offs_m < M\n{STORE.replace(IN_M, 'in_m[:, None]')}"),
    ),
    "a vector of the rows": (SCALED, (LOAD_A, f"{LOAD_A}    s = tl.load(A + rows * sam)\n")),
    "a vector by a pointer that is advanced": (
        SCALED, (LOAD_A, f"{LOAD_A}    s = tl.load(s_ptrs)\n    s_ptrs += sak\n"),
        ("acc = tl.zeros", "s_ptrs = A + rows * sam\nacc = tl.zeros"),
    ),
    "a vector by rows in groups": (SCALED, (LOAD_A, f"{LOAD_A}    s = tl.load(A + (rows // 4) * sam, mask=k < K)\n")),
    "vectors of both sides": (
        ("acc = tl.dot(a, b, acc)", "acc += tl.dot(a, b) * s[:, None] * t[None, :]"),
        (LOAD_A, f"{LOAD_A}    s = tl.load(A + rows * sam)\n    t = tl.load(B + columns)\n"),
    ),
    "a name that is given something else later": ((STORE, f"rows = pid_m * BM\n{STORE}"),),
    "the index by its own name later": (
        (STORE, f"rows = pid_m * BM + tl.arange(0, BM)\n{STORE.replace(IN_M, '(rows[:, None] < M)')}"),
    ),
    "the index written again": ((STORE, STORE.replace(IN_M, "((pid_m * BM + tl.arange(0, BM))[:, None] < M)")),),
}  # fmt: skip
SEEN: dict[str, Changes] = {
    "a vector of the rows that is added up": (
        (LOAD_A, f"{LOAD_A}    s = tl.load(A + rows * sam)\n    acc += tl.sum(s)\n"),
    ),
    "a vector of the rows that lies across": (
        ("acc = tl.dot(a, b, acc)", "acc += tl.dot(a, b) * s[None, :]"),
        (LOAD_A, f"{LOAD_A}    s = tl.load(A + rows * sam)\n"),
    ),
    "a vector of the rows with ones past the end": (
        SCALED,
        (LOAD_A, f"{LOAD_A}    s = tl.load(A + rows * sam, mask=k < K, other=1.0)\n"),
    ),
    "a vector of the rows that says where to read": (
        (LOAD_A, f"{LOAD_A}    s = tl.load(A + rows * sam)\n    acc += tl.load(A + s[:, None])\n"),
    ),
    "a vector that is no vector": (
        SCALED,
        (LOAD_A, f"{LOAD_A}    s = tl.load(A + rows + tl.arange(0, 2)[:, None])\n"),
    ),
    "a vector whose pointer is advanced by a tile": (
        SCALED,
        (LOAD_A, f"{LOAD_A}    s = tl.load(s_ptrs)\n    s_ptrs += offs_k\n"),
        ("acc = tl.zeros", "s_ptrs = A + rows * sam\nacc = tl.zeros"),
    ),
    "a name that gets another index in a loop": (
        ("acc = tl.zeros", f"for _ in range(1):\n    rows = {ROWS}\nacc = tl.zeros"),
    ),
    "a store without a mask": ((f", mask={MASK}", ""),),
    "a store that masks columns alone": ((MASK, "offs_n[None, :] < N"),),
    "a store that masks rows by another size": ((IN_M, "(offs_m[:, None] < K)"),),
    "a store that masks one row more": ((IN_M, "(offs_m[:, None] <= M)"),),
    "a store that masks other rows": (("offs_m = pid_m * BM +", "offs_m = pid_m * BM + 1 +"),),
    "a mask that holds either way": ((MASK, MASK.replace("&", "|")),),
    "rows that are stored where they wrap": (("C + offs_m[:, None]", "C + rows[:, None]"),),
    "rows that are added up": ((STORE, f"acc = acc + tl.sum(acc, 0)[None, :]\n{STORE}"),),
    "rows that become columns": ((STORE, STORE.replace(", acc,", ", tl.trans(acc),")),),
    "a product of the result": ((STORE, f"acc = tl.dot(acc, acc)\n{STORE}"),),
    "an operand on the other side": (("tl.dot(a, b, acc)", "tl.dot(b, a, acc)"),),
    "an operand that is used elsewhere": ((LOAD_A, f"{LOAD_A}    acc += tl.sum(a)\n"),),
    "an operand that is turned": (("tl.dot(a, b, acc)", "tl.dot(tl.trans(a), b, acc)"),),
    "ones past the end": (("mask=k + offs_k[None, :] < K, other=0.0", "mask=k + offs_k[None, :] < K, other=1.0"),),
    "a pointer to something else": (("a_ptrs += BK * sak", "a_ptrs = B + offs_k[None, :] * sak"),),
    "a size that changes": (("acc = tl.zeros", "M = M + 0\nacc = tl.zeros"),),
    "another tile by then": ((STORE, f"pid_m = pid_m + 1\n{STORE}"),),
    "a parameter that changes in between": (
        ("pid_m * BM + tl.arange(0, BM)", "X * BM + tl.arange(0, BM)"),
        ("rows = ", "X = X + 1\nrows = "),
    ),
    "a mask that was a parameter": (
        (STORE, STORE.replace(IN_M, "FLAG[:, None]").replace("tl.store", "FLAG = offs_m < M\ntl.store")),
    ),
    "a mask that may be none": ((LOAD_A, LOAD_A.replace("mask=", "mask=None if FLAG else ")),),
    "a mask whose name may stand for none": (
        (LOAD_A, f"    keep = None\n    if FLAG:\n        keep = {IN_K}\n{LOAD_A.replace(IN_K, 'keep')}"),
    ),
    "an index that may be negative": ((ROWS, ROWS.replace(") % M", " - X) % M")),),
    "an index of two dimensions": ((ROWS, ROWS.replace("tl.arange(0, BM)", "tl.arange(0, BM)[None, :]")),),
    "an index that was read": ((ROWS, ROWS.replace("pid_m * BM + tl", "tl.load(A) + tl")),),
    "an index whose name gets its value later": (
        (ROWS, ROWS.replace("pid_m * BM", "first")),
        ("acc = tl.zeros", "first = pid_m * BM\nacc = tl.zeros"),
    ),
    "a branch by the result": ((STORE, f"if tl.max(acc) > 0:\n    {STORE}"),),
    "an index in a loop": (("acc = tl.zeros", "for pid_m in range(0, 1):\n    pass\nacc = tl.zeros"),),
    "a helper of that name": (("acc = tl.zeros", "acc = zeros"), (STORE, f"acc = exp(acc)\n{STORE}")),
    "a result that is added to memory": ((STORE, STORE.replace("tl.store", "tl.atomic_add")),),
}


def wrapped(*changes: tuple[str, str]) -> str:
    return file_of(body(*WRAPPED, *changes))


def memory(source: str, arguments: dict[str, Any], programs: Sequence[int]) -> dict[int, float]:
    """What lies where after one program."""
    kept = {}
    for at, values, inside in run(source, "_k", arguments, programs):
        shown = np.broadcast_to(inside, at.shape)
        kept.update(zip(at[shown].tolist(), np.broadcast_to(values, at.shape)[shown].tolist(), strict=True))
    return kept


def unwrapped(source: str) -> str:
    module = cst.parse_module(source)
    return change(module, {"_k": unwrap_modulo.unwrapped(functions(module)["_k"])}).code


@pytest.mark.parametrize("form", SHOWN)
def test_what_is_stored_is_the_same_with(form: str) -> None:
    source = wrapped(*SHOWN[form])
    changed = unwrapped(source)
    assert "%" not in changed and "(rows[:, None] < M)" in changed and "(columns[None, :] < N)" in changed
    for arguments, programs in launches(Random(len(source)), 12):
        try:
            expected = memory(source, arguments, programs)
        except (OutOfMemory, ZeroDivisionError):
            continue
        assert expected == memory(changed, arguments, programs), (arguments, programs)


@pytest.mark.parametrize("form", SEEN)
def test_rows_that_somebody_may_see_go_on_to_wrap_around_with(form: str) -> None:
    assert "% M" in unwrapped(wrapped(*SEEN[form]))


def test_a_kernel_that_wraps_around_is_read_through_descriptors() -> None:
    source = wrapped()
    changed, took = rewritten(source), 0
    assert changed.count("tl.make_tensor_descriptor") >= 2
    for arguments, programs in launches(Random(3), 24):
        try:
            expected = memory(source, arguments, programs)
        except (OutOfMemory, ZeroDivisionError):
            continue
        assert expected == memory(changed, arguments, programs), (arguments, programs)
        took += bool(launched(changed, "_k", arguments)["DESCRIPTORS"])
    assert took


def test_in_tritons_interpreter_it_is_the_same_to_the_bit() -> None:
    casts = ("tl.dot(a, b, acc)", "tl.dot(a.to(tl.float16), b.to(tl.float16), acc)")
    source = wrapped(casts, (", acc, mask", ", acc.to(tl.float32), mask"))
    calls = [dict(which="k", a=numbers(m, k), b=numbers(k, n)) for m, k, n in ((70, 48, 40), (64, 32, 96), (1, 7, 3))]
    before, after = (outputs(together([text]), *calls) for text in (source, rewritten(source)))
    assert same_bits(before, after)


def numbers(rows: int, columns: int) -> torch.Tensor:
    drawn = torch.randint(-4, 5, (rows, columns), generator=torch.Generator().manual_seed(rows + columns))
    return drawn.to(torch.float16)
