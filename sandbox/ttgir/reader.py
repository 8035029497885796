"""TTGIR text -> tree: the structure of any op, and operands, types and attributes where MLIR prints them as usual.

Relies on how MLIR prints: an op begins on a line of its own, its name has a dot, and a brace that ends a line opens a
region. A text that is written otherwise is printed anew by Triton first (`triton_parser.py`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from pgo_agent.sandbox.ttgir import op_header
from pgo_agent.sandbox.ttgir.token_lists import joined, nesting
from pgo_agent.sandbox.ttgir.tokens import Token, Unreadable, tokens
from pgo_agent.sandbox.ttgir.tree import Argument, Block, Module, Op, Region

DEEPEST = 100  # nested regions; Triton's have a dozen
LARGEST = 16 * 2**20  # characters; Triton's largest are under one million
KEPT = 64  # trees: each stage of the gate reads the kernels of a candidate


@lru_cache(maxsize=KEPT)
def parse(text: str) -> Module:
    """Return the tree of a text with exactly one module and one public function. Raises Unreadable, with the line."""
    if len(text) > LARGEST:
        raise Unreadable(1, f"{len(text)} characters are too many")
    reader = _Reader(list(tokens(text)))
    before = reader.definitions()
    op = reader.op(0)
    after = reader.definitions()
    if op.name != "module":
        raise Unreadable(op.line, f"a module was expected, not {op.name}")
    if reader.left:
        raise Unreadable(reader.next.line, "something stands behind the module")
    module = Module(before, op, after, reader.aliases)
    if sum("public" in f.words for f in module.functions) != 1:
        raise Unreadable(op.line, "a module with exactly one public tt.func was expected")
    return module


class _Reader:
    """A place in a list of tokens."""

    def __init__(self, listed: Sequence[Token]) -> None:
        self.tokens, self.at = listed, 0
        self.aliases: dict[str, str] = {}

    @property
    def left(self) -> bool:
        return self.at < len(self.tokens)

    @property
    def next(self) -> Token:
        if not self.left:
            raise Unreadable(self.tokens[-1].line if self.tokens else 1, "the text ends too early")
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.next
        self.at += 1
        return token

    def space(self) -> str:
        """Return white space and comments from here."""
        text = ""
        while self.left and self.next.kind == "space":
            text += self.take().text
        return text

    def ahead(self, n: int = 0) -> Token | None:
        """Return the n-th token from here that is no white space."""
        for i in range(self.at, len(self.tokens)):
            if self.tokens[i].kind != "space":
                if n == 0:
                    return self.tokens[i]
                n -= 1
        return None

    # the text around the module ---------------------------------------------------------------------------------------

    def definitions(self) -> str:
        """Return alias definitions, a line each; remembers what each stands for."""
        text = self.space()
        while (first := self.ahead()) and first.kind == "alias" and (second := self.ahead(1)) and second.text == "=":
            line = self._line()
            self.aliases[first.text] = line.partition("=")[2].strip()
            if not self.aliases[first.text]:
                raise Unreadable(first.line, f"{first.text:.40} stands for nothing")
            text += line + self.space()
        return text

    def _line(self) -> str:
        """Return the rest of a line, or more of it where a bracket is open."""
        text, depth = "", 0
        while self.left and not (depth == 0 and "\n" in self.next.text and self.next.kind == "space"):
            token = self.take()
            depth += nesting(token.text)
            text += token.text
        return text

    # ops --------------------------------------------------------------------------------------------------------------

    def op(self, depth: int) -> Op:
        """Return one op with its regions; ends before the line break that ends it."""
        if depth > DEEPEST:
            raise Unreadable(self.next.line, f"regions are nested more than {DEEPEST} deep")
        parts: list[str | Region] = []
        pieces: list[list[Token]] = [[]]  # words before, between and behind its regions
        text, first = self.space(), self.next
        while self.left and not self._ended():
            token = self.take()
            if token.text == "}":
                raise Unreadable(token.line, "a brace closes what was never opened")
            text += token.text
            if token.text == "{" and self._line_ends():
                parts += [text, self.region(pieces[-1], len(pieces) == 1, depth)]
                pieces.append([])
                text = self.space() + self.take().text
            elif token.text == "{":
                inner = self._dictionary(token)
                text += "".join(t.text for t in inner)
                pieces[-1] += [token, *(t for t in inner if t.kind != "space")]
            elif token.kind != "space":
                pieces[-1].append(token)
        return op_header.understand(first, (*parts, text), pieces)

    def _dictionary(self, opened: Token) -> list[Token]:
        """Return the tokens of an attribute dictionary behind its brace, with the one that closes it."""
        inner, depth = [], 1
        while depth:
            if not self.left or "\n" in self.next.text:
                raise Unreadable(opened.line, "the bracket { is never closed")
            token = self.take()
            depth += (token.text == "{") - (token.text == "}")
            inner.append(token)
        return inner

    def _ended(self) -> bool:
        """Return whether a line break is next, and no `default` or `partition0` region follows on the next line."""
        if self.next.kind != "space" or "\n" not in self.next.text:
            return False
        follows, then = self.ahead(), self.ahead(1)
        return not (follows and then and _CONTINUES.fullmatch(follows.text) and then.text in ("{", "("))

    def _line_ends(self) -> bool:
        return self.left and self.next.kind == "space" and ("\n" in self.next.text or self.next.text.startswith("//"))

    def region(self, opened: Sequence[Token], first: bool, depth: int) -> Region:
        """Return the blocks up to the brace that closes them, which stays for the op. `opened`: the words before it."""
        start, name, arguments = self.at, *op_header.opening(opened, first)
        blocks: list[Block] = []
        head, ops = "", list[Op]()
        while True:
            token = self.ahead()
            if token is None:
                raise Unreadable(self.tokens[start - 1].line, "a region is never closed")
            if token.text == "}" or token.kind == "label":
                if head or ops or token.text == "}":
                    blocks.append(Block(head, arguments, tuple(ops)))
                if token.text == "}":
                    return Region(name, joined(opened), tuple(blocks))
                (head, arguments), ops = self._label(), []
            else:
                ops.append(self.op(depth + 1))

    def _label(self) -> tuple[str, tuple[Argument, ...]]:
        text, words = self.space(), []
        while not (self.next.kind == "space" and "\n" in self.next.text):
            token = self.take()
            text += token.text
            if token.kind != "space":
                words.append(token)
        return text, op_header.arguments(words)


_CONTINUES = re.compile(r"default|partition\d+|case")
