"""The hot loop that a prompt shows: all of a short kernel, of a long one the loop that matters with what it uses."""

import pytest
from pgo_agent.agent.proposal.prompt import hot_loop
from pgo_agent.sandbox.ttgir import reader, triton_parser
from pgo_agent.sandbox.ttgir.edits import script
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable, readable
from pgo_agent.sandbox.ttgir.tree import Module

from tests.sandbox import ttgir_samples


def seen(name: str) -> tuple[Module, Readable]:
    module = reader.parse(triton_parser.bare(ttgir_samples.text(name)))
    return module, readable(module)


def long(loops: int = 3, before: int = 100) -> tuple[Module, Readable]:
    """A kernel of many lines, with loops of which the last but one holds a dot."""
    lead = "".join(
        f"    %a{i} = tt.load %x : !tt.ptr<f32>\n    tt.store %x, %a{i} : !tt.ptr<f32>\n" for i in range(before)
    )
    body = "".join(_loop(i, dot=i == loops - 2) for i in range(loops))
    text = f"""module {{
  tt.func public @many(%x: !tt.ptr<f32>, %n: i32, %m: !ttg.memdesc<16x16xf16, #s, #smem>, %t: tensor<16x16xf32>) {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %step = tt.load %x : !tt.ptr<f32>
    %more = arith.addf %step, %step : f32
{lead}{body}    tt.return
  }}
}}
"""
    module = reader.parse(text)
    return module, readable(module)


def _loop(i: int, dot: bool) -> str:
    inner = f"      %v{i} = tt.load %x : !tt.ptr<f32>\n      %w{i} = arith.addf %v{i}, %more : f32\n"
    if dot:
        inner += f"      %d{i} = tt.dot %t, %t, %t : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>\n"
    return f"    scf.for %i{i} = %c0 to %n step %c1 : i32 {{\n{inner}      tt.store %x, %w{i} : !tt.ptr<f32>\n    }}\n"


def texts(lines: list[str], view: Readable) -> list[str]:
    return [view.line(label).text for label in lines]


def test_a_short_kernel_is_shown_whole() -> None:
    module, view = seen("pipelined")
    assert hot_loop.chosen(module, view, {}) == [line.label for line in view.lines]


def test_of_several_loops_the_one_with_dots_is_hot() -> None:
    _, view = long()
    hot = hot_loop.hot_lines(view, {})
    assert hot[0].text.startswith("for ") and any("dot(" in line.text for line in hot)
    assert sum(line.text.startswith("for ") for line in hot) == 1


def test_where_time_is_known_it_decides() -> None:
    _, view = long()
    first = next(line for line in view.lines if line.text.startswith("for "))
    assert hot_loop.hot_lines(view, {first.label: 1000.0})[0] is first


def test_of_a_long_kernel_the_loop_is_shown_with_its_head_and_what_it_uses() -> None:
    module, view = long()
    shown = hot_loop.chosen(module, view, {}, most=20)
    hot = [line.label for line in hot_loop.hot_lines(view, {})]
    assert len(shown) <= 20 and set(hot) < set(shown) and shown[0] == "L1"
    assert texts(shown, view)[1:3] == ["arg0_tile = load arg0", "scale = arg0_tile + arg0_tile"]
    assert sum(text.startswith("for ") for text in texts(shown, view)) == 1 and len(view.lines) > 200


def test_no_more_lines_are_shown_than_there_is_room_for() -> None:
    module, view = long()
    assert len(hot_loop.chosen(module, view, {}, most=4)) == 4


def test_rows_of_other_lines_are_dots() -> None:
    text = (
        "      instr\nL1    kernel k(a,\n          b):\nL2      x\nL3      y  # long\n          # comment\nL4      z\n"
    )
    assert hot_loop.rows(text, ["L1", "L3"]) == (
        "      instr\nL1    kernel k(a,\n          b):\n...\nL3      y  # long\n          # comment\n...\n"
    )
    assert hot_loop.rows(text, ["L1", "L2", "L3", "L4"]) == text


@pytest.mark.parametrize("name", ["pipelined", "specialized"])
def test_the_labels_that_are_shown_are_those_that_edits_are_read_by(name: str) -> None:
    module, view = seen(name)
    text = hot_loop.rows(view.text(), hot_loop.chosen(module, view, {}))
    labels = [row.split(" ", 1)[0] for row in text.splitlines() if hot_loop._LABEL.match(row)]
    assert labels and all(view.line(label) for label in labels)
    (edit,) = script.parse(f"delete {labels[3]}")
    assert labels[3] in str(edit.spans)


def test_every_role_of_a_specialized_kernel_shows_its_loop() -> None:
    _, view = seen("specialized")
    hot = hot_loop.hot_lines(view, {})
    assert {line.role for line in hot} >= {"default", "partition0"}


def test_an_excerpt_is_of_the_loop_alone() -> None:
    module, view = seen("pipelined")
    text = hot_loop.excerpt(module, view, {})
    hot = {line.label for line in hot_loop.hot_lines(view, {})}
    assert {row[3:] for row in text.splitlines() if row.startswith("// ") and row[3:].isalnum()} == hot


@pytest.mark.parametrize("most", [3000, 1500, 10])
def test_an_excerpt_that_is_too_long_keeps_what_waits_and_multiplies(most: int) -> None:
    module, view = seen("pipelined")
    text = hot_loop.excerpt(module, view, {}, most)
    assert len(text) <= most
    assert most < 1000 or "warp_group_dot" in text


def test_a_kernel_without_loops_has_its_first_lines_shown() -> None:
    module, view = long(loops=0)
    assert hot_loop.chosen(module, view, {}, most=10) == [line.label for line in view.lines[:10]]
    assert hot_loop.excerpt(module, view, {}) == ""
