"""Loads through tensor descriptors: the rewritten kernel reads the same values, or the move says why it does not apply.

Most is run as plain Python over numbers (`evaluating.py`): thousands of launches in seconds, with what Triton documents
of descriptors enforced. What the move writes is shown to Triton itself in `test_move_descriptors_triton.py`.
"""

import ast
import re
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.moves.analysis import DoesNotApply

from tests.agent.composing import reason
from tests.agent.descriptor_forms import ALONE, FORMS, REFUSED, SUM
from tests.agent.descriptor_kernels import body, file_of, launches, random_kernel, rewritten
from tests.agent.evaluating import OutOfMemory, launched, run, same


def reads_the_same(source: str, changed: str, number: int = 12) -> bool:
    """Whether both store the same on launches that mean something; they must take the descriptors in one of them."""
    ast.parse(changed)
    took = False
    for arguments, programs in launches(Random(len(source)), number):
        try:
            expected = run(source, "_k", arguments, programs)
        except (OutOfMemory, ZeroDivisionError, UnboundLocalError):
            continue
        assert same(expected, run(changed, "_k", arguments, programs)), (changed, arguments, programs)
        took = took or next(iter(launched(changed, "_k", arguments).values()))
    return took


@pytest.mark.long
@settings(max_examples=12, derandomize=True)
@given(st.integers(0, 1 << 32))
def test_a_random_kernel_reads_the_same_when_the_move_applies(seed: int) -> None:
    random = Random(seed)
    source = file_of(random_kernel(random))
    try:
        changed = rewritten(source)
    except DoesNotApply:
        return
    reads_the_same(source, changed, 8)


@pytest.mark.parametrize("form", FORMS)
def test_a_tile_is_read_the_same_through_a_descriptor_with(form: str) -> None:
    source = file_of(body(*FORMS[form]))
    changed = rewritten(source)
    assert re.search(r"\ba_desc(_\d)? = tl.make_tensor_descriptor", changed), "A is not read through a descriptor"
    assert reads_the_same(source, changed)


@pytest.mark.parametrize("form", REFUSED)
def test_a_load_stays_and_the_move_says_why_with(form: str) -> None:
    why, changes = REFUSED[form]
    assert why in reason(rewritten, file_of(body(*ALONE, *changes)))


def fits(source: str, a: Any, b: Any, **numbers: int) -> bool:
    """What the heuristic says of a launch."""
    sizes = dict(M=a.shape[0], K=a.shape[1], N=b.shape[1], X=0, Y=0, BM=32, BN=32, BK=16, FLAG=True)
    strides = dict(zip(("sam", "sak", "sbk", "sbn"), (*a.stride(), *b.stride()), strict=True))
    found = launched(source, "_k", dict(A=a, B=b, C=torch.zeros(1)) | sizes | strides | numbers)
    return bool(found["DESCRIPTORS"])


def test_the_old_loop_stays_for_launches_that_no_descriptor_can_do() -> None:
    changed = rewritten(file_of(body()))
    h, b = torch.zeros(300, 272, dtype=torch.float16), torch.zeros(96, 64, dtype=torch.float16)
    tile, one = h[:64, :96], torch.zeros(1, 1, dtype=torch.float16)
    assert fits(changed, tile, b), "rows of 16 bytes"
    assert fits(changed, h[3:67, 8:104], b), "a view that starts at 16 bytes"
    assert fits(changed, h.T[:64, :96], b.T[:96].T.T[:, :64]), "the other layout"
    assert fits(changed, h[:1, :96], b), "one row"
    assert not fits(changed, h[:64, 1:97], b), "a view that starts at 2 bytes"
    assert not fits(changed, torch.zeros(64, 97, dtype=torch.float16)[:, :96], b), "rows of 194 bytes"
    assert not fits(changed, one.expand(64, 96), b), "one element everywhere"
    assert not fits(changed, h[:1, :96].expand(64, 96), b), "one row everywhere"
    assert not fits(changed, torch.zeros(64, 1, dtype=torch.float16).expand(64, 96), b), "one column everywhere"
    assert not fits(changed, h[:64, :192:2], b), "every second element"
    assert not fits(changed, tile.double(), b), "8 bytes"
    assert not fits(changed, tile.bool(), b), "truth values"
    assert not fits(changed, tile, b, BK=4), "8 bytes of a row"
    assert not fits(changed, tile, b, BK=8, BM=4), "a tile of 64 bytes"
    assert not fits(changed, tile, b, K=-1), "a size that is negative"


def test_a_launch_without_the_tensor_takes_the_old_loop() -> None:
    extra = "    if FLAG:\n        a += tl.load(D + offs_m[:, None] * sam + (k + offs_k)[None, :] * sak)\n"
    source = file_of(body((SUM, f"{extra.strip()}\n    {SUM}"))).replace("X, Y,", "X, Y, D,")
    tile = torch.zeros(64, 96, dtype=torch.float16)
    changed = rewritten(source)
    strides = dict(sam=96, sak=1, sbk=96, sbn=1, M=64, K=96, N=96, X=0, Y=0, BM=32, BN=32, BK=16, FLAG=False)
    assert not launched(changed, "_k", dict(A=tile, B=tile, C=tile, D=None) | strides)["DESCRIPTORS"]
    assert launched(changed, "_k", dict(A=tile, B=tile, C=tile, D=tile) | strides)["DESCRIPTORS"]
    assert not launched(changed, "_k", dict(A=tile, B=tile, C=tile, D=tile[:, 1:]) | strides)["DESCRIPTORS"]


def test_a_parameter_that_the_launch_leaves_out_has_its_default() -> None:
    source = file_of(body())
    for name, value in (("BM", "32"), ("BN", "32"), ("BK", "4"), ("FLAG", "True")):
        source = source.replace(f"{name}: tl.constexpr", f"{name}: tl.constexpr = {value}", 1)
    tile = torch.zeros(64, 64, dtype=torch.float16)
    given = dict(A=tile, B=tile, C=tile, M=64, N=64, K=64, sam=64, sak=1, sbk=64, sbn=1, X=0, Y=0)
    changed = rewritten(source)
    assert launched(changed, "_k", given | {"BK": 16})["DESCRIPTORS"]
    assert not launched(changed, "_k", given)["DESCRIPTORS"]
