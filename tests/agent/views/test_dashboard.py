"""The live block: what it says, that it fits whatever the terminal, and that nothing in it is lost without colour."""

import io
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.views.live import dashboard
from pgo_agent.agent.views.live.refresh import Watch
from pgo_agent.agent.views.live.snapshot import Row, Snapshot
from pgo_agent.agent.views.profile import timeline_terminal
from pgo_agent.sandbox.gate.reason import quoted
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.profile.kernel_profile import Missing
from rich.console import Console
from rich.text import Text

from tests.agent import searching, timelines

ROWS = [
    Row("a" * 16, 1, "moves", "load through tensor descriptors", "accepted", "1.033x", "faster"),
    *(Row(f"{n:08x}{n:08x}", 2, "model", f"model rewrite {n}", "slower", "", "no gain") for n in range(30)),
    Row("b" * 16, 3, "user", "edit", "proposed", "[1.020x]", "", counted=False),
]
GLANCE = Snapshot(
    run="fa_fwd-1", target="kernels/fa_fwd.py", device="NVIDIA H200", measured=True, state="running",
    settings=RunSettings(candidates=40, tokens=5000), seconds=90.0,
    spent={"gpu_seconds": 12.5, "tokens": 1410, "money": 0.0}, generation=3, rows=ROWS,
    incumbent="a" * 16, best="aaaaaaaa: 1.033x of as shipped", profile="spills",
    asked=0, timeline="",
)  # fmt: skip
STRIPS = [Text("loop ████▓▓▓···"), Text("█ dots  ▓ arithmetic")]


def drawn(g: Snapshot = GLANCE, width: int = 80, height: int = 12, **more: bool) -> list[str]:
    return [line.plain for line in dashboard.lines(g, STRIPS, width, height, **more)]


@given(st.integers(0, 250), st.integers(0, 60), st.integers(0, 32), st.text(max_size=300), st.booleans())
def test_the_block_never_is_wider_or_higher_than_it_is_told(w: int, h: int, rows: int, said: str, plain: bool) -> None:
    g = replace(GLANCE, rows=[replace(r, move=said) for r in ROWS[:rows]], profile="p" * 300, best="b" * 300)
    found = dashboard.lines(g, STRIPS, w, h, plain)
    assert len(found) <= h and all(line.cell_len <= w for line in found)


def test_the_incumbent_and_the_newest_stay_when_there_is_little_room() -> None:
    text = "\n".join(drawn())
    assert "aaaaaaaa *" in text and "bbbbbbbb" in text and " of 32)" in text and "00000000" not in text


def test_a_ratio_of_another_day_is_told_apart_from_one_that_was_measured() -> None:
    text = "\n".join(drawn(replace(GLANCE, rows=[ROWS[0], ROWS[-1]]), height=16))
    assert "accepted    1.033x" in text and "[1.020x]" in text and "[x]: recorded earlier" in text


def test_budgets_are_told_with_what_is_spent_and_the_persons_own_candidates_count_for_none() -> None:
    told = dashboard.budgets(GLANCE, 30.0)
    assert "2.0 of 20 min" in told and "31 of 40 candidates" in told and "1410 of 5000 tokens" in told
    assert "12.5 s of the GPU" in told


def test_a_terminal_that_knows_no_unicode_gets_none() -> None:
    assert all(line.isascii() for line in drawn(ascii_only=True, width=40, height=20))


def test_the_timeline_is_drawn_or_the_reason_for_none_is_said() -> None:
    assert any(line.startswith("timeline  loop ████") for line in drawn())
    told = [line.plain for line in dashboard.lines(replace(GLANCE, timeline="no GPU is visible here"), [], 80, 12)]
    assert "timeline  none: no GPU is visible here" in told


def test_what_is_too_small_is_told_with_what_is_needed() -> None:
    assert dashboard.room(80, 24) == "" and "60 x 16, and this one is 40 x 12" in dashboard.room(40, 12)


def test_a_run_is_read_off_its_record(store: Store, tmp_path: Path) -> None:
    ctx = searching.begin(store, "second-1")
    won = searching.tried(ctx, Verdict.ACCEPTED, 1.05, why=quoted("faster\x1b[2Jthan before"))
    searching.propose(ctx, searching.another(77))
    watch = Watch(store, "second-1")
    out = io.StringIO()
    for line in watch.lines(120, 20):
        Console(file=out, width=120).print(line)
    text = out.getvalue()
    assert "\x1b" not in text and f"{won.id[:8]} *" in text and "1.050x" in text and "proposed" in text
    assert watch.glance() is not None and "2 of 12 candidates" in text


def test_a_timeline_takes_a_row_for_each_role_and_one_for_what_they_mean() -> None:
    k = timelines.everything(timelines.bare("attention"), timelines.scopes("attention"), range(100, 130))
    assert not isinstance(k.timeline, Missing)
    rows = timeline_terminal.strips(k, k.timeline, 90)
    assert len(rows) == len({s.scope.role for s in k.timeline.scopes}) + 1
    assert all(row.cell_len <= 90 for row in rows) and rows[-1].plain.strip() == timeline_terminal.LEGEND
