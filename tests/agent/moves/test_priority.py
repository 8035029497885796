"""Moves in the order of what a profile asks for, each with the bottleneck that it answers."""

from itertools import islice

import pytest
from pgo_agent.agent.moves import Best, Proposal, Skipped, catalogue, launch_config
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.priority import HYPOTHESIS, ProfileEvidence
from pgo_agent.agent.moves.rewrites import persistent_grid
from pgo_agent.agent.profile.advice import ADVICE
from pgo_agent.agent.profile.findings import Defect, Finding
from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.sandbox import devices

from tests.conftest import FA_FWD, ROOT

H200 = devices.find("h200")
SOURCE = FA_FWD.read_text()
LARGE, SMALL = ({"BLOCK_M": m, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3} for m in (128, 64))


def build(shared: int = 65536, registers: int = 255, spilled: int = 100) -> dict[str, object]:
    return {
        "name": "_fa_fwd",
        "registers": registers,
        "shared": shared,
        "pipeline_depth": 3,
        "spill_store_bytes": spilled,
        "notes": [],
        "dots": 2,
        "sass": {"all": 1},
        "loop_flops": 1,
    }


def best(config: Config, **figures: int) -> Best:
    return Best(config, build(**figures), {"_fa_fwd": build(**figures)})


def bottleneck(defect: Defect, kernel: str = "_fa_fwd", share: float | None = None) -> Bottleneck:
    return Bottleneck(kernel, Finding(defect, 1.0, "of it", 40, f"{defect}, once"), share)


def proposed(asked: ProfileEvidence, known: dict[str, Best] | None = None, seed: int = 0) -> list[Proposal]:
    known = known or {"CASES/a": best(LARGE)}
    return [p for p in catalogue.propose(SOURCE, known, [], H200, asked, seed) if isinstance(p, Proposal)]


def names(found: list[Proposal]) -> list[str]:
    return [p.move for p in found]


# order ----------------------------------------------------------------------------------------------------------------


def test_what_answers_a_bottleneck_comes_first_in_the_order_of_the_bottlenecks() -> None:
    asked = ProfileEvidence({"CASES/a": (bottleneck(Defect.TAIL), bottleneck(Defect.COPY_WAIT))})
    first = proposed(asked)[:5]
    assert names(first) == ["persistent grid", "BLOCK_M=64", "BLOCK_N=32", *names(first)[3:]]
    assert {str(p.cites.finding.defect) for p in first[3:] if p.cites} == {"exposed copies"}


def test_what_nothing_asks_for_comes_after_in_the_order_of_before_and_says_so() -> None:
    before = names(proposed(ProfileEvidence(None)))
    found = proposed(ProfileEvidence({"CASES/a": (bottleneck(Defect.SPILL),)}))
    rest = [p for p in found if p.cites is None]
    assert rest == found[-len(rest) :] and 0 < len(rest) < len(found)
    assert names(rest) == [n for n in before if n in names(rest)]
    assert all(HYPOTHESIS in p.rationale for p in rest if p.move != "best of the grid")


def test_without_a_profile_the_order_and_the_words_are_those_of_the_catalogue() -> None:
    found = proposed(ProfileEvidence(None))
    assert names(found)[:3] == ["load through tensor descriptors", "persistent grid", "ptxas: fewer registers"]
    assert not any(p.cites or HYPOTHESIS in p.rationale for p in found)


def test_a_seed_orders_what_nothing_tells_apart_and_nothing_else() -> None:
    asked, known = ProfileEvidence({"CASES/a": (bottleneck(Defect.TAIL),)}), {"CASES/a": best(LARGE)}

    def seeded_with(seed: int) -> list[Proposal]:
        return [p for p in catalogue.propose(SOURCE, known, [], H200, asked, seed) if isinstance(p, Proposal)]

    found = [seeded_with(seed) for seed in range(4)]
    assert {frozenset(names(f)) for f in found} == {frozenset(names(found[0]))}
    assert len({tuple(names(f)) for f in found}) > 1 and found[1] == seeded_with(1)
    for seeded in found:
        cited = [p.cites is not None for p in seeded]
        assert cited == sorted(cited, reverse=True)


def test_the_same_evidence_gives_the_same_proposals() -> None:
    asked = ProfileEvidence({"CASES/a": tuple(map(bottleneck, Defect))})
    assert proposed(asked) == proposed(asked)


