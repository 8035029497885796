"""The reader of JSON in replies: what models put around it and in it is borne, what is none is said, nothing raises."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.llm.json_extract import DEEPEST, LONGEST, NoObject, find_object

WANTED = {"passes": ["timeline"], "reason": 'a {brace}, a [bracket],\nand "quotes"'}
PLAIN = json.dumps(WANTED)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"~~~\n{PLAIN}\n~~~ done",
        f"Sure! {{here}} it is:\n\n{PLAIN}\n\nAnything else? {{}}",
        f'<think>{{"passes": [], "reason": "no"}} or so</think>{PLAIN}',
        json.dumps(WANTED, indent=2).replace("\n", "\r\n"),
        PLAIN.replace('"]', '",]').replace('"}', '",\n}'),
        PLAIN.replace("\\n", "\n"),
        f"\ufeff{PLAIN}",
        f"[{PLAIN}]",
        f"{{ {PLAIN}",
        f'{{"passes": ["time {PLAIN}',
    ],
)
def test_the_object_is_found(text: str) -> None:
    assert find_object(text) == WANTED


def test_of_several_objects_the_longest_is_meant() -> None:
    assert find_object('For example {"passes": []}. Mine: {"passes": ["timeline"], "reason": "x"}') == {
        "passes": ["timeline"],
        "reason": "x",
    }


def test_a_comma_in_a_string_is_no_trailing_one() -> None:
    assert find_object('{"a": "x,]", "b": ["y,}",],}') == {"a": "x,]", "b": ["y,}"]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it holds no JSON object"),
        ("I would take the timeline.", "it holds no JSON object"),
        ("[1, 2]", "it holds no JSON object"),
        ("<think>" + PLAIN + "</think> so be it", "it holds no JSON object"),
        (PLAIN[:-1], "is cut off"),
        ("{'passes': []}", "does not parse"),
        ("{" * 5000, "does not parse"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "does not parse"),
        ('{"a":' * (DEEPEST + 2) + "1" + "}" * (DEEPEST + 2), f"nested more than {DEEPEST} deep"),
        ('{"a": ' + "9" * 5000 + "}", "does not parse"),
        ("x" * (LONGEST + 1), f"longer than {LONGEST} characters"),
    ],
)
def test_what_is_none_is_told_in_a_line(text: str, told: str) -> None:
    with pytest.raises(NoObject, match=told):
        find_object(text)


@pytest.mark.long
def test_a_hostile_text_is_read_in_seconds() -> None:
    began = time.monotonic()
    for text in ("{" * LONGEST, '{"a":' * 30_000, '{"' * 90_000, "{" + "," * 190_000, '{"a": "' + "\\" * 190_000):
        with pytest.raises(NoObject):
            find_object(text)
    assert time.monotonic() - began < 60


PIECES = st.sampled_from(["{", "}", "[", "]", ",", ":", '"', "\\", "```", "</think>", '"a"', "1e999", "NaN", PLAIN])


@settings(max_examples=200)
@given(st.lists(PIECES | st.text(max_size=10), max_size=15).map("".join))
def test_any_text_is_an_object_or_a_line_about_it(text: str) -> None:
    try:
        assert isinstance(find_object(text), dict)
    except NoObject as e:
        assert str(e).isprintable() and len(str(e)) < 100


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


@settings(max_examples=100)
@given(st.dictionaries(st.text(), VALUES, max_size=5), st.text(alphabet="abc \n.,"), st.text(alphabet="abc \n.,"))
def test_what_was_written_as_json_is_read_back_from_chatter(value: dict[str, object], before: str, behind: str) -> None:
    assert find_object(before + json.dumps(value) + behind) == value
