"""Reads PTX for one thing: whether a kernel may store where a global symbol of its module lies.

What a module declares in the global state space outlives a launch. libdevice's tables (52 bytes) are such symbols, and
nothing honest writes to them. Registers that an address of a symbol may have gone into are followed through everything
but memory: an instruction that writes memory must name none of them, as its address or as what it stores. Text only,
conservative, a function at a time; it assembles nothing.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_PARAMETER = re.compile(r"(?<!\w)\.param\b[^,;)]*")  # of a function; `ld.param` is none
_DECLARED = re.compile(r"(?<!\w)\.global\b([^;={}]*)")
_ASIDE = re.compile(r"\([^)]*\)|\[[^\]]*\]|\.\w+|\b\d\w*")  # attributes, sizes, types and numbers of a declaration
_FUNCTION = re.compile(r"\.(?:entry|func)\b")
_BEFORE = re.compile(r"(?:\s|[{}]|[$%\w]+:(?!:))*(?:@!?[$%\w]+\s+)?")  # scopes, labels and a predicate
_INSTRUCTION = re.compile(r"([a-z]\w*)((?:[.:]+\w+)*)\s*(.*)", re.S)
_NAME = re.compile(r"[%$A-Za-z_][%$\w]*")
_READS = frozenset({"ld", "ldu", "prefetch", "prefetchu"})  # instructions that take an address and write no memory


def symbols(text: str) -> set[str]:
    """Return the names that it declares in the global state space."""
    declared = _DECLARED.findall(_PARAMETER.sub("", _COMMENT.sub("", text)))
    return {name for d in declared for name in _NAME.findall(_ASIDE.sub(" ", d))}


def stored_at(text: str) -> str:
    """Return the first instruction that may store at a global symbol, or hand its address on through memory; empty:
    none."""
    global_symbols = symbols(text)
    if not global_symbols:
        return ""
    plain = _COMMENT.sub("", text)
    starts = [0, *(m.start() for m in _FUNCTION.finditer(plain)), len(plain)]
    functions = (plain[a:b] for a, b in pairwise(starts))
    return next((store for f in functions if (store := _escape(list(_instructions(f)), global_symbols))), "")


def _instructions(function: str) -> Iterator[tuple[str, str, str]]:
    """Yield each as its opcode, its first operand, and the others."""
    for piece in function.split(";"):
        match = _INSTRUCTION.fullmatch(_BEFORE.sub("", piece, count=1).rstrip())
        if match:
            first, rest = _cut(match[3])
            yield match[1] + match[2], first, rest


def _cut(operands: str) -> tuple[str, str]:
    """Return the first operand, which may be a vector or an address, and what follows it."""
    depth = 0
    for i, c in enumerate(operands):
        depth += (c in "{[(") - (c in "}])")
        if c == "," and not depth:
            return operands[:i], operands[i + 1 :]
    return operands, ""


def _escape(instructions: list[tuple[str, str, str]], global_symbols: set[str]) -> str:
    followed, before = set(global_symbols), -1
    while len(followed) != before:
        before = len(followed)
        for opcode, first, rest in instructions:
            kind, names = opcode.partition(".")[0], set(_NAME.findall(f"{first},{rest}"))
            if kind in _READS or not names & followed:
                continue
            if "[" in first or "[" in rest or kind == "call":
                return f"{opcode} {first.strip()}, {rest.strip()}".rstrip(", ")
            if set(_NAME.findall(rest)) & followed:
                followed |= set(_NAME.findall(first))
    return ""