def test_a_seed_only_puts_source_moves_that_nothing_asks_for_into_another_order() -> None:
    asked = ProfileEvidence({"CASES/a": (bottleneck(Defect.TAIL), bottleneck(Defect.ARITHMETIC))})
    found = [proposed(asked, seed=seed) for seed in (0, 1, 2, 3)]
    assert sorted(map(repr, found[0])) == sorted(map(repr, found[1])) and found[1] == proposed(asked, seed=1)
    assert len({tuple(names(f)) for f in found}) > 1
    for order in found:
        assert [p.cites is None for p in order] == sorted(p.cites is None for p in order)
        assert [p.kind for p in order if p.cites is None] == [p.kind for p in found[0] if p.cites is None]


def test_evidence_of_another_kernel_moves_nothing() -> None:
    other = ProfileEvidence({"CASES/a": (bottleneck(Defect.SPILL, "_other"),)})
    assert names(proposed(other)) == names(proposed(ProfileEvidence(None)))


def test_of_the_cases_that_show_a_bottleneck_the_one_where_it_takes_most_is_cited() -> None:
    less, most = bottleneck(Defect.SPILL, share=0.1), bottleneck(Defect.SPILL, share=0.4)
    assert ProfileEvidence({"CASES/a": (less,), "CASES/b": (most,)}).of("_fa_fwd", (Defect.SPILL,)) == most


def test_a_step_answers_only_what_shows_in_the_cases_that_it_starts_from() -> None:
    known = {"CASES/a": best(LARGE), "CASES/b": best(SMALL)}
    found = proposed(ProfileEvidence({"CASES/b": (bottleneck(Defect.TAIL),)}), known)
    cited = {p.rationale.partition("tries ")[2] for p in found if p.kind == "launch" and p.cites}
    assert cited == {
        "BLOCK_M=32 BLOCK_N=64 num_warps=4 num_stages=3",
        "BLOCK_M=64 BLOCK_N=32 num_warps=4 num_stages=3",
    }


# what moves say that they cure ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("defect", Defect)
def test_a_move_that_is_advised_against_a_defect_cures_it(defect: Defect) -> None:
    advised = [m for m in catalogue.SOURCE_MOVES if f"'{m.name}'" in str(ADVICE[defect])]
    assert [m.name for m in advised if defect not in m.cures] == []


def test_every_source_move_cures_something() -> None:
    assert [m.name for m in catalogue.SOURCE_MOVES if not m.cures] == []


# what a build disproves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 132])
def test_a_persistent_grid_is_not_for_blocks_that_run_at_once_anyway(blocks: int) -> None:
    with pytest.raises(DoesNotApply, match=f"its {blocks} blocks run at once: the device holds 132"):
        persistent_grid.rewrite(RewriteInput(SOURCE, "_fa_fwd", H200, LARGE, build(shared=200_000), blocks))


@pytest.mark.parametrize("blocks", [133, None])
def test_a_persistent_grid_is_for_more_blocks_or_where_nobody_knows(blocks: int | None) -> None:
    assert "tl.num_programs" in persistent_grid.rewrite(
        RewriteInput(SOURCE, "_fa_fwd", H200, LARGE, build(shared=200_000), blocks)
    )


def shallower(known: dict[str, Best]) -> Proposal | Skipped:
    found = launch_config.propose(SOURCE, known, [], H200, ProfileEvidence(None))
    return next(p for p in found if p.move == "num_stages=2")


def test_a_stage_less_is_not_tried_where_shared_memory_limits_nothing() -> None:
    found = shallower({"CASES/a": best(LARGE, shared=10_000)})
    told = "registers let 2 block(s) on an SM, its shared memory 21: less of it makes no room"
    assert found == Skipped("num_stages=2", told)


@pytest.mark.parametrize("shared", [110_000, 200_000])  # two blocks by either, one by shared memory
def test_a_stage_less_is_tried_where_shared_memory_limits_the_blocks(shared: int) -> None:
    assert isinstance(shallower({"CASES/a": best(LARGE, shared=shared)}), Proposal)


def test_a_stage_less_is_tried_where_it_makes_room_in_one_case_of_a_configuration() -> None:
    known = {"CASES/a": best(LARGE, shared=10_000), "CASES/b": best(LARGE, shared=200_000)}
    assert isinstance(shallower(known), Proposal)


# known wins -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_won_on_an_h200_is_among_the_first_two_where_the_kernel_spills() -> None:
    source = (ROOT / "kernels" / "fa_bwd.py").read_text()
    config = {"BLOCK": 64, "STEP": 128, "num_warps": 4, "num_stages": 2}
    static = build() | {"name": "_fa_bwd"}
    known = {"CASES/a": Best(config, static, {"_fa_bwd": static})}
    asked = ProfileEvidence({"CASES/a": (bottleneck(Defect.SPILL, "_fa_bwd"),)})
    every = (p for p in catalogue.propose(source, known, [], H200, asked) if isinstance(p, Proposal))
    assert "ptxas: fewer registers in _fa_bwd" in names(list(islice(every, 2)))
