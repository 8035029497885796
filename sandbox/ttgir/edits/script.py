"""A script as text -> its edits: Move, SetAttribute, Delete, Insert, Replace. The package says how it is written.

Tolerant of what models put around an edit (bullets, numbers, back quotes, fences, comments, sentences without labels),
strict about the edit: what can be read in two ways, or not at all, is BadScript with what to write instead. Whether the
labels exist and an edit may be made, `apply.apply` says.
"""

import re
import textwrap
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.edits import grammar
from pgo_agent.sandbox.ttgir.edits.grammar import Misread
from pgo_agent.sandbox.ttgir.token_lists import nesting
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Op

LARGEST = 2**20  # characters of a script
FORMS = "move L3 before L2, set L3 name = 1, delete L3, insert after L3:, replace L3..L4 with:"
_BLOCK = "write TTGIR ops on the lines below it, such as %x = arith.addi %a, %b : i32, not lines of the view"
_FENCE = re.compile(r"\s*(?:[-*+]\s+)?(?:```|~~~)")
_OP = re.compile(
    r'\s*(?:%|"[a-z_]+\.|[}^]|//|#\w+\s*=|(?:arith|math|tt|ttg|ttng|scf|gpu|cf|ub|nvvm|llvm|nvgpu|nvws|tti|proton)\.)'
)


@dataclass(frozen=True)
class Edit:
    number: int  # in the script, from 1
    line: int  # of the script, from 1
    text: str  # its first line as the script has it

    def __str__(self) -> str:
        return f'edit {self.number} (line {self.line}: "{self.text}")'


@dataclass(frozen=True)
class Move(Edit):
    """Takes lines to another place, in the order in which the text has them."""

    spans: grammar.Spans
    place: grammar.Anchor


@dataclass(frozen=True)
class SetAttribute(Edit):
    """Gives an attribute of the op of a line another value."""

    label: str
    op: str  # of the line's ops; empty for the one that the line is of
    name: str
    value: str


@dataclass(frozen=True)
class Delete(Edit):
    spans: grammar.Spans


@dataclass(frozen=True)
class Insert(Edit):
    place: grammar.Anchor
    block: str  # TTGIR ops


@dataclass(frozen=True)
class Replace(Edit):
    """Puts ops in place of lines: results under their old names take the place of the old ones."""

    spans: grammar.Spans
    block: str


class BadScript(ValueError):
    """An edit that cannot be read; the message names it and says what to write."""

    def __init__(self, edit: Edit, problem: str) -> None:
        super().__init__(f"{edit}: {problem}")
        self.edit, self.problem = edit, problem


def parse(script: str) -> list[Edit]:
    """Return the edits of a script, in order; none of an empty one. Raises BadScript."""
    if len(script) > LARGEST:
        raise BadScript(Edit(0, 1, script[:40]), f"{len(script)} characters are too many for a script")
    return _Script(script.splitlines()).edits()


def ops(block: str) -> tuple[Op, ...]:
    """Return the ops of a block of TTGIR. Raises Unreadable, with the line of the block."""
    try:
        module = reader.parse(f"module {{\ntt.func public @edit() {{\n{block}\n}}\n}}\n")
    except Unreadable as e:
        raise Unreadable(max(e.line - 2, 1), str(e).partition(": ")[2]) from None
    outer, blocks = module.functions[0].regions, module.functions[0].regions[0].blocks
    if len(module.functions) != 1 or len(outer) != 1 or len(blocks) > 1 or (blocks and blocks[0].head):
        raise Unreadable(1, "its brackets do not match, or it begins a block of its own")
    return blocks[0].ops if blocks else ()


