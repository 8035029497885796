"""A reply as plain text: what surrounds the code in it, the fences around the code, and what it says first."""

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
    """Without what a model thought before it answered, and with line ends of one kind. Raises BadReply."""
    if len(text) > LONGEST:
        raise BadReply(f"the reply is longer than {LONGEST} characters")
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return _THOUGHT.sub("", text).rpartition("</think>")[2]


def lines(text: str) -> Iterator[Line]:
    """Each line, and whether it stands in a fence. TTGIR in a script may have fences of its own."""
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
    """The fenced blocks with something in them, in order."""
    found: list[tuple[str, list[str], bool]] = []
    for line in lines(text):
        if line.info:
            found.append((_word(line.info), [], False))
        elif line.mark:
            found[-1] = (*found[-1][:2], True)
        elif line.inside:
            found[-1][1].append(line.text)
    return [
        Fence(i, textwrap.dedent("\n".join(code)), closed) for i, code, closed in found if any(map(str.strip, code))
    ]


def fence_of(line: str) -> tuple[str, str]:
    """The mark of a fence and what stands behind it; two empty texts for another line."""
    line = line.strip()
    info = line.lstrip(line[:1])
    mark = line[: len(line) - len(info)]
    return (mark, info.strip()) if mark[:3] in ("```", "~~~") and "`" not in info else ("", "")


def _word(info: str) -> str:
    return info.split()[0].lower().strip("{}.:") if info.strip() else ""


def rationale(text: str) -> str:
    """What a reply says first, in short; empty when it says nothing."""
    return idea(plain(text[:LONGEST]))


def idea(text: str) -> str:
    """The first paragraph of prose in a plain text, at most IDEA characters in whole sentences if it has such."""
    told = (line.strip() for line in _FORM.split(text, maxsplit=1)[0].split("\n"))
    paragraph: list[str] = []
    for line in told:
        said = line.strip(" \t#*>-")
        if paragraph and (not said or line[:1] in "#*>-" or _LIKE_CODE.match(said)):
            break
        if said and not _LIKE_CODE.match(said):
            paragraph.append(said)
    return _whole_sentences(" ".join(paragraph))


def _whole_sentences(said: str) -> str:
    one = short(said, None)
    if len(one) <= IDEA:
        return one
    ends = [m.end() for m in _SENTENCE.finditer(one[:IDEA])]
    return one[: ends[-1]].strip() if ends else short(one, IDEA)
