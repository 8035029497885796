"""Where the nodes of `ast` stand in a text, and a text with some of its parts replaced. Relies on nothing else."""

import ast
import io
import re
import tokenize
from collections.abc import Mapping

Span = tuple[int, int]  # offsets into the text
KEPT = "\0"  # in the text of a replacement: what it replaces


def replaced(source: str, edits: Mapping[Span, str]) -> str:
    """Return the text with others in place of its parts; `KEPT` in one stands for what was there."""
    longer = dict[Span, int]()
    for (start, end), text in sorted(edits.items(), reverse=True):
        now = end + sum(by for (low, high), by in longer.items() if start <= low and high <= end)
        written = text.replace(KEPT, source[start:now])
        longer[start, end] = len(written) - (now - start)
        source = source[:start] + written + source[now:]
    return source


class Offsets:
    """Offsets into the text from ast's lines and UTF-8 columns."""

    def __init__(self, source: str) -> None:
        self.text = source
        self._lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)  # as Python counts lines
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr) -> Span:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno or 0, node.end_col_offset or 0)

    def comma(self, call: ast.Call) -> str:
        """Return what must stand between the last argument of a call and one more."""
        start, end = self.of(call)
        kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)
        text = io.StringIO("(" + self.text[start:end] + ")")  # in brackets, line ends and indents mean nothing
        words = [t.string for t in tokenize.generate_tokens(text.readline) if t.type not in kinds]
        return " " if words[-3] == "," else "" if words[-3] == "(" else ", "

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())
