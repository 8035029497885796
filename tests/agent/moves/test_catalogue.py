"""The catalogue: which moves are asked about which kernel, in which order, with which configurations."""

from dataclasses import replace
from typing import Any

import pytest
from pgo_agent.agent.moves import Best, Proposal, Skipped, catalogue
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.record.baseline import BaselinePoint, TimeSource
from pgo_agent.sandbox import devices

from tests.conftest import FA_FWD, ROOT

H200 = devices.find("h200")
STATIC = {"registers": 128, "shared": 65536, "pipeline_depth": 3, "sass": {"all": 1}, "loop_flops": 1}


def test_a_move_for_another_architecture_is_listed_as_skipped() -> None:
    best = {"CASES/x": Best({"BLOCK_M": 64, "num_warps": 4, "num_stages": 3}, STATIC)}
    found = list(catalogue.propose(FA_FWD.read_text(), best, [], devices.find("a100")))
    assert Skipped("load through tensor descriptors", "not for sm_80") in found
    assert not [p for p in found if isinstance(p, Proposal) and p.move == "load through tensor descriptors"]


def test_a_kernel_that_no_timed_case_launches_is_left_alone() -> None:
    second = "\n\n@triton.jit\ndef _rare(x):\n    tl.store(x, 0.0)\n\n\ndef rarely(x):\n    _rare[(1,)](x)\n"
    best = {"CASES/x": Best({"BLOCK_M": 64, "num_warps": 4, "num_stages": 3}, STATIC, {"_fa_fwd": STATIC})}
    found = list(catalogue.propose(FA_FWD.read_text() + second, best, [], H200))
    assert Skipped("every move in _rare", "no case that is timed launches it") in found
    moves = [x.move for x in found]
    assert [m for m in moves if m.endswith("_rare")] == ["every move in _rare"]
    assert any(m.endswith("_fa_fwd") for m in moves)


def test_what_only_prepares_for_another_kernel_has_its_turn_last() -> None:
    first = "\n\n@triton.jit\ndef _first(x):\n    tl.store(x, 0.0)\n\n\ndef before(x):\n    _first[(64,)](x)\n"
    both = {"_fa_fwd": STATIC | {"dots": 2}, "_first": STATIC | {"dots": 0}}
    best = {"CASES/x": Best({"BLOCK_M": 64, "num_warps": 4, "num_stages": 3}, both["_fa_fwd"], both)}
    found = list(catalogue.propose(FA_FWD.read_text() + first, best, [], H200))
    source_moves = [x.move for x in found if not isinstance(x, Proposal) or x.kind == "source"]
    own = [m.endswith("_first") for m in source_moves if m.endswith(("_first", "_fa_fwd"))]
    assert own == sorted(own) and {True, False} <= set(own)


@pytest.mark.parametrize("standing", [True, False])
def test_what_stands_in_the_files_own_list_is_not_proposed_as_the_best_of_the_grid(standing: bool) -> None:
    best = {"CASES/x": Best({"BLOCK_M": 64, "num_warps": 4, "num_stages": 3}, STATIC, standing=standing)}
    (found,) = (p for p in catalogue.propose(FA_FWD.read_text(), best, [], H200) if p.move == "best of the grid")
    assert isinstance(found, Skipped) == standing


def brought(fastest: int, tied: int) -> str:
    """The configurations of a rewrite that finds the first of two in front."""
    first, other = ({"BLOCK_M": 64, "BLOCK_N": n, "num_warps": 4, "num_stages": 3} for n in (fastest, tied))
    static = STATIC | {"spill_store_bytes": 0, "notes": [], "dots": 2}
    best = {"CASES/x": Best(first, static, {"_fa_fwd": static}, near=(other,))}
    made = catalogue.propose(FA_FWD.read_text(), best, [], H200)
    text = next(p.source for p in made if isinstance(p, Proposal) and p.move == "load through tensor descriptors")
    return text.split("@triton.autotune(")[1].split("key=")[0]


@pytest.mark.long
def test_a_rewrite_brings_all_that_tie_whichever_of_them_was_in_front() -> None:
    for listed in (brought(32, 64), brought(64, 32)):
        for n in (32, 64):
            assert f'{{"BLOCK_M": 64, "BLOCK_N": {n}}}, num_warps=4, num_stages=3' in listed


def test_what_ties_was_timed_beside_the_best_and_is_right() -> None:
    def point(n: int, ms: float | None, case: str = "CASES/x", **changes: Any) -> BaselinePoint:
        plain = {"bundle": "b", "choice": "c", "said": "c", "codes": (), "how": TimeSource.MEASURED, "finalist": True}
        own = {"case": case, "plan_id": f"{n}", "ms": ms, "config": {"BLOCK": n}}
        return BaselinePoint(**(plain | own | changes))

    best = point(1, 1.0)
    others = [
        point(2, 1.004),
        point(3, 1.001),
        point(4, 1.006),
        point(5, 1.0, case="CASES/y"),
        point(6, 1.0, problem="wrong"),
        point(7, 1.0, finalist=False),
        point(8, 1.0, how=TimeSource.ESTIMATE),
        point(9, None),
    ]
    assert incumbent.near([best, *others], best) == ({"BLOCK": 3}, {"BLOCK": 2})
    assert incumbent.near([best, *others], replace(best, how=TimeSource.ESTIMATE)) == ()


def test_warps_and_stages_of_a_gluon_kernel_are_its_texts_and_not_varied() -> None:
    path = ROOT / "evals" / "corpus" / "targets" / "attention_specialized.py"
    config = {"D": 128, "M": 128, "N": 64, "num_warps": 4}
    best = {"CASES/x": Best(config, STATIC, {"_attention": STATIC})}
    launches = [p.move for p in catalogue.propose(path.read_text(), best, [], H200) if isinstance(p, Proposal)]
    assert not [m for m in launches if m.startswith(("num_", "maxnreg"))]
    plain = path.read_text().replace("@gluon.jit", "@triton.jit")
    also = [p.move for p in catalogue.propose(plain, best, [], H200) if isinstance(p, Proposal)]
    assert [m for m in also if m.startswith("num_")]
