"""A reply as plain text: the fences around its code, the prose outside of them, and its first sentence."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from pgo_agent.agent.llm.replies.errors import LONGEST, BadReply, short

IDEA = 320  # characters of what a candidate is for
SCRIPT = "edits"  # the word behind the mark of a fence that holds an edit script
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S)
_LIKE_CODE = re.compile(
    r"(@|def |class |import |from \w+ import |\w+ = |module\b.*\{$|%|[}#]|(tt|ttg|ttng|arith|scf|gpu|nvgpu|cf|math)\.)"
)
_SENTENCE = re.compile(r"[^.!?;:]{12}[.!?;](?= )")  # not an abbreviation
_FORM = re.compile(r"^[ \t]*(?:```|~~~|<{5,})", re.M)  # how what is proposed begins
_AROUND = ("markdown", "md")  # a fence around a whole reply is none


@dataclass(frozen=True)
class Fence:
    info: str  # first word behind its mark, in lower case
    code: str
    closed: bool


@dataclass(frozen=True)
class Line:
    text: str
    inside: bool  # of a fence
    mark: str = ""  # of a line that opens or closes one
    info: str = ""  # behind the mark of one that opens


def plain(text: str) -> str:
    """Return a reply without the thoughts before it, with line feeds only. Raises BadReply if it is too long."""
    if len(text) > LONGEST:
        raise BadReply(f"the reply is longer than {LONGEST} characters")
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return _THOUGHT.sub("", text).rpartition("</think>")[2]


def lines(text: str) -> Iterator[Line]:
    """Yield each line, and whether it stands in a fence. TTGIR in a script may have fences of its own."""
    mark, script, inner, before = "", False, False, ""
    for line in text.split("\n"):
        fence, info = fence_of(line)
        if mark and script and fence and (inner or info or before.endswith(":")):
            inner = not inner or bool(info)
            yield Line(line, True)
        elif mark and fence.startswith(mark) and not info:
            mark = ""
            yield Line(line, False, fence)
        elif mark:
            yield Line(line, True)
        elif fence and _word(info) not in _AROUND:
            mark, script, inner = fence, _word(info) == SCRIPT, False
            yield Line(line, False, fence, info or " ")
        else:
            yield Line(line, False)
        before = line.strip() or before


def fences(text: str) -> list[Fence]:
    """Return the fenced blocks that are not empty, in order."""
    blocks: list[tuple[str, list[str], bool]] = []
    for line in lines(text):
        if line.info:
            blocks.append((_word(line.info), [], False))
        elif line.mark:
            blocks[-1] = (*blocks[-1][:2], True)
        elif line.inside:
            blocks[-1][1].append(line.text)
    return [
        Fence(i, textwrap.dedent("\n".join(code)), closed) for i, code, closed in blocks if any(map(str.strip, code))
    ]


def fence_of(line: str) -> tuple[str, str]:
    """Return the mark of a fence and the text behind it; two empty texts for any other line."""
    line = line.strip()
    info = line.lstrip(line[:1])
    mark = line[: len(line) - len(info)]
    return (mark, info.strip()) if mark[:3] in ("```", "~~~") and "`" not in info else ("", "")


def _word(info: str) -> str:
    return info.split()[0].lower().strip("{}.:") if info.strip() else ""


def rationale(text: str) -> str:
    """Return the first sentences of a reply, in short; empty if there is no prose."""
    return idea(plain(text[:LONGEST]))


def idea(text: str) -> str:
    """Return the first paragraph of prose, at most IDEA characters, cut after a whole sentence if possible."""
    lines_before_code = (line.strip() for line in _FORM.split(text, maxsplit=1)[0].split("\n"))
    paragraph: list[str] = []
    for line in lines_before_code:
        prose = line.strip(" \t#*>-")
        if paragraph and (not prose or line[:1] in "#*>-" or _LIKE_CODE.match(prose)):
            break
        if prose and not _LIKE_CODE.match(prose):
            paragraph.append(prose)
    return _whole_sentences(" ".join(paragraph))


def _whole_sentences(text: str) -> str:
    line = short(text, None)
    if len(line) <= IDEA:
        return line
    ends = [m.end() for m in _SENTENCE.finditer(line[:IDEA])]
    return line[: ends[-1]].strip() if ends else short(line, IDEA)
