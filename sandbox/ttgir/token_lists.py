"""Lists of tokens without white space: brackets that match, cutting at commas, joining."""

from collections.abc import Sequence

from pgo_agent.sandbox.ttgir.tokens import Token, Unreadable

Words = Sequence[Token]
_PAIRS = {")": "(", "]": "[", "}": "{", ">": "<"}
_OPEN, _CLOSE = frozenset(_PAIRS.values()), frozenset(_PAIRS)


def nesting(text: str) -> int:
    """Return what a token adds to the depth of brackets."""
    return (text in _OPEN) - (text in _CLOSE)


def items(words: Words, marks: tuple[str, ...] = (",",)) -> list[Words]:
    """Cut words at the given marks outside of brackets."""
    pieces, depth, start = [], 0, 0
    for i, token in enumerate(words):
        if depth == 0 and token.text in marks:
            pieces.append(words[start:i])
            start = i + 1
        depth += nesting(token.text)
    return [*pieces, words[start:]]


def closing(words: Words, at: int) -> int:
    """Return the index of the bracket that closes the one at `at`. Raises Unreadable when there is none."""
    stack: list[str] = []
    for i in range(at, len(words)):
        text = words[i].text
        if text in _OPEN:
            stack.append(text)
        elif text in _CLOSE:
            if stack.pop() != _PAIRS[text]:
                break
            if not stack:
                return i
    raise Unreadable(words[at].line, f"the bracket {words[at].text} is never closed")


def locations(words: Words) -> list[tuple[int, int]]:
    """Return the first and the last index of every loc(...), in order. Raises Unreadable for one that is never
    closed."""
    spans: list[tuple[int, int]] = []
    i = 0
    while i < len(words) - 1:
        if words[i].text == "loc" and words[i + 1].text == "(":
            spans.append((i, closing(words, i + 1)))
            i = spans[-1][1]
        i += 1
    return spans


def outside(words: Words, spans: Sequence[tuple[int, int]]) -> list[Token]:
    """Return the words without those of the spans, which are in order."""
    rest: list[Token] = []
    begin = 0
    for first, last in spans:
        rest += words[begin:first]
        begin = last + 1
    return [*rest, *words[begin:]]


def joined(words: Words) -> str:
    """Return the text of words, with one space where there was white space."""
    return "".join(" " * (token.spaced and i > 0) + token.text for i, token in enumerate(words))
