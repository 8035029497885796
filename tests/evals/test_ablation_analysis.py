"""What is said of an ablation with models: intervals over kernels and seeds, each arm after each generation, and what
it took. All numbers are made up.
"""

import json
import math
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals import tables
from pgo_agent.evals.ablation import beside, by_generation, estimate
from pgo_agent.evals.ablation import plan as plans
from pgo_agent.evals.ablation.compare import Difference, differences
from pgo_agent.evals.ablation.outcome import Generation
from pgo_agent.evals.ablation.plan import LENDER, AblationPlan, AblationRun, Arm, Insight
from pgo_agent.evals.ablation.run import Results, opened
from pgo_agent.evals.nightly import load
from pgo_agent.evals.runner.folders import RESULTS
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo
from tests.conftest import ROOT
from tests.evals.rows import H200


def plan(**changes: Any) -> AblationPlan:
    limits = RunSettings(candidates=4, patience=4, minutes=10.0, generations=2)
    values = {"metric": "best", "targets": ("a", "b", "c"), "insights": tuple(Insight), "models": ("relay:x",)}
    return AblationPlan(**(values | {"seeds": (1, 2, 3), "limits": limits} | changes))


def scored(of: AblationPlan, gain: Callable[[str, int], float]) -> dict[AblationRun, float]:
    """Scores in which all profiles told gain this over none, by target and seed; other arms gain nothing."""
    cells = [w for w in of.runs if w.arm != LENDER]
    return {w: gain(w.target, w.seed) if w.arm.insight is Insight.ALL else 0.0 for w in cells}


def all_against_none(of: AblationPlan, scores: dict[AblationRun, float]) -> Difference:
    return next(d for d in differences(of, scores) if (d.base.insight, d.arm.insight) == ("none", "all"))


def test_kernels_that_differ_widen_the_interval_though_seeds_agree() -> None:
    found = all_against_none(plan(), scored(plan(), lambda target, _: {"a": 0.0, "b": 0.0, "c": 0.3}[target]))
    assert found.mid == pytest.approx(0.1) and found.pairs == 9
    assert found.low == 0.0 and found.high > 0.19  # a third of 27 draws of three kernels hold no `c`


def test_seeds_that_differ_widen_the_interval_though_kernels_agree() -> None:
    found = all_against_none(plan(), scored(plan(), lambda _, seed: {1: 0.0, 2: 0.0, 3: 0.3}[seed]))
    assert found.mid == pytest.approx(0.1) and 0.0 <= found.low < 0.05 < 0.15 < found.high < 0.3


def test_the_interval_is_that_of_all_draws_of_kernels() -> None:
    gains = {"a": 0.0, "b": 0.1, "c": 0.4, "d": 0.41}
    four = plan(targets=tuple(gains))
    found = all_against_none(four, scored(four, lambda target, _: gains[target]))
    draws = np.mean(list(product(gains.values(), repeat=4)), axis=1)
    assert (found.low, found.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.005)


def test_every_pair_of_arms_is_compared_and_all_of_them_with_their_kernels() -> None:
    assert len(differences(plan(), scored(plan(), lambda *_: 0.1))) == 10


def rows_of(folder: Path, best: Mapping[str, tuple[float, float]], commit: str = "c") -> Results:
    """Rows of a plan of two kernels and one seed, in which each arm comes to this after its generations."""
    of = plan(targets=("a", "b"), seeds=(1,), insights=(Insight.NONE, Insight.ALL))
    results = Results(folder / "out.jsonl", of)
    for w in of.runs:
        more: dict[str, Any] = {"missing": {}}
        if w.arm != LENDER:
            reached = [Generation(b, 10.0 * n, 100 * n, 1, ()) for n, b in enumerate(best[w.arm.insight], 1)]
            near = next(({"gpu_seconds": g.gpu_seconds, "tokens": g.tokens} for g in reached if g.best >= 1.05), None)
            more = {"score": math.log(reached[-1].best), "generations": [g.as_json() for g in reached], "to_near": near}
            more |= {"to_best": near, "first_try": {"tries": 4, "valid": 3}, "left_out": [], "missing": {}}
        results.add(
            "run",
            run=f"{w.target}-{w.arm.insight}",
            **w.named,
            truncated=False,
            commit=commit,
            environment=H200.as_json(),
            **more,
        )
    return results


def test_the_report_has_each_arm_after_each_generation_and_what_it_took(tmp_path: Path) -> None:
    results = rows_of(tmp_path, {"none": (1.0, 1.0), "all": (1.02, 1.1)})
    none, every = by_generation.arms(results)
    assert (none.after, every.after) == (pytest.approx((1.0, 1.0)), pytest.approx((1.02, 1.1)))
    assert (none.near, none.near_tokens, every.near, every.near_gpu_seconds, every.near_tokens) == (
        0,
        None,
        2,
        20.0,
        200,
    )
    assert every.valid == 0.75
    told = by_generation.markdown(results)
    assert "| all | 2 | 1.0200x | 1.1000x | 75% | 20 | 200 | 2 | 20 | 200 | 20 | 200 |" in told
    assert "- after generation 2: all against none: 1.1000x [1.1000x, 1.1000x] (2 pairs; a 1.1000x, b 1.1000x)" in told


