"""What becomes of a model's replies: odd ones are understood, doubtful ones are told precisely."""

import ast
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.llm import replies
from pgo_agent.agent.llm.replies import merge, parse
from pgo_agent.sandbox import target

from tests.agent.loopback import EDIT, NEW, NOT_UNDERSTOOD, PART, SOURCE, UNDERSTOOD, code, edit
from tests.conftest import ROOT

DONE = ast.dump(ast.parse(merge(SOURCE, NEW)))


@pytest.mark.parametrize("reply", [pytest.param(r, id=name) for name, r in UNDERSTOOD.items()])
def test_is_understood(reply: str) -> None:
    (whole,) = parse(reply, SOURCE).sources
    found = {ast.dump(n) for n in ast.parse(whole).body}
    assert found == {ast.dump(n) for n in ast.parse(merge(SOURCE, NEW)).body}
    assert target.same_contract(whole, SOURCE)


@pytest.mark.parametrize(("reply", "error"), [pytest.param(*r, id=name) for name, r in NOT_UNDERSTOOD.items()])
def test_is_told_what_is_wrong_in_one_short_line(reply: str, error: str) -> None:
    found = parse(reply, SOURCE)
    assert found.sources == [] and len(found.errors) == 1
    assert error in found.errors[0]
    assert len(found.errors[0]) < 250 and found.errors[0].isprintable()


def test_two_whole_kernels_are_two_candidates() -> None:
    found = parse(code() + "or\n" + code(PART.replace("y + 1", "y + 1.0")), SOURCE)
    assert len(found.sources) == 2 and found.errors == []


def test_edits_of_an_earlier_candidate_change_that_one() -> None:
    floats, store = PART.replace("y + 1", "y + 1.0"), "    tl.store(x_ptr + at, y + {}, mask=inside)".format
    edits = edit(store("1.0"), store("2.0"))
    text = f"## Candidate 1: floats\n{code(floats)}\n## Candidate 2: edits of candidate 1: two\n{edits}"
    first, second = parse(text, SOURCE).sources
    assert "y + 1.0" in first and second == first.replace("y + 1.0", "y + 2.0")
    lost = parse(text.replace("of candidate 1", "of candidate 7"), SOURCE)
    assert lost.sources == [first] and "edits candidate 7, of which" in lost.errors[0]


def test_what_the_reply_says_of_the_contract_is_dropped_with_a_note() -> None:
    more = 'TOLERANCE = {"mean": 1e9}\ndef reference(x): return x\nfrom os import path as CASES\n_by_hand = None\n'
    more += "HELD_OUT.clear()\nif True:\n    SMALL = {}\nflops: int = 5\n"
    found = parse(code(NEW + more), SOURCE)
    assert ast.dump(ast.parse(found.sources[0])) == DONE
    assert found.errors[0].startswith("dropped from the reply, for the target defines it: ")
    assert found.errors[0].endswith("CASES, HELD_OUT, SMALL, TOLERANCE, _by_hand, flops, reference")


