"""Which knowledge a prompt carries: what answers the profile's defects, in their order, and nothing always."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.agent.proposal.prompt import cards

from tests.agent.facts import names

DOTS, NONE = [{"dots": 2}], [{"dots": 0}]
SOFTMAX, PLAIN = "p = tl.exp2(x)", "p = x + 1"


@pytest.mark.parametrize("defect", Defect)
def test_every_defect_has_cards_and_they_are_there(defect: Defect) -> None:
    assert {f"cards/{name}" for name in cards.CARDS[defect]} <= set(names("cards"))
    assert cards.chosen([defect], DOTS, SOFTMAX, 90)


def test_every_card_answers_something() -> None:
    told = {f"cards/{name}" for found in cards.CARDS.values() for name in found}
    assert set(names("cards")) == told | {"cards/gluon"}


def test_what_costs_most_comes_first() -> None:
    assert cards.chosen([Defect.TAIL, Defect.SPILL], DOTS, PLAIN, 90) == ("persistent", "registers")
    assert cards.chosen([Defect.SPILL, Defect.TAIL], DOTS, PLAIN, 90) == ("registers", "persistent")


def test_the_first_card_of_each_defect_goes_before_the_second_of_any() -> None:
    found = cards.chosen([Defect.FEW_STAGES, Defect.NARROW], DOTS, PLAIN, 90)
    assert found == ("tma", "layouts", "epilogue")


@given(st.lists(st.sampled_from(Defect), unique=True), st.booleans(), st.sampled_from([80, 90, 100]))
def test_cards_are_few_and_each_stands_once(defects: Sequence[Defect], exponential: bool, arch: int) -> None:
    found = cards.chosen(defects, DOTS, SOFTMAX if exponential else PLAIN, arch)
    assert len(found) <= cards.MOST and len(set(found)) == len(found)
    assert arch == 90 or not {"tma", "wgmma_waits", "warp_specialization"} & set(found)
    assert exponential or "softmax" not in found


def test_where_nothing_stands_out_the_kind_of_kernel_decides() -> None:
    assert cards.chosen([], DOTS, SOFTMAX, 90) == ("wgmma_waits", "warp_specialization", "softmax")
    assert cards.chosen([], DOTS, "BLOCK: tl.constexpr", 90) == ("wgmma_waits", "warp_specialization")
    assert cards.chosen([], NONE, SOFTMAX, 90) == ("memory_bound", "layouts")


def test_what_is_known_of_device_memory_is_for_kernels_without_dots() -> None:
    assert "memory_bound" in cards.chosen([Defect.OCCUPANCY], NONE, PLAIN, 90)
    assert "memory_bound" not in cards.chosen([Defect.OCCUPANCY], DOTS, PLAIN, 90)


def test_gluon_is_for_dots_and_copies_that_wait_on_hopper_alone() -> None:
    assert cards.asks_for_gluon([], DOTS, 90) and cards.asks_for_gluon([[Defect.SPILL], []], DOTS, 90)
    assert cards.asks_for_gluon([[Defect.TAIL, Defect.DOT_WAIT]], DOTS, 90)
    assert not cards.asks_for_gluon([[Defect.TAIL, Defect.SPILL]], DOTS, 90)
    assert not cards.asks_for_gluon([[Defect.DOT_WAIT]], DOTS, 80)
    assert not cards.asks_for_gluon([[]], NONE, 90)