def test_the_page_has_the_table_and_the_file_of_its_rows(tmp_path: Path) -> None:
    rows_of(tmp_path, {"none": (1.0, 1.0), "all": (1.02, 1.1)})
    told = tables.of_an_ablation(tmp_path / "out.jsonl")
    assert "| all | 2 | 1.0200x | 1.1000x |" in told
    assert "`evals/results/out.jsonl`. NVIDIA H200, driver 1, torch 2, triton 3, commit c." in told
    assert load.file(tmp_path / "out.jsonl", "out.jsonl").notes[0].endswith("`pgo-agent eval ablation` compares")


def test_an_arm_whose_pass_a_profile_lacks_is_refused(tmp_path: Path) -> None:
    of = plan(targets=("a", "b"), seeds=(1,))
    results = Results(tmp_path / "out.jsonl", of)
    for target in of.targets:
        lacking = {"CASES/1": {"counters": "the GPU is elsewhere"}}
        results.add("run", run=f"{target}-0", **of.lender(target).named, truncated=False, missing=lacking)
    settings = RunSettings()
    assert results.settings_of(AblationRun("a", 1, Arm("relay:x", Insight.ALL)), settings).baseline_of == "a-0"
    with pytest.raises(UsageFault, match="a: CASES/1 has no counters: the GPU is elsewhere"):
        results.settings_of(AblationRun("a", 1, Arm("relay:x", Insight.COUNTERS)), settings)


# the plan that ships --------------------------------------------------------------------------------------------------

SHIPS = plans.read(ROOT / "evals" / "ablation-model.toml")


def test_the_head_of_results_is_the_plan_that_they_are_of() -> None:
    head = json.loads(json.dumps(SHIPS.values))
    assert plans.of_values(head, "a file").digest == SHIPS.digest


def test_kernels_of_others_are_chosen_by_the_rule_that_the_plan_says() -> None:
    field = RESULTS.parent / "field" / "results"
    runs = {r.kernel: r for r in load.files([field / "h100.jsonl"]).rows}
    made = {t["kernel"]: t for t in map(json.loads, (field / "targets.jsonl").read_text().splitlines())}
    others = [Path(t).stem for t in SHIPS.targets if "/" in t]
    assert len(others) == 3 and all(made[k]["by_hand"] == 0 and not runs[k].failed for k in others)
    assert all((runs[k].gpu_seconds or math.inf) <= 100 for k in others)


def test_the_cost_of_a_kernel_without_a_record_is_the_middle_of_the_others() -> None:
    known, other, unknown = estimate.of(plan(targets=("fa_fwd", "gemm", "nobody.py")))
    assert known.runs and other.runs and not unknown.runs
    assert unknown.candidate == pytest.approx((known.candidate + other.candidate) / 2)
    assert (known.cells, known.candidates) == (15, 4)
    assert known.all == pytest.approx(known.lender + 15 * 4 * known.candidate)


def test_a_dry_run_tells_the_cost_and_begins_nothing(tmp_path: Path) -> None:
    asked = ("eval", "ablation", str(ROOT / "evals" / "ablation-model.toml"), "-o", "rows.jsonl", "--estimate")
    done = pgo(*asked, cwd=tmp_path, COLUMNS="160")
    assert done.code == 0 and "s of a GPU at most" in done.out and "an estimate" in done.out
    assert list(tmp_path.iterdir()) == []


# beside earlier rows --------------------------------------------------------------------------------------------------


def test_an_arm_is_compared_with_itself_in_earlier_rows_by_kernel_and_seed(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    earlier = rows_of(before, {"none": (1.0, 1.0), "all": (1.0, 1.1)}, commit="1" * 40)
    later = rows_of(after, {"none": (1.0, 1.0), "all": (1.0, 1.21)}, commit="2" * 40)
    none, every = beside.differences(later, opened(earlier.file))
    assert str(none).endswith(
        "none of 22222222 against none of 11111111: 1.0000x [1.0000x, 1.0000x] (2 pairs; a 1.0000x, b 1.0000x)"
    )
    assert (every.difference.low, every.difference.mid, every.difference.high) == (pytest.approx(math.log(1.1)),) * 3


def test_rows_of_the_same_kernels_are_told_beside_the_earlier_ones_whose_name_they_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    for name, best in (("ablation-model-x", 1.1), ("ablation-model-x-again", 1.21)):
        rows_of(tmp_path, {"none": (1.0, 1.0), "all": (1.0, best)}).file.rename(tmp_path / f"{name}.jsonl")
    first, again = tables.ablations().split("`evals/results/ablation-model-x.jsonl`")
    assert "beside earlier runs" not in first and "all of c against all of c: 1.1000x" in again


def test_a_file_that_holds_no_rows_is_refused_and_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    asked = ("eval", "ablation", str(ROOT / "evals" / "ablation-model.toml"), "-o", "new.jsonl")
    done = pgo(*asked, "--beside", "rows.jsonl", cwd=tmp_path)
    assert done.code == 2 and "rows.jsonl holds no rows of an ablation" in done.err, done.err
    assert "-o FILE` wrote" in done.err and not (tmp_path / "new.jsonl").exists()
