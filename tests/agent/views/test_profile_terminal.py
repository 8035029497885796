"""What is drawn of a profile in the terminal: all of it is there, nothing is cut, nothing is said by colour alone."""

import io
import re
from dataclasses import replace

import pytest
from pgo_agent.agent.profile.case_profile import CaseProfile, Profile
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.views.profile import format, terminal, timeline_terminal
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.types import Timeline
from rich.cells import cell_len
from rich.console import Console

from tests.agent import timelines

SOURCE = "\n".join(
    f"line_{n} = tl.load(pointers_that_are_long + offsets, mask=inside, other=0.0)" for n in range(1, 300)
)
WIDTHS = (80, 120)
KERNELS = ("attention", "cp_async")


def profiled(kernel: KernelProfile, roof: bool = True) -> Profile:
    why = Missing("roofline", "no GPU is visible here")
    case = CaseProfile(
        "CASES/one", "BLOCK=64", "as asked", (kernel,), {}, {}, timelines.roofline() if roof else why, {}
    )
    return Profile("barriers", "h200", "b" * 64, (case,), ())


def full(name: str) -> KernelProfile:
    return timelines.everything(timelines.bare(name), timelines.scopes(name), range(100, 130))


def drawn(found: Profile, width: int = 100, summary: Summary | None = None, colour: bool = False) -> str:
    out = Console(width=width, file=io.StringIO(), force_terminal=colour, color_system="truecolor" if colour else None)
    terminal.show(found, SOURCE, out, summaries={"CASES/one": summary} if summary else None)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", KERNELS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(cell_len(line) for line in drawn(profiled(full(name)), width).splitlines()) <= width


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", KERNELS)
def test_every_figure_of_every_scope_is_there_in_full(name: str, width: int) -> None:
    k = full(name)
    assert isinstance(k.timeline, Timeline)
    told = drawn(profiled(k), width)
    table = [line.split() for line in told.splitlines()]
    for t in k.timeline.scopes:
        figures = [x for figure in format.figures(t) for x in figure.split()]
        assert any(_holds(line, figures) for line in table), (t.scope.name, figures)


def _holds(line: list[str], figures: list[str]) -> bool:
    return any(line[i : i + len(figures)] == figures for i in range(len(line)))


@pytest.mark.parametrize("name", KERNELS)
def test_without_colours_the_same_is_said(name: str) -> None:
    coloured = drawn(profiled(full(name)), colour=True)
    assert re.search(r"\x1b\[[\d;]*m", coloured)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == drawn(profiled(full(name)))


def test_a_bar_is_as_wide_as_what_it_took_beside_its_loop_and_its_tail_is_lighter() -> None:
    k = full("cp_async")
    assert isinstance(k.timeline, Timeline)
    told = drawn(profiled(k), 120).splitlines()
    loop = next(t for t in k.timeline.scopes if t.scope.kind is Kind.LOOP)
    scale = next(row.count("─") for row in told if " loop x64 " in row) / loop.cycles.p50
    assert scale * loop.cycles.p50 > 60
    for t in k.timeline.scopes:
        if t.scope.kind in timelines.MADE_UP:
            row = next(r for r in told if f" {format.percent(t.share)} " in r and "█" in r)
            assert abs(row.count("█") - max(1, t.count * t.cycles.p50 * scale)) <= 1.5
            assert "░" not in row or row.index("░") == row.rindex("█") + 1


def test_a_table_that_is_too_wide_loses_what_the_lanes_say_too_and_no_figure() -> None:
    k = full("attention")
    assert isinstance(k.timeline, Timeline)
    one = k.timeline.passes[0]
    grown = tuple(replace(t, count=t.count * 1e5, variation=t.variation * 1e3) for t in k.timeline.scopes)
    k = replace(k, timeline=replace(k.timeline, passes=(replace(one, timed=replace(one.timed, scopes=grown)),)))
    told = drawn(profiled(k), 80)
    assert max(map(len, told.splitlines())) <= 80
    lines = [line.split() for line in told.splitlines()]
    for t in grown:
        p20, p50, p80, count, *_, varies = format.figures(t)
        assert any(_holds(line, [p20, p50, p80, count, varies]) for line in lines)


def test_without_a_gpu_each_reason_is_one_line_that_names_all_that_is_missing() -> None:
    told = drawn(profiled(timelines.bare("cp_async"), roof=False))
    assert told.count("no GPU is visible here") == 2  # of the case, and of the kernel
    assert "  no timeline, counters, critical path or ipc: no GPU is visible here\n" in told
    assert "nothing was run or timed" in told


def test_what_is_missing_for_another_reason_has_a_line_of_its_own_beside_what_is_there() -> None:
    k = replace(full("cp_async"), counters=Missing("counters", "ncu may not read them"))
    told = drawn(profiled(k))
    assert "  no counters: ncu may not read them\n" in told
    assert "waves" in told and "of its peak" not in told and "nothing was run" not in told


def test_how_much_the_records_disturbed_is_said() -> None:
    told = drawn(profiled(full("cp_async")))
    assert "made the kernel 1.2 % to 5.2 % slower, in 3 instrumented builds" in told
    assert "6 entries without a partner" in told
    assert "no shared memory is left for the records of 2 scopes" in told


def test_records_that_change_results_are_no_footnote() -> None:
    k = full("cp_async")
    assert isinstance(k.timeline, Timeline)
    one, *others = k.timeline.passes
    odd = replace(k.timeline, passes=(replace(one, same_outputs=False), *others))
    assert "do not trust its times" in drawn(profiled(replace(k, timeline=odd)))


def test_why_counters_have_no_lines_is_said() -> None:
    k = full("cp_async")
    assert isinstance(k.counters, Counters)
    told = drawn(profiled(replace(k, counters=replace(k.counters, source=(), lines=(), unlined="it is other code"))))
    assert "it is other code" in told and "where warps were seen" not in told


def test_a_summary_stands_before_everything_else_of_its_case() -> None:
    summary = Summary("CASES/one", "", None, (), (), "", (), (), "The waits for dots come [first].")
    lines = drawn(profiled(full("cp_async")), summary=summary).splitlines()
    assert lines[1] == "The waits for dots come [first]."


def test_names_that_look_like_markup_are_printed_as_they_are() -> None:
    hostile = "[red]x[/red][link=http://x]"
    k = replace(full("cp_async"), kernel=hostile)
    told = drawn(replace(profiled(k), target=hostile), 200)
    assert told.count(hostile) == 2


def test_a_launch_that_ends_slowly_slopes_to_the_right() -> None:
    line = timeline_terminal.sparkline(timelines.filled().running, 132)
    assert len(line) == 60 and line[0] == "█" and line[-1] == "▁"
    assert timeline_terminal.sparkline([0.0, 132.0, 66.0], 132) == " █▅"


@pytest.mark.parametrize(
    ("cycles", "said"),
    [
        (0.4, "0"),
        (999_999.4, "999,999"),
        (999_999.6, "1.00M"),
        (12_345_678.0, "12.35M"),
        (99_996e3, "100M"),
        (3e9, "3,000M"),
    ],
)
def test_cycles_need_seven_characters_at_most(cycles: float, said: str) -> None:
    assert format.cycles(cycles) == said and len(said) <= 7


@pytest.mark.parametrize(
    ("x", "said"), [(999.7, "1 kB"), (0.5, "0.5 B"), (4.75e14, "475 TB"), (9.999e14, "1 PB"), (1023.0, "1.02 kB")]
)
def test_large_figures_have_a_prefix_and_no_exponent(x: float, said: str) -> None:
    assert format.scaled(x, "B") == said
