"""A run profiles its incumbent, at first and again after a win; what led to each candidate is in its record."""

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pgo_agent.agent.profile.pass_runner import GpuBudget
from pgo_agent.agent.proposal import bottlenecks, prompt
from pgo_agent.agent.run import incumbent, profile_targets
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.agent.search import profile_incumbent
from pgo_agent.agent.views.live import profile_view
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.profile.gpu_passes import NotTaken
from pgo_agent.sandbox.profile.kernel_profile import PassName

from tests.agent.command_line import pgo
from tests.conftest import FA_FWD, TARGETS

pytestmark = pytest.mark.long  # a whole run, and another session of it
SPILLING = (TARGETS / "spilling.py").read_text()
LOOP = next(i for i, line in enumerate(SPILLING.splitlines(), 1) if "tl.store(" in line)  # where most registers live


@dataclass(frozen=True)
class Run:
    folder: Path
    events: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["type"] == kind]

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(pgo("show", "--json", cwd=self.folder).out)
        return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One generation of a kernel that spills."""
    folder = tmp_path_factory.mktemp("spilling")
    (folder / "spilling.py").write_text(SPILLING)
    done = pgo("optimize", "spilling.py", "--candidates", "3", "--width", "3", "--json", cwd=folder)
    assert done.code == 0, done.err
    return Run(folder, done.events)


@pytest.fixture
def ctx(run: Run) -> Iterator[Context]:
    """The run's context, on a copy of its record."""
    store, found = Store(run.folder / ".pgo-agent"), target.read(run.folder / "spilling.py")
    device, kept = devices.find("h200"), store.run("last")
    builder = Builder(found, device, box.choose(), store.contents)
    yield Context(store, kept, found, device, builder, None, None, GpuJudge(found, gpu=None), lambda e: None)
    store.close()


def test_every_source_candidate_cites_the_pass_and_the_figure_that_led_to_it(run: Run) -> None:
    told = {e["move"]: e["cites"] for e in run.of("candidate.proposed") if e["kind"] == "source"}
    assert list(told) == ["load through tensor descriptors", "ptxas: fewer registers"]
    for cites in told.values():
        finding = cites["finding"]
        assert (finding["defect"], finding["found_by"], finding["line"]) == ("spill", "static", LOOP)
        assert f"{finding['figure']:.0f} B of registers spill" in finding["told"] and finding["figure"] > 500


def test_the_figure_that_is_cited_is_that_of_the_build(run: Run) -> None:
    (event,) = run.of("profile.completed")
    (point,) = run.shown()["baseline"]["points"]
    assert (event["candidate"], event["case"], event["passes"]["static"]) == ("shipped", "CASES/2k", "")
    assert event["bottleneck"]["finding"]["figure"] == point["statics"][0]["spill_store_bytes"]


def test_passes_that_were_not_taken_are_recorded_with_their_reason(run: Run) -> None:
    (kept,) = run.shown()["profiles"]
    assert kept["passes"]["timeline"] and kept["passes"]["counters"]


def test_show_says_what_led_to_a_candidate(run: Run) -> None:
    listed = " ".join(pgo("show", cwd=run.folder).out.split())
    first = run.of("candidate.proposed")[0]
    detail = pgo("show", "last", first["candidate"][:8], cwd=run.folder).out
    assert "profile of shipped, 2k, by static" in listed
    for told in ("because: static: ", f"(line {LOOP})"):
        assert told in listed and told in detail
    assert [v["cites"] for v in run.shown()["verdicts"]] == [e["cites"] for e in run.of("candidate.proposed")]


def test_the_prompt_tells_the_summary_of_the_incumbent(ctx: Context) -> None:
    (kept,) = profiles.of(ctx.store, ctx.run.id, "shipped")
    assert kept.summary is not None
    first = next(line for line in kept.summary.text.splitlines() if "spill" in line)
    assert first.strip() in prompt.render(prompt.gather(ctx))


def won(folder: Path, candidate: str) -> None:
    """What a judge on a GPU would have left when it was killed after its verdict: a win that no generation closes."""
    with closing(sqlite3.connect(folder / ".pgo-agent" / "pgo.db")) as db, db:
        verdict = "UPDATE candidates SET verdict = 'accepted', speedup = 1.1, against = 'shipped' WHERE id = ?"
        assert db.execute(verdict, (candidate,)).rowcount == 1
        db.execute("UPDATE generations SET finished = 0")
        db.execute("UPDATE runs SET state = 'interrupted', summary = NULL")


