"""Turns what a model wrote into candidate files: edits or a whole kernel part, put together with the target's contract.

Relies on `ast` and on the contract's names in `sandbox/target.py`. Lenient in form (chatter, fences, line ends,
indentation), strict in meaning: an edit whose place is not certain is an error, in words that fit into the next prompt.
It never executes or imports what it reads, and nothing that a model writes makes `parse` raise.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pgo_agent.agent.parts import Block, blocks, hidden, kernel_part, mentioned, used_by
from pgo_agent.sandbox.target import CONTRACT, same_contract

LONGEST, MOST_EDITS = 1_000_000, 100  # characters of a reply, edits in it
TOO_DEEP = "the code is nested too deeply"
_SEARCH = re.compile(r"[ \t]*<{5,}[ \t]*(SEARCH|ORIGINAL)\b.*", re.I)
_DIVIDER = re.compile(r"[ \t]*={5,}[ \t]*")
_REPLACE = re.compile(r"[ \t]*>{5,}[ \t]*((REPLACE|UPDATED)\b.*)?", re.I)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S)
_KERNEL = re.compile(r"^(def kernel\b|kernel *=)", re.M)
_LIKE_CODE = re.compile(r"(@|def |class |import |from \w+ import |\w+ = )")


class BadReply(ValueError):
    """What is wrong with a reply, in one short line."""


@dataclass(frozen=True)
class Parsed:
    sources: list[str]  # whole files, each a candidate
    errors: list[str]  # one line each; beside sources they are notes


def parse(text: str, source: str) -> Parsed:
    """What a reply proposes in place of the file `source`. Never raises for what the reply says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model's odd escapes are no news for the person at the terminal
        sources, errors = dict[str, None](), list[str]()
        try:
            for kernel in _proposed(_plain(text), kernel_part(source)):
                whole, notes = _candidate(kernel, source)
                sources |= {whole: None} if whole else {}
                errors += notes
        except BadReply as e:
            errors.append(str(e))
    return Parsed(list(sources), errors)


def _candidate(kernel: str, source: str) -> tuple[str, list[str]]:
    """A candidate's file and notes; an empty one with what is wrong."""
    try:
        whole, notes = _merged(source, kernel)
        unchanged, _ = _merged(source, kernel_part(source))
        if ast.dump(ast.parse(whole)) == ast.dump(ast.parse(unchanged)):
            raise BadReply("the reply changes nothing")
    except BadReply as e:
        return "", [str(e)]
    except RecursionError:
        return "", [TOO_DEEP]
    return whole, notes


def rationale(text: str) -> str:
    """The first line of prose in a reply, in short; empty when there is none."""
    head = re.split(r"^[ \t]*(?:```|~~~|<{5,})", _plain(text[:LONGEST]), maxsplit=1, flags=re.M)[0]
    lines = [line.strip(" \t#*>-") for line in head.split("\n")]
    return _short(next((line for line in lines if line and not _LIKE_CODE.match(line)), ""), 200)


def _plain(text: str) -> str:
    """Without what a model thought before it answered, and with line ends of one kind. Raises BadReply."""
    if len(text) > LONGEST:
        raise BadReply(f"the reply is longer than {LONGEST} characters")
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return _THOUGHT.sub("", text).rpartition("</think>")[2]


def _proposed(text: str, part: str) -> list[str]:
    """The new kernel parts that the reply spells out, mostly one. Raises BadReply when there is none."""
    if any(_SEARCH.fullmatch(line) for line in text.split("\n")):
        return [_edited(part, _edits(text))]
    found = _fenced(text) or ([(text, True)] if _KERNEL.search(text) and not _problem(text) else [])
    if not found:
        raise BadReply("no code found: put edits, or the whole kernel part in one fenced block")
    whole = [code for code, _ in found if _KERNEL.search(code) and not _problem(code)]
    if whole:
        return whole
    code, closed = max(found, key=lambda b: (_KERNEL.search(b[0]) is not None, len(b[0])))
    problem = _problem(code) or "the code does not define kernel(): give the whole kernel part, or edits"
    raise BadReply(problem if closed else f"the code block is cut off: {problem}")


