"""What is typed in a session: commands, words for the model, and everything else that hands come up with."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.cli.session.parse_input import COMMANDS, GUIDE, read
from pgo_agent.sandbox.errors import UsageFault

from tests.conftest import ROOT


@pytest.mark.parametrize("line", ["quit", "/quit", "  /quit  "])
def test_a_single_word_that_is_a_command_is_that_command(line: str) -> None:
    asked = read(line)
    assert asked is not None and (asked.name, asked.words) == ("quit", ())


def test_words_are_guidance_though_they_begin_like_a_command() -> None:
    asked = read("veto everything that uses atomics")
    assert asked is not None and (asked.name, asked.rest) == (GUIDE, "veto everything that uses atomics")


def test_a_command_with_an_id_needs_no_slash() -> None:
    asked = read("veto 76864003")
    assert asked is not None and (asked.name, asked.words) == ("veto", ("76864003",))


@pytest.mark.parametrize(("typed", "meant"), [("/vteo 1", "/veto"), ("/stauts", "/status"), ("/difff", "/diff")])
def test_an_unknown_command_names_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UsageFault) as e:
        read(typed)
    assert meant in e.value.hint


@pytest.mark.parametrize("line", ["/veto", "/budget minutes", "/pause now", "/submit 'a", "/show a b"])
def test_what_lacks_something_or_has_too_much_is_told_how(line: str) -> None:
    with pytest.raises(UsageFault) as e:
        read(line)
    assert "as in /" in e.value.hint


def test_a_file_with_blanks_in_its_name_is_one_word() -> None:
    asked = read("/submit 'my kernel.py' shipped")
    assert asked is not None and asked.words == ("my kernel.py", "shipped")


@given(st.text())
def test_any_line_is_a_command_or_guidance_or_a_clear_fault(line: str) -> None:
    try:
        asked = read(line)
    except UsageFault as e:
        assert e.hint and e.message.isprintable()
        return
    assert (asked is None) == (not line.strip())
    assert asked is None or asked.name in COMMANDS


def test_the_page_for_users_names_every_command_and_no_other() -> None:
    page = (ROOT / "docs" / "session.md").read_text()
    assert set(re.findall(r"`/([a-z]+)", page)) | {GUIDE} == set(COMMANDS)
