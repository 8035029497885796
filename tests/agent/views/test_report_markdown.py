"""What a report's Markdown makes of texts that nobody trusts: they are read as they are, and mean nothing."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pgo_agent.agent.text import visible
from pgo_agent.agent.views.report import markdown

FORGE = MarkdownIt("commonmark", {"html": True}).enable("table")
HOSTILE = (
    "</code></details><script>alert(1)</script>",
    "| a | b |\n|---|---|",
    "`` ` `` ``` [x](http://evil) ![y](z)",
    "@everyone fixes #1, closes GH-2, owner/repo#3 www.evil.example http://evil.example",
    "\\`*_{}[]()#+-.!|<>&~$:",
    "a\\|b \\` c",
    "&lt;b&gt; &#96; {{ 7*7 }} {% raw %}",
    "\u202e\u2066hidden\u200b",
    "# head\n\n- list\n\n---\n\n    code",
    "<!-- x",
    "[x]: http://evil 'y'",
)
TEXTS = st.text(st.sampled_from("`|\\<>&@#[]()!*_~:$-+=\n\t ab1\u202eé")) | st.sampled_from(HOSTILE) | st.text()


class Read(HTMLParser):
    """Elements and text, and which text is in code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text, self.coded, self.bare = "", "", ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not attrs or tag == "code", (tag, attrs)
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "code" in self.open:
            self.coded += data
        else:
            self.bare += data


def said(text: str) -> str:
    return " ".join(visible(text).split()) or "-"


@settings(max_examples=300)
@given(TEXTS, TEXTS)
@example("a\\", "|b")
def test_a_text_in_a_cell_is_code_and_nothing_else(one: str, two: str) -> None:
    row = f"| {markdown.code(one)} | {markdown.code(two)} |"
    made = Read(FORGE.render(f"| x | y |\n|---|---|\n{row}\n"))
    rest = made.tags.copy()
    for tag in ("table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"):
        rest.remove(tag)
    assert rest == ["code"] * sum(said(t) != "-" or t.strip() == "-" for t in (one, two))
    assert made.text.split() == f"x y {said(one)} {said(two)}".split()


@settings(max_examples=300)
@given(TEXTS)
def test_a_text_in_a_summary_is_code_and_nothing_else(text: str) -> None:
    made = Read(FORGE.render(f"<details><summary>{markdown.tag(text)}</summary>\n\nx\n\n</details>\n"))
    assert made.tags == ["details", "summary", "code", "p"]
    assert made.coded == " ".join(visible(text).split())


@settings(max_examples=300)
@given(TEXTS, st.sampled_from(["", "- ", "so: "]))
@example("1. one", "")
@example("- one", "- ")
@example("[ ] one", "- ")
@example("--- ===", "")
def test_a_word_that_could_mean_something_is_code(text: str, before: str) -> None:
    made = Read(FORGE.render(f"{before}{markdown.plain(text)}\n"))
    assert set(made.tags) <= {"p", "code", *({"ul", "li"} if before == "- " else ())}
    assert made.tags.count("li") == (before == "- ")
    assert made.text.split() == [*before.strip("- ").split(), *visible(text).split()]
    assert not re.search(r"[@#~`|]|://|www\.|GH-", made.bare)


def test_words_that_mean_nothing_are_left_as_they_are() -> None:
    text = "registers of a thread 186, 232 before; 16% of the time (by 1.03x [1.02, 1.04])"
    assert markdown.plain(f"In _fa_fwd {text}") == f"In `_fa_fwd` {text}"


@settings(max_examples=200)
@given(st.lists(TEXTS, min_size=1), st.integers(0, 6))
def test_no_line_ends_a_block_of_code(lines: list[str], most: int) -> None:
    made = Read(FORGE.render(f"{markdown.fenced('diff', lines, most)}\n"))
    left = len(lines) - len(lines[:most])
    assert made.tags == ["pre", "code", *(["p"] if left else [])]
    shown = "\n".join(visible(line.rstrip("\n")) for line in lines[:most])
    assert made.coded.split("\n")[: len(shown.split("\n"))] == shown.split("\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_hides_or_turns_text_around_is_left(text: str) -> None:
    assert not set(visible(text)) & set("\u202e\u2066\u200b")


def test_other_writing_is_left_as_it_is() -> None:
    assert visible("größer 速い\n\tя") == "größer 速い\n\tя"