def _fenced(text: str) -> list[tuple[str, bool]]:
    """The code of each fenced block, and whether the block is closed."""
    found: list[tuple[list[str], bool]] = []
    mark = ""  # of the block that is open
    for line in text.split("\n"):
        fence, info = _fence(line)
        if mark and fence.startswith(mark) and not info:
            found[-1], mark = (found[-1][0], True), ""
        elif mark:
            found[-1][0].append(line)
        elif fence:
            found.append(([], False))
            mark = fence
    return [(textwrap.dedent("\n".join(lines)), closed) for lines, closed in found if any(map(str.strip, lines))]


def _fence(line: str) -> tuple[str, str]:
    """The mark of a fence and what stands behind it; two empty texts for another line."""
    line = line.strip()
    info = line.lstrip(line[:1])
    mark = line[: len(line) - len(info)]
    return (mark, info.strip()) if mark[:3] in ("```", "~~~") and "`" not in info else ("", "")


# edits ----------------------------------------------------------------------------------------------------------------

Edit = tuple[list[str], list[str]]  # lines to find, lines to put there


def _edits(text: str) -> list[Edit]:
    edits: list[Edit] = []
    edit: Edit | None = None
    at = 0  # which half of the edit is being read
    for line in text.split("\n"):
        if _SEARCH.fullmatch(line):
            if edit is not None:
                raise BadReply(f"edit {len(edits) + 1} has no >>>>>>> REPLACE line")
            edit, at = ([], []), 0
        elif edit is None:
            continue
        elif _DIVIDER.fullmatch(line):
            if at:
                raise BadReply(f"edit {len(edits) + 1} has two ======= lines")
            at = 1
        elif _REPLACE.fullmatch(line):
            if not at:
                raise BadReply(f"edit {len(edits) + 1} has no ======= line")
            edits.append((_bare(edit[0]), _bare(edit[1])))
            edit = None
        else:
            edit[at].append(line)
    if edit is not None:
        raise BadReply(f"edit {len(edits) + 1} has no >>>>>>> REPLACE line: the reply is cut off")
    return edits


def _bare(lines: list[str]) -> list[str]:
    """Without a fence around the lines."""
    full = [i for i, line in enumerate(lines) if line.strip()]
    fenced = len(full) > 1 and _fence(lines[full[0]])[0] and _fence(lines[full[-1]])[0]
    return lines[full[0] + 1 : full[-1]] if fenced else lines


def _edited(part: str, edits: Sequence[Edit]) -> str:
    if len(edits) > MOST_EDITS:
        raise BadReply(f"more than {MOST_EDITS} edits")
    lines = part.split("\n")
    for n, (search, replace) in enumerate(edits, 1):
        if not any(line.strip() for line in search):
            raise BadReply(f"edit {n} has nothing to search for")
        at, shift, search, replace = _place(lines, n, search, replace)
        lines[at : at + len(search)] = [_shifted(line, shift) for line in replace]
    return "\n".join(lines)


def _place(lines: list[str], n: int, search: list[str], replace: list[str]) -> tuple[int, int, list[str], list[str]]:
    """Where an edit goes and how far it must be moved to the right. Raises BadReply when that is not certain."""
    hits = _hits(lines, search)
    if not hits:  # blank lines around the text are no part of it
        search, replace = _trimmed(search), _trimmed(replace)
        hits = _hits(lines, search)
    exact = [h for h in hits if h[1] == 0] or hits
    if not exact:
        raise BadReply(f"the SEARCH text of edit {n} is not found: {_short(_trimmed(search)[0])}")
    if len(exact) > 1:
        where = " and ".join(str(i + 1) for i, _ in exact[:2])
        raise BadReply(f"the SEARCH text of edit {n} is found {len(exact)} times (lines {where}): give more lines")
    return *exact[0], search, replace