def test_the_incumbent_is_profiled_again_after_a_win(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path, symlinks=True, dirs_exist_ok=True)
    winner = run.of("candidate.proposed")[1]["candidate"]
    won(tmp_path, winner)
    with closing(sqlite3.connect(tmp_path / ".pgo-agent" / "pgo.db")) as db, db:
        db.execute("UPDATE runs SET target = ?", (str(tmp_path / "spilling.py"),))
    again = pgo("resume", "--json", cwd=tmp_path)
    assert again.code == 0, again.err
    done = Run(tmp_path, again.events)
    assert [e["type"] for e in done.events if e["type"] != "phase"] == [
        "run.started",
        "generation.completed",
        "profile.completed",
        "run.completed",
    ]
    assert [(e["candidate"], e["case"]) for e in done.of("profile.completed")] == [(winner, "CASES/2k")]
    assert [p["candidate"] for p in done.shown()["profiles"]] == ["shipped", winner]


class Held:
    """A GPU that tells each thread how long that held it."""

    elsewhere, here = False, True

    def __init__(self) -> None:
        self.mine = threading.local()

    @property
    def seconds(self) -> float:
        return float(getattr(self.mine, "seconds", 0.0))

    def hold(self, seconds: float) -> None:
        self.mine.seconds = seconds


def test_cases_that_are_profiled_side_by_side_share_what_the_gpu_may_be_held() -> None:
    held, at_once = Held(), threading.Barrier(3)
    gpu = GpuBudget(cast(Judge, held), 60.0)

    def take(seconds: float) -> None:
        at_once.wait(10)
        held.hold(seconds)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda s: gpu.timed(PassName.TIMELINE, lambda: take(s)), (20.0, 21.0, 15.0)))
    assert gpu.left == 4.0 and gpu.short_of(PassName.TIMELINE).endswith("and 4.0 s are left")


def test_passes_side_by_side_begin_no_more_than_the_gpu_has_time_for() -> None:
    held = Held()
    gpu = GpuBudget(cast(Judge, held), 32.0)  # for two passes, of which each is expected to take 15 s

    def case(_: int) -> str:
        try:
            gpu.timed(PassName.TIMELINE, lambda: held.hold(held.seconds + 15.0))
        except NotTaken as e:
            return str(e)
        return "taken"

    with ThreadPoolExecutor(4) as threads:
        said = sorted(threads.map(case, range(4)))
    assert said == ["it takes about 15.0 s of the GPU, and 2.0 s are left"] * 2 + ["taken"] * 2
    assert gpu.left == 2.0


def test_an_answer_of_a_judge_elsewhere_that_is_read_again_is_booked_once() -> None:
    class Elsewhere:
        elsewhere, busy, seconds = True, 0.0, 0.0

        def read(self, new: float) -> None:
            self.busy += new
            self.seconds += 3.0

    judge = Elsewhere()
    gpu = GpuBudget(cast(Judge, judge), 60.0)
    gpu.timed(PassName.TIMELINE, lambda: judge.read(3.0))
    gpu.timed(PassName.TIMELINE, lambda: judge.read(0.0))
    assert gpu.left == 57.0


def test_what_cannot_be_profiled_is_recorded_with_its_reason_and_moves_fire_without_it(ctx: Context) -> None:
    (known,) = profile_targets.wanted(ctx, "shipped")
    lost = profile_incumbent.profile_case(ctx, "nobody", replace(known, label="TILE=3"), GpuBudget(None, 0.0), 1)
    assert lost.taken == () and "has no configuration 'TILE=3'" in lost.passes["static"]
    profiles.add(ctx.store, ctx.run.id, lost)
    best = incumbent.best_known(ctx, "shipped")
    assert bottlenecks.asked(ctx, "nobody", best).by_case is None
    ctx.store.db.execute("DELETE FROM profiles WHERE candidate = 'nobody'")


def test_an_autotuned_kernel_that_the_winner_no_longer_launches_stays_in_its_text_as_it_is() -> None:
    kept = FA_FWD.read_text() + "\n\ndef kernel(q, k, v):\n    return gluon_in_its_place(q, k, v)\n"
    assert list(profile_targets.texts(kept, {"CASES/a": {}, "CASES/b": {}})) == [kept]


def test_a_parent_that_is_not_profiled_has_what_its_build_tells(ctx: Context) -> None:
    first = ctx.store.candidates(ctx.run.id)[0]
    asked = bottlenecks.asked(ctx, first.id, incumbent.best_known(ctx, first.id))
    statics = first.build.statics.values()
    spilled = {float(s["spill_store_bytes"]) for s in statics if s["spill_store_bytes"]}
    told = {b.finding.figure for found in (asked.by_case or {}).values() for b in found if b.finding.defect == "spill"}
    assert told == spilled