def test_the_code_of_a_reply_is_never_run(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    assert parse(code(trap + NEW), SOURCE).sources
    assert not (tmp_path / "ran").exists()


def test_a_hostile_reply_is_read_in_seconds() -> None:
    began = time.monotonic()
    for text in ("```" + " " * 300_000 + "`", "~" * 500_000, "<" * 500_000, EDIT * 5000, "<think>" * 100_000):
        parse(text, SOURCE)
        replies.rationale(text)
    parse("".join(edit("    inside = at < n", "    inside = at < n\n" * 50) for _ in range(100)), SOURCE)
    assert time.monotonic() - began < 20


PIECES = st.sampled_from(
    [EDIT, NEW, PART, code(), "```", "~~~", *EDIT.splitlines(), "<think>", "</think>", "\r", "    "]
)


@settings(max_examples=300)
@given(st.lists(PIECES | st.text(max_size=30), max_size=12).map("\n".join) | st.text())
@example("\x0c<<<<<<< SEARCH\n=======\n>>>>>>>")
def test_no_text_makes_the_parser_raise(text: str) -> None:
    found = parse(text, SOURCE)
    assert found.sources or found.errors
    assert all(target.same_contract(s, SOURCE) for s in found.sources)
    assert replies.rationale(text).isprintable()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (f"**The store waits.**\n{EDIT}", "The store waits."),
        (f"<think>hm</think>\n\n# Plan\n{code()}", "Plan"),
        (code() + "That is all.", ""),
        (f"Two warpgroups take turns:\none has its softmax\nwhile the other's dots run.\n\nMore.\n{EDIT}",
         "Two warpgroups take turns: one has its softmax while the other's dots run."),
        (f"It waits less.\n- for K\n- for V\n{EDIT}", "It waits less."),
        ("x" * 400, "x" * 317 + "..."),
        ("One thing is done here. " * 20, ("One thing is done here. " * 13).strip()),
    ],
)  # fmt: skip
def test_the_first_paragraph_of_prose_before_the_code_is_the_rationale(reply: str, said: str) -> None:
    assert replies.rationale(reply) == said


# putting a file together ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("[!_]*.py")), ids=lambda p: p.stem)
def test_a_file_that_ends_with_its_contract_comes_through_to_the_byte(path: Path) -> None:
    text = path.read_text()
    assert merge(text, kernel_part(text)) == text


def test_the_contract_follows_the_kernel_in_its_order_and_with_its_comments() -> None:
    source = "# Secret.\nCASES = {}\n\nimport torch\n\n# Fast.\ndef kernel(): pass\n\n\n"
    source += "# Slow.\n\ndef reference(): pass\n# Why.\n"
    assert kernel_part(source) == "import torch\n\n# Fast.\ndef kernel(): pass\n"
    assert merge(source, "def kernel(): return 1\n") == (
        "def kernel(): return 1\n\n\n# Secret.\nCASES = {}\n\n\n# Slow.\n\ndef reference(): pass\n# Why.\n"
    )


def test_what_the_kernel_part_reads_while_it_is_imported_stays_above_it() -> None:
    lines = merge(SOURCE, NEW).splitlines()
    space, configs = (next(i for i, line in enumerate(lines) if line.startswith(n)) for n in ("LAUNCH", "CONFIGS"))
    reference = lines.index("def reference(x):")
    assert space < configs < lines.index("def kernel(x):") < reference


def test_a_merged_file_can_be_merged_again() -> None:
    once = merge(SOURCE, NEW)
    assert ast.dump(ast.parse(kernel_part(once))) == ast.dump(ast.parse(NEW))
    assert merge(once, kernel_part(once)) == once


def test_a_target_with_a_sidecar_is_all_kernel_part() -> None:
    source = "import triton\ndef kernel(x): return x\n"
    assert kernel_part(source) == source
    found = parse(code("import triton\ndef kernel(x): return +x\ndef reference(x): return x\n"), source)
    assert found.sources == ["import triton\ndef kernel(x): return +x\n"] and "reference" in found.errors[0]


def test_line_ends_of_other_systems_change_nothing() -> None:
    dos = SOURCE.replace("\n", "\r\n")
    assert kernel_part(dos) == PART and merge(dos, NEW.replace("\n", "\r")) == merge(SOURCE, NEW)
    assert target.same_contract(merge(dos, NEW), dos)


# what a model is shown ------------------------------------------------------------------------------------------------

SECRETS = ["99_991", "77_773", "99991", "1.375", "_by_hand", "reference(", "HELD_OUT", "TOLERANCE", "order of its own"]


@pytest.mark.parametrize("secret", SECRETS)
def test_the_kernel_part_hides_the_contract_with_its_helpers_comments_and_changes(secret: str) -> None:
    assert secret not in PART


@pytest.mark.parametrize("kept", ["import math", "CONFIGS = ", "@triton.autotune", "def _blocks", "def kernel"])
def test_the_kernel_part_keeps_what_the_kernel_uses(kept: str) -> None:
    assert kept in PART