class _Script:
    """A place in the lines of a script."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.at = lines, 0
        self.found: list[Edit] = []

    def edits(self) -> list[Edit]:
        strange: Edit | None = None
        while self.at < len(self.lines):
            raw = self.lines[self.at]
            self.at += 1
            line_text = grammar.cleaned(raw)
            if not line_text or _FENCE.match(raw):
                continue
            edit = Edit(len(self.found) + 1, self.at, line_text if len(line_text) <= 120 else f"{line_text[:117]}...")
            try:
                self._line(edit, raw, line_text)
            except Misread as e:
                raise BadScript(edit, str(e)) from None
            strange = strange or edit
        if strange and not self.found:
            raise BadScript(strange, f"the script holds no edit; begin a line with one of: {FORMS}")
        return self.found

    def _line(self, edit: Edit, raw: str, text: str) -> None:
        """Read one line as an edit with what belongs to it, or pass over a sentence."""
        verb, rest = grammar.verb(text)
        if verb:
            self.found.append(_READ[verb](self, edit, rest))
        elif _OP.match(raw):
            raise Misread("TTGIR stands outside of a block; write 'insert after L3:' with a label on the line above it")
        elif grammar.labels(text):
            hint = f"begin the line with one of: {FORMS}; put what explains an edit behind '#'"
            raise Misread(f"there is no edit that begins with '{text.split()[0][:20]}'; {hint}")

    def move(self, edit: Edit, rest: str) -> Edit:
        spans, rest = grammar.spans(rest, "move L3 before L2")
        place, rest = grammar.place(rest, "write where to: move L3 before L2, or after L2")
        grammar.ended(rest)
        return Move(edit.number, edit.line, edit.text, spans, place)

    def set(self, edit: Edit, rest: str) -> Edit:
        return SetAttribute(edit.number, edit.line, edit.text, *grammar.attribute(rest))

    def delete(self, edit: Edit, rest: str) -> Edit:
        spans, rest = grammar.spans(rest, "delete L3")
        grammar.ended(rest)
        return Delete(edit.number, edit.line, edit.text, spans)

    def insert(self, edit: Edit, rest: str) -> Edit:
        place, rest = grammar.place(rest, "write where: insert before L3: or insert after L3: and the ops below it")
        return Insert(edit.number, edit.line, edit.text, place, self._block(edit, rest))

    def replace(self, edit: Edit, rest: str) -> Edit:
        spans, rest = grammar.spans(rest, "replace L3..L4 with: and the ops below it")
        return Replace(edit.number, edit.line, edit.text, spans, self._block(edit, grammar.without_with(rest)))

    def _block(self, edit: Edit, rest: str) -> str:
        """Return the TTGIR that belongs to an edit: behind its colon, in fences, or the lines below that look like
        TTGIR."""
        first = rest.strip().removeprefix(":").strip()
        if not _OP.match(first):
            grammar.ended(first)
            first = ""
        while self.at < len(self.lines) and not first and not self.lines[self.at].strip():
            self.at += 1
        fenced = not first and self.at < len(self.lines) and _FENCE.match(self.lines[self.at])
        block = self._fenced() if fenced else "\n".join(filter(None, [first, self._bare(first)]))
        try:
            block_ops = ops(block)
        except Unreadable as e:
            raise Misread(f"{str(e).replace('TTGIR line', 'its block, line')}; {_BLOCK}") from None
        if not block_ops:
            raise Misread(f"it has no block; {_BLOCK}")
        return block

    def _fenced(self) -> str:
        begin = self.at + 1
        end = next((i for i in range(begin, len(self.lines)) if _FENCE.match(self.lines[i])), None)
        if end is None:
            raise Misread("the fence of its block is never closed; write ``` on a line of its own behind the ops")
        self.at = end + 1
        return textwrap.dedent("\n".join(self.lines[begin:end]))

    def _bare(self, first: str) -> str:
        """Lines from here that are TTGIR: by how they begin, or because a bracket is open."""
        taken, depth = list[str](), _depth(first)
        while self.at < len(self.lines):
            line = self.lines[self.at]
            ours = _OP.match(line) or (depth > 0 and not grammar.verb(grammar.cleaned(line))[0])
            if _FENCE.match(line) or (line.strip() and not ours):
                break
            depth += _depth(line)
            taken.append(line)
            self.at += 1
        return textwrap.dedent("\n".join(taken)).rstrip()


def _depth(line: str) -> int:
    return sum(nesting(c) for c in line if c not in "<>")


_READ = {
    "move": _Script.move,
    "set": _Script.set,
    "delete": _Script.delete,
    "insert": _Script.insert,
    "replace": _Script.replace,
}