def _hits(lines: list[str], search: list[str]) -> list[tuple[int, int]]:
    """Each place where the lines stand, trailing blanks aside, and how far to the right of where they were written."""
    have, wanted = [line.strip() for line in lines], [line.strip() for line in search]
    found = []
    for i in range(len(have) - len(wanted) + 1):
        if have[i] == wanted[0] and have[i : i + len(wanted)] == wanted:
            shifts = {_indent(a) - _indent(b) for a, b in zip(lines[i:], search, strict=False) if b.strip()}
            if len(shifts) == 1:
                found.append((i, shifts.pop()))
    return found


def _trimmed(lines: list[str]) -> list[str]:
    full = [i for i, line in enumerate(lines) if line.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def _indent(line: str) -> int:
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def _shifted(line: str, shift: int) -> str:
    if shift == 0 or not line.strip():
        return line
    return " " * max(_indent(line) + shift, 0) + line.lstrip()


# putting a file together ----------------------------------------------------------------------------------------------


def merge(source: str, kernel: str) -> str:
    """The file `source` with another kernel part: its contract is kept, whatever `kernel` says. Raises BadReply."""
    return _merged(source, kernel)[0]


def _merged(source: str, kernel: str) -> tuple[str, list[str]]:
    """The merged file, and a note on what was dropped. What the reply uses and leaves out comes from the source."""
    if problem := _problem(kernel):
        raise BadReply(problem)
    own, given = blocks(source), blocks(kernel)
    secret = hidden(own)
    contract = [b for i, b in enumerate(own) if i in secret]
    protected = CONTRACT.union(*(b.names for b in contract))
    kept = [b for b in given if not b.names & protected]
    defined, wanted = _union(b.names for b in kept), _union(b.loads for b in kept)
    if "kernel" not in defined:
        raise BadReply("the code does not define kernel()")
    used = used_by(own, secret | {i for i, b in enumerate(own) if b.names & wanted})
    text = _joined(kept, [own[i] for i in sorted(used - secret) if not own[i].names <= defined], contract)
    if _problem(text) or not same_contract(text, source):
        raise BadReply("the contract did not come through")
    dropped = sorted(_union(b.names for b in given) & protected)
    return text, [f"dropped from the reply, for the target defines it: {', '.join(dropped)}"] if dropped else []


def _joined(kept: Sequence[Block], missing: Sequence[Block], contract: Sequence[Block]) -> str:
    """The contract goes to the end, but for what the kernel part reads while it is imported."""
    early = _union(mentioned(_run_at_import(n)) for b in kept for n in b.nodes)
    cut = max((i for i, b in enumerate(contract, 1) if b.names & early), default=0)
    above = [b for b in missing if b.imports or cut]
    below = [b for b in missing if b not in above]
    body = (i for i, b in enumerate(kept) if not (b.imports or _is_text(b.nodes[0])))
    head = next(body, len(kept)) if above or cut else len(kept)
    groups = (kept[:head], above, contract[:cut], kept[head:], below, contract[cut:])
    texts = ("".join(b.text for b in group).strip("\n") for group in groups)
    return "\n\n\n".join(t for t in texts if t) + "\n"


def _union(sets: Iterable[Collection[str]]) -> set[str]:
    return set[str]().union(*sets)


def _run_at_import(node: ast.stmt) -> list[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.decorator_list, node.args]
    return [node]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _problem(code: str) -> str:
    """Why a text is not Python, with the line; empty when it is."""
    try:
        ast.parse(code)
        return ""
    except (SyntaxError, ValueError) as e:
        line = getattr(e, "lineno", None) or 0
        said = _short(f"line {line} is not Python ({getattr(e, 'msg', e)})" if line else f"not Python ({e})")
        shown = _short("".join(code.split("\n")[line - 1 : line]) if line else "")
        return f"{said}: {shown}" if shown else said
    except (RecursionError, MemoryError):
        return TOO_DEEP


def _short(text: str, most: int = 100) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 3] + "..."
