"""Edits of a TTGIR text by the lines of its operations, to put bugs into what Triton made."""

import re
from collections.abc import Callable
from functools import partial

WAIT, EXPECT, ARRIVE = "ttng.wait_barrier", "ttng.barrier_expect", "ttng.arrive_barrier"
COPY, INIT, INVAL = "ttng.async_tma_copy_global_to_local", "ttng.init_barrier", "ttng.inval_barrier"

Edit = Callable[[str], str]


def places(text: str, pattern: str) -> list[re.Match[str]]:
    found = list(re.finditer(pattern, text, re.MULTILINE))
    assert found, pattern
    return found


def put(pattern: str, new: str, at: int, text: str) -> str:
    """The text with one place that matches a pattern replaced."""
    m = places(text, pattern)[at]
    changed = text[: m.start()] + m.expand(new) + text[m.end() :]
    assert changed != text, pattern
    return changed


def change(pattern: str, new: str, at: int = 0) -> Edit:
    return partial(put, pattern, new, at)


def remove(operation: str, at: int = 0) -> Edit:
    return partial(put, rf"^.*{operation} .*\n", "", at)


def double(operation: str, at: int = 0) -> Edit:
    return partial(put, rf"^.*{operation} .*\n", r"\g<0>\g<0>", at)


def move(operation: str, at: int, before: str, there: int) -> Edit:
    """Moves the line of an operation in front of the line of another."""

    def edit(text: str) -> str:
        line = places(text, rf"^.*{operation} .*\n")[at].group()
        target = places(text, rf"^.*{before} .*\n")[there].group()
        assert text.count(line) == text.count(target) == 1
        return text.replace(line, "").replace(target, line + target)

    return edit


def later(operation: str, than: str, at: int) -> Edit:
    """Moves the line of an operation behind the next line of another, which uses none of its results."""
    return partial(put, rf"(^.*{operation} .*\n)((?:.*\n)*?.*{than} .*\n)", r"\2\1", at)