def changed(ctx: Context, **changes: Any) -> Context:
    """With other settings, of which its record, that other tests read, hears nothing."""
    return replace(ctx, run=replace(ctx.run, settings=ctx.settings.changed(changes)))


@pytest.mark.parametrize(("candidates", "why"), [(3, profile_targets.ENOUGH), (4, "no GPU is visible here")])
def test_counters_are_read_only_where_another_candidate_may_follow(ctx: Context, candidates: int, why: str) -> None:
    ctx = changed(ctx, candidates=candidates)  # of which there are three
    (known,) = profile_targets.wanted(ctx, "shipped")
    found = profile_incumbent.profile_case(ctx, "shipped", known, GpuBudget(None, 0.0), 1)
    assert (found.passes["timeline"], found.passes["counters"]) == ("no GPU is visible here", why)


def test_the_whole_profile_is_kept_and_read_back_as_it_was_taken(ctx: Context) -> None:
    (stored,), (known,) = profiles.of(ctx.store, ctx.run.id, "shipped"), profile_targets.wanted(ctx, "shipped")
    taken = profile_targets.take(ctx, known, GpuBudget(None, 0.0), 1, lambda *_: None)
    digest = profiles.put(ctx.store.contents, taken)
    assert profiles.whole(ctx.store.contents, replace(stored, profile=digest)) == taken
    first = profiles.whole(ctx.store.contents, stored)
    assert first is not None and (first.code, first.findings) == (taken.code, taken.findings) and first.code


def test_a_profile_that_is_damaged_before_it_is_summarized_is_taken_again(ctx: Context) -> None:
    (stored,) = profiles.of(ctx.store, ctx.run.id, "shipped")
    path = ctx.store.contents.artefacts / f"{stored.profile}.{profiles.SUFFIX}"
    original = path.read_bytes()
    path.write_bytes(original[:-1])
    assert profile_incumbent.due(ctx) is None  # its summary is there
    assert prompt.render(prompt.gather(ctx))  # without costs beside the code
    profiles.update(ctx.store, ctx.run.id, replace(stored, summary=None))
    assert profile_incumbent.due(ctx) == "profile"
    profile_incumbent.profile(ctx)
    profile_incumbent.summarize(ctx)
    (again,) = profiles.of(ctx.store, ctx.run.id, "shipped")
    assert again.summary == stored.summary and profiles.there(ctx.store.contents, again)
    path.write_bytes(original)
    profiles.update(ctx.store, ctx.run.id, stored)


def test_an_older_record_without_a_whole_profile_is_told_as_not_kept(ctx: Context) -> None:
    (stored,) = profiles.of(ctx.store, ctx.run.id, "shipped")
    profiles.update(ctx.store, ctx.run.id, replace(stored, profile=None))
    with pytest.raises(UsageFault, match="another version of pgo-agent wrote it"):
        profile_view.profiles(ctx.store, ctx.run.id)
    assert profile_view.strips(ctx.store, ctx.run.id, 80) == [] and prompt.render(prompt.gather(ctx))
    profiles.update(ctx.store, ctx.run.id, stored)


@pytest.mark.parametrize("told", ["none", "counters"])
def test_who_is_told_no_profile_or_counters_alone_hears_of_no_spills(ctx: Context, told: str) -> None:
    ctx.change({"profile_visibility": ProfileVisibility(told)})
    (kept,) = profiles.of(ctx.store, ctx.run.id, "shipped")
    ctx.store.db.execute("DELETE FROM profiles")
    profile_incumbent.profile(ctx)
    profile_incumbent.summarize(ctx)
    assert kept.summary is not None and kept.summary.bottlenecks
    assert [k.summary.bottlenecks for k in profiles.of(ctx.store, ctx.run.id) if k.summary] == (
        [] if told == "none" else [()]
    )
    best = incumbent.best_known(ctx, "shipped")
    assert not bottlenecks.asked(ctx, "shipped", best).order
    assert not bottlenecks.asked(ctx, ctx.store.candidates(ctx.run.id)[0].id, best).order
    profiles.add(ctx.store, ctx.run.id, kept)
    profiles.update(ctx.store, ctx.run.id, kept)


def test_a_summary_of_another_version_is_made_anew(ctx: Context) -> None:
    (kept,) = profiles.of(ctx.store, ctx.run.id, "shipped")
    ctx.store.db.execute("UPDATE profiles SET summary = '{\"case\": 1}'")
    assert profile_incumbent.due(ctx) == "summarize"
    profile_incumbent.summarize(ctx)
    assert profiles.of(ctx.store, ctx.run.id, "shipped") == [kept]
