"""Triton's own parser answers from its box: what it prints, or what is wrong and on which line."""

import pytest
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.ttgir import normalize, reader, triton_parser

from tests.sandbox import ttgir_samples


def test_what_triton_prints_is_what_the_reader_understood(add_contents: ContentStore) -> None:
    text = ttgir_samples.text("specialized")
    printed = triton_parser.ask(box.choose(), add_contents, 90, text).printed
    assert printed
    assert printed != text  # it carries no locations
    assert normalize.digest(reader.parse(printed)) == normalize.digest(reader.parse(text))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("tt.return", "tt.retur", "unknown"),  # the parser
        ("warpsPerCTA = [4, 1], instrShape", "warpsPerCTA = [4, 2], instrShape", "8 warps per CTA"),  # the verifier
    ],
)
def test_an_error_comes_back_with_its_line_of_the_text(
    add_contents: ContentStore, old: str, new: str, says: str
) -> None:
    text = ttgir_samples.text("pipelined").replace(old, new)
    error = triton_parser.ask(box.choose(), add_contents, 90, text).error
    assert error is not None
    assert says in error.message
    line = text.splitlines()[error.line - 1]
    assert new in line or "#mma" in line


def test_a_text_that_crashes_the_parser_is_refused_like_any_other(add_contents: ContentStore) -> None:
    deep = "module attributes {a = " + "[" * 200_000 + "]" * 200_000 + "} {\n}\n"
    answer = triton_parser.ask(box.choose(), add_contents, 90, deep)
    assert not answer.printed
    assert answer.error is not None
    assert answer.error.message


def test_taking_locations_away_keeps_every_line_where_it_was() -> None:
    text = ttgir_samples.text("odd")
    bare = triton_parser.bare(text)
    assert "loc(#" not in bare
    assert '"k {x} } \\22 -> loc("' in bare
    assert [line.split(" loc(#")[0] for line in text.splitlines() if " = tt." in line] == [
        line for line in bare.splitlines() if " = tt." in line
    ]
    assert bare.count("\n") == text.count("\n")
