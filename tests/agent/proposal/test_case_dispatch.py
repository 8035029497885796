"""A rewrite is kept where it pays: cases are told apart by what a launcher is given; both kernels stand in one file."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.merge_kernels import both
from pgo_agent.agent.moves.launch_sites import sites
from pgo_agent.agent.proposal import case_dispatch, parents
from pgo_agent.agent.proposal.predicates import condition
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.isolation import box

from tests.agent.baselines import baseline, point
from tests.agent.composing import checked
from tests.agent.proposed import proposed
from tests.shared_builds import lend

COVERED = coverage.of(cases=1)

ADD = Path(__file__).parents[2] / "kernels" / "add.py"


def tensor(*size: int, dtype: str = "float16", stride: tuple[int, ...] | None = None) -> dict[str, Any]:
    rows = stride or (*size[1:], 1)
    return {"dtype": dtype, "size": list(size), "stride": list(rows), "offset": 0, "t": 0}


# conditions -----------------------------------------------------------------------------------------------------------

LARGE = {"a": tensor(4096, 4096), "causal": False}


def test_sizes_far_apart_are_told_by_one_between_them() -> None:
    assert condition([LARGE], [{"a": tensor(64, 4096), "causal": False}]) == "a.shape[0] >= 512"


def test_a_flag_is_told_by_itself() -> None:
    assert condition([LARGE], [LARGE | {"causal": True}]) == "not causal"


def test_rows_that_are_not_aligned_are_rather_the_reason_than_a_size_nearby() -> None:
    """4096 against 4000 says little; that rows begin at odd addresses does."""
    ragged = {"a": tensor(4000, 4097), "causal": False}
    assert condition([LARGE], [ragged, {"a": tensor(64, 4096), "causal": False}]) == (
        "a.shape[0] >= 512 and a.stride(0) % 8 == 0"
    )


def test_what_is_the_same_to_the_launcher_is_not_told_apart() -> None:
    assert condition([LARGE], [dict(LARGE)]) is None


def test_a_win_between_two_losses_takes_both_bounds() -> None:
    sizes = [{"n": n} for n in (64, 1024, 16384)]
    assert condition([sizes[1]], [sizes[0], sizes[2]]) == "n >= 256 and n <= 4096"


class _Tensor(SimpleNamespace):
    def stride(self, i: int) -> int:
        return int(self.strides[i])


def _as_given(x: Any) -> Any:
    return _Tensor(shape=x["size"], strides=x["stride"], dtype=f"torch.{x['dtype']}") if isinstance(x, dict) else x


_SIZES = st.integers(1, 9000)
_INPUTS = st.fixed_dictionaries(
    {
        "x": st.builds(tensor, _SIZES, _SIZES, dtype=st.sampled_from(["float16", "float32"])),
        "n": _SIZES,
        "f": st.booleans(),
    }
)


@given(st.lists(_INPUTS, min_size=1, max_size=4), st.lists(_INPUTS, min_size=1, max_size=4))
def test_a_condition_holds_for_every_win_and_for_no_loss(wins: list[Any], losses: list[Any]) -> None:
    found = condition(wins, losses)
    if found is not None:
        code = re.sub(r"torch\.\w+", lambda m: repr(m[0]), found)
        holds = [eval(code, {k: _as_given(v) for k, v in x.items()}) for x in (*wins, *losses)]
        assert holds == [True] * len(wins) + [False] * len(losses)


# two kernels in one file ----------------------------------------------------------------------------------------------


def faster(source: str) -> str:
    """The addition with another kernel: it adds twice and takes one off again."""
    return source.replace(
        "tl.load(y_ptr + at, mask=inside), mask",
        "2 * tl.load(y_ptr + at, mask=inside) - tl.load(y_ptr + at, mask=inside), mask",
    )


def test_both_kernels_are_right_and_each_is_launched_where_it_should_be(tmp_path: Path) -> None:
    source = ADD.read_text()
    merged = both(source, faster(source), "x.shape[0] >= 1500")
    assert [s.kernel for s in sites(merged)] == ["_add", "_add_rewritten"]
    assert checked(ADD, merged).verdict == Verdict.CHECKED
    builder = Builder(target.read(ADD), devices.find("h200"), box.choose(), ContentStore(lend(tmp_path / "shelf")))
    built = builder.build(merged, {"SMALL": None}, 1)
    launched = {
        c: {built.statics[k]["name"] for o in options for k in o.kernels} for c, options in built.choices.items()
    }
    assert launched == {"SMALL/even": {"_add_rewritten"}, "SMALL/ragged": {"_add"}}


def test_a_merged_file_takes_a_third_kernel_under_a_name_of_its_own() -> None:
    source = ADD.read_text()
    merged = both(source, faster(source), "x.shape[0] >= 1500")
    again = both(
        merged, faster(merged.replace("BLOCK: tl.constexpr):\n", "BLOCK: tl.constexpr):\n    pass\n")), "x.shape[0] < 9"
    )
    assert {s.kernel for s in sites(again)} >= {"_add", "_add_rewritten", "_add_rewritten2"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("def kernel(x, y):", "def kernel(x, *rest):\n    (y,) = rest", "takes arguments without names"),
        (
            "    z = torch.empty_like(x)",
            "    _add = torch.empty_like(x)\n    z = _add",
            "_add is a variable of kernel, too",
        ),
    ],
)
def test_a_launcher_that_cannot_be_doubled_is_left_alone(old: str, new: str, reason: str) -> None:
    source = ADD.read_text().replace(old, new)
    with pytest.raises(DoesNotApply, match=reason):
        both(source, faster(source), "x.shape[0] >= 1500")


# proposals ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(tmp_path: Path) -> Context:
    """A run as a GPU would leave it: both baselines built, one rewrite measured in each case."""
    store, subject = Store(lend(tmp_path / "w")), target.read(ADD)
    device = devices.find("h200")
    store.add_run("add-1", ADD, subject.digest, subject.source, device.key, RunSettings(), RunFacts())
    builder = Builder(subject, device, box.choose(), store.contents)
    built = builder.build(subject.source, {"CASES": None}, 1)
    store.set_baseline("add-1", baseline(built, [point(built, c, finalist=True) for c in built.choices]))
    run: Any = store.run("add-1")
    nobody: Any = None
    return Context(store, run, subject, device, builder, nobody, None, nobody, lambda event: None)


def judge(ctx: Context, ratios: dict[str, float], verdict: Verdict = Verdict.SLOWER) -> None:
    """Records a rewrite that ran so many times as fast as the kernel as shipped."""
    ctx.store.add_generation("add-1", 1, "shipped", [proposed(faster(ctx.target.source), "c1")])
    quick = {c: {"incumbent": [r] * 6, "candidate": [1.0] * 6} for c, r in ratios.items()}
    evidence = {"quick": quick, "incumbent": "shipped"}
    if verdict == Verdict.ACCEPTED:
        bundle = ctx.builder.build(faster(ctx.target.source), {"CASES": None}, 1)
        ctx.store.set_built("add-1", "c1", bundle)
        evidence["choices"] = {c: o[0].label for c, o in bundle.choices.items()}
    ctx.store.set_verdict("add-1", "c1", Judgement(verdict, "quick", plain("r"), evidence, COVERED), 0.97, 1.0)


def test_a_rewrite_that_wins_one_case_and_loses_another_is_proposed_for_the_one(measured: Context) -> None:
    judge(measured, {"CASES/1m": 0.9, "CASES/16m": 1.2})
    (proposal,) = case_dispatch.proposals(measured)
    assert (proposal.move, proposal.parent) == ("dispatch: m", "c1")
    assert "if x.shape[0] >= 4194304:" in proposal.source
    assert "wins some cases and loses others (16m 1.200x, 1m 0.900x)" in proposal.rationale


@pytest.mark.parametrize("ratios", [{"CASES/1m": 1.1, "CASES/16m": 1.2}, {"CASES/1m": 0.9, "CASES/16m": 1.01}])
def test_a_rewrite_that_wins_everywhere_or_nowhere_needs_no_choice(measured: Context, ratios: dict[str, float]) -> None:
    judge(measured, ratios)
    assert list(case_dispatch.proposals(measured)) == []


def test_what_won_as_a_whole_is_proposed_without_the_cases_that_it_lost(measured: Context) -> None:
    judge(measured, {"CASES/1m": 0.98, "CASES/16m": 1.2}, Verdict.ACCEPTED)
    (proposal,) = case_dispatch.proposals(measured)
    assert (incumbent.name(measured), proposal.parent) == ("c1", "c1")
    assert {s.kernel for s in sites(proposal.source)} == {"_add", "_add_rewritten"}


def timed(ctx: Context, name: str, against: str, ratios: dict[str, dict[str, float]]) -> None:
    """Records that a rewrite was accepted: case -> side -> how many times as fast it ran."""
    generation = len(ctx.store.candidates("add-1")) + 1
    text = faster(ctx.target.source).replace("2 * tl.load", f"{generation + 1}.0 * tl.load")
    ctx.store.add_generation("add-1", generation, against, [proposed(text, name, move=name, parent=against)])
    bundle = ctx.builder.build(text, {"CASES": None}, 1)
    ctx.store.set_built("add-1", name, bundle)
    times = {c: {side: [r] * 6 for side, r in sides.items()} | {"candidate": [1.0] * 6} for c, sides in ratios.items()}
    choices = {c: o[0].label for c, o in bundle.choices.items()}
    judged = Judgement(
        Verdict.ACCEPTED, "confirm", plain("r"), {"time": times, "incumbent": against, "choices": choices}, COVERED
    )
    ctx.store.set_verdict("add-1", name, judged, 1.1, 1.0)


def test_an_incumbent_that_loses_a_case_to_the_tuned_kernel_alone_is_put_beside_it(measured: Context) -> None:
    first = {"CASES/1m": {"incumbent": 1.0, "tuned": 0.95}, "CASES/16m": {"incumbent": 1.2, "tuned": 1.1}}
    timed(measured, "c1", "shipped", first)
    both_win = {"CASES/1m": {"incumbent": 1.03, "tuned": 0.98}, "CASES/16m": {"incumbent": 1.1, "tuned": 1.2}}
    timed(measured, "c2", "c1", both_win)
    (proposal,) = case_dispatch.proposals(measured)
    assert (incumbent.name(measured), proposal.parent, proposal.move) == ("c2", "c2", "dispatch: c2")
    assert "(16m 1.200x, 1m 0.980x)" in proposal.rationale
    assert "3.0 * tl.load" in proposal.source and "2.0 * tl.load" not in proposal.source
    assert {s.kernel for s in sites(proposal.source)} == {"_add", "_add_rewritten"}


def passed_over(ctx: Context, against: str, ratios: dict[str, float]) -> None:
    """Records a rewrite that was measured against the same as another one, and gained less as a whole."""
    text = faster(ctx.target.source).replace("2 * tl.load", "9.0 * tl.load")
    ctx.store.add_generation("add-1", 9, against, [proposed(text, "beside", move="beside", parent=against)])
    times = {c: {"incumbent": [r] * 6, "candidate": [1.0] * 6} for c, r in ratios.items()}
    judged = Judgement(Verdict.UNDECIDED, "confirm", plain("r"), {"time": times, "incumbent": against})
    ctx.store.set_verdict("add-1", "beside", judged, 1.05, 1.0)


@pytest.mark.parametrize("kind", ["source", "launch"])
def test_an_incumbent_that_loses_a_case_to_what_was_measured_beside_it_is_put_beside_that(
    measured: Context, kind: str
) -> None:
    timed(measured, "c1", "shipped", {"CASES/1m": {"incumbent": 1.3}, "CASES/16m": {"incumbent": 1.1}})
    measured.store.db.execute("UPDATE candidates SET kind = ? WHERE id = 'c1'", (kind,))
    passed_over(measured, "shipped", {"CASES/1m": 1.0, "CASES/16m": 1.21})
    (proposal,) = case_dispatch.proposals(measured)
    assert (proposal.parent, proposal.move) == ("beside", "dispatch: beside")
    assert "(16m 1.100x, 1m 0.769x)" in proposal.rationale
    assert "2.0 * tl.load" in proposal.source and "9.0 * tl.load" in proposal.source


def test_what_gained_less_in_every_case_is_not_put_beside_the_incumbent(measured: Context) -> None:
    timed(measured, "c1", "shipped", {"CASES/1m": {"incumbent": 1.3}, "CASES/16m": {"incumbent": 1.1}})
    passed_over(measured, "shipped", {"CASES/1m": 1.2, "CASES/16m": 1.08})
    assert list(case_dispatch.proposals(measured)) == []


def test_what_was_measured_against_another_incumbent_says_nothing_of_this_one(measured: Context) -> None:
    timed(measured, "c1", "shipped", {"CASES/1m": {"incumbent": 1.3}, "CASES/16m": {"incumbent": 1.1}})
    timed(measured, "c2", "c1", {"CASES/1m": {"incumbent": 1.1}, "CASES/16m": {"incumbent": 1.1}})
    passed_over(measured, "shipped", {"CASES/1m": 1.0, "CASES/16m": 1.21})
    assert list(case_dispatch.proposals(measured)) == []


def test_what_beats_the_kernel_as_shipped_everywhere_is_measured_by_what_stands_beside_it(measured: Context) -> None:
    """The file with both has the tuned kernel in it: a case that is lost to that one alone is worth a choice."""
    ratios = {"CASES/1m": {"incumbent": 1.01, "tuned": 0.97}, "CASES/16m": {"incumbent": 1.2, "tuned": 1.1}}
    timed(measured, "c1", "shipped", ratios)
    (proposal,) = case_dispatch.proposals(measured)
    assert "(16m 1.100x, 1m 0.970x)" in proposal.rationale


def test_a_file_that_holds_a_models_kernel_beside_our_own_is_the_models(measured: Context) -> None:
    """The rewrite is ours, what it was measured against is not: the file with both is built as foreign code."""
    judge(measured, {"CASES/1m": 1.1, "CASES/16m": 1.2}, Verdict.ACCEPTED)
    measured.store.db.execute("UPDATE candidates SET author = 'tiny' WHERE id = 'c1'")
    source = faster(measured.target.source).replace("2 * tl.load", "2.0 * tl.load")
    measured.store.add_generation("add-1", 2, "c1", [proposed(source, "c2")])
    quick = {c: {"incumbent": [r] * 6, "candidate": [1.0] * 6} for c, r in {"CASES/1m": 0.9, "CASES/16m": 1.2}.items()}
    judged = Judgement(Verdict.SLOWER, "quick", plain("r"), {"quick": quick, "incumbent": "c1"})
    measured.store.set_verdict("add-1", "c2", judged, 0.97, 1.0)
    first = next(parents.proposals(measured))
    assert (first.move, first.author, first.parent) == ("dispatch: m", "embedded, onto tiny", "c2")


def test_what_was_found_wrong_is_kept_nowhere(measured: Context) -> None:
    judge(measured, {"CASES/1m": 0.9, "CASES/16m": 1.2}, Verdict.WRONG)
    assert list(case_dispatch.proposals(measured)) == []


def test_what_was_proposed_before_makes_room_for_others(measured: Context) -> None:
    judge(measured, {"CASES/1m": 0.9, "CASES/16m": 1.2})
    (proposal,) = case_dispatch.proposals(measured)
    measured.store.add_generation("add-1", 2, "shipped", [replace(proposal, id="c2")])
    assert list(case_dispatch.proposals(measured)) == []


def test_the_incumbent_is_what_nothing_accepted_was_measured_against_whatever_the_order_of_proposal(
    measured: Context,
) -> None:
    names = ("second", "first")
    measured.store.add_generation("add-1", 1, "shipped", [proposed(n, n) for n in names])
    for n, against, speedup in (("first", "shipped", 1.3), ("second", "first", 1.01)):
        judged = Judgement(Verdict.ACCEPTED, "confirm", plain("r"), {"incumbent": against}, COVERED)
        measured.store.set_verdict("add-1", n, judged, speedup, 1.0)
    assert incumbent.name(measured) == "second"
