"""Costs beside pseudo-code: each stands at the line that it is of, in columns, and what nobody measured is blank.

Cycles and samples are made up (`tests/agent/timelines.py`); lines and scopes are those of compiled kernels.
"""

from collections.abc import Callable

import pytest
from pgo_agent.sandbox.profile import pseudocode
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.pseudocode.view import WIDTH, Readable, readable

from tests.agent import timelines

KERNELS = ("attention", "cp_async")
HEAD = "instr       P50   share  stalls"


@pytest.fixture(params=KERNELS)
def view(request: pytest.FixtureRequest, ttgir: Callable[[str], str]) -> tuple[str, Readable]:
    return request.param, readable(reader.parse(ttgir(request.param)))


def cells(text: str, label: str) -> list[str]:
    """What the columns say beside a line."""
    head, *rows = text.splitlines()
    begin = head.index(HEAD)
    row = next(r for r in rows if r.split()[:1] == [label])
    ends = [begin + HEAD.index(name) + len(name) for name in HEAD.split()]
    starts = [begin - 1, *ends]
    return [row[a:b].strip() for a, b in zip(starts, [*ends, WIDTH], strict=True)]


def test_p50_and_share_of_a_scope_stand_at_the_line_that_it_begins_with(view: tuple[str, Readable]) -> None:
    name, shown = view
    times = [t for t in timelines.timed(timelines.scopes(name)) if t.scope.kind is not Kind.ROLE]
    text = pseudocode.annotated(shown, {}, times, None)
    labels = shown.labels()
    for t in times:
        label = labels[t.scope.first]
        longest = max((x for x in times if labels[x.scope.first] == label), key=lambda x: x.count * x.cycles.p50)
        assert cells(text, label)[1:3] == [f"{longest.cycles.p50:,.0f}", f"{100 * (longest.share or 0):.1f} %"]
    beside = [line for line in shown.lines if cells(text, line.label)[1]]
    assert {line.label for line in beside} == {labels[t.scope.first] for t in times}


def test_samples_stand_at_the_line_that_warps_waited_at_with_the_commonest_reason(view: tuple[str, Readable]) -> None:
    name, shown = view
    op = next(op for line in shown.lines for op in line.ops if "dot" in op.name)
    counted = timelines.counters(name, range(op.line, op.line + 1))
    text = pseudocode.annotated(shown, {}, (), counted)
    share, reason = cells(text, shown.labels()[op.line])[3:]
    waits = counted.lines[0].stalls
    assert share == f"{100 * sum(waits.values()) / counted.lines[0].samples:.1f} %"
    assert reason == max(waits, key=lambda r: waits[r]).replace("_", " ")


def test_a_warp_that_issues_does_not_wait(view: tuple[str, Readable]) -> None:
    name, shown = view
    op = next(op for line in shown.lines for op in line.ops if "dot" in op.name)
    counted = timelines.counters(name, range(op.line, op.line + 1))
    counted.lines[0].stalls.clear()
    counted.lines[0].stalls["selected"] = 100
    assert pseudocode.stalled(shown.labels(), counted) == ({}, {})


def test_columns_line_up_and_no_row_is_wider_than_the_page(view: tuple[str, Readable]) -> None:
    name, shown = view
    times, counted = timelines.timed(timelines.scopes(name)), timelines.counters(name, range(1, 300))
    text = pseudocode.annotated(shown, {line.label: 123_456 for line in shown.lines}, times, counted)
    head, *rows = text.splitlines()
    assert max(map(len, rows)) <= WIDTH and HEAD in head
    assert [cells(text, line.label)[0] for line in shown.lines] == ["123456"] * len(shown.lines)


def test_what_was_not_measured_leaves_its_columns_blank(view: tuple[str, Readable]) -> None:
    _, shown = view
    text = pseudocode.annotated(shown, {line.label: 7 for line in shown.lines}, (), None)
    assert {tuple(cells(text, line.label)) for line in shown.lines} == {("7", "", "", "", "")}


def test_code_and_costs_that_are_told_apart_make_the_same_text_together(view: tuple[str, Readable]) -> None:
    name, shown = view
    times, counted = timelines.timed(timelines.scopes(name)), timelines.counters(name, range(1, 300))
    text = pseudocode.annotated(shown, {line.label: 7 for line in shown.lines}, times, counted)
    other = pseudocode.annotated(shown, {line.label: 9 for line in shown.lines}, times, counted)
    assert pseudocode.together(pseudocode.apart(text), named=True) == text
    assert [code for code, _ in pseudocode.apart(text)] == [code for code, _ in pseudocode.apart(other)]


def test_counts_of_instructions_alone_are_told_apart_from_code(view: tuple[str, Readable]) -> None:
    _, shown = view
    notes = [f"{n:>{len(str(len(shown.lines)))}} instr" for n in range(1, 1 + len(shown.lines))]
    text = shown.text(dict(zip((line.label for line in shown.lines), notes, strict=True)))
    assert [cost for _, cost in pseudocode.apart(text) if cost] == notes
