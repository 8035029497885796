"""All mutants of a kernel's TTGIR: each operator of mutation at each op of its tree.

Most are of what no source can say: waits, groups of copies, barriers, slots of shared memory. Relies on the reader of
`sandbox/ttgir` for ops, and on MLIR's printing one op a line. What a mutant says need not be valid: Triton's parser
and verifier are stages of the gate, too.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pgo_agent.evals.mutants.edits import Change, Edit, changes
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Op

_WAITS = {"ttg.async_wait": "num", "ttng.warp_group_dot_wait": "pendings", "ttng.async_tma_store_wait": "pendings"}
_DROPPED = {
    "ttng.wait_barrier", "ttng.arrive_barrier", "ttng.barrier_expect", "ttng.fence_async_shared", "gpu.barrier",
    "ttg.local_barrier", "ttg.barrier", "ttng.fence_mbarrier_init_release_cluster", "tt.store", "ttg.local_store",
    "ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global",
}  # fmt: skip
_COUNTED = {"ttng.init_barrier": r", (\d+) :", "ttng.arrive_barrier": r", (\d+),", "ttng.barrier_expect": r", (\d+),"}
_COUNTS = {"ttng.barrier_expect": (2.0, 0.5)}  # bytes; of the others one more and one less
_OTHERS = {
    "arith.addi": "arith.subi", "arith.subi": "arith.addi", "arith.muli": "arith.addi", "arith.divsi": "arith.remsi",
    "arith.remsi": "arith.divsi", "arith.addf": "arith.subf", "arith.subf": "arith.addf", "arith.mulf": "arith.addf",
    "arith.divf": "arith.mulf", "arith.maxnumf": "arith.minnumf", "arith.minsi": "arith.maxsi",
    "arith.andi": "arith.ori", "arith.xori": "arith.andi", "math.exp2": "math.exp", "arith.extsi": "arith.extui",
}  # fmt: skip
_PREDICATES = {"slt": "sle", "sle": "slt", "sgt": "sge", "sge": "sgt", "eq": "ne", "ne": "eq", "ult": "ule"}


@dataclass(frozen=True)
class Line:
    """An op and the first line of its text."""

    op: Op
    start: int  # characters before it
    text: str
    before: str  # the whole text before it, and behind it
    rest: str


Pair = tuple[int, int, str]  # a span within the line and behind it, and what to write there


def mutants(text: str) -> list[Change]:
    """Return every change of a kernel's TTGIR, in the order of the text. Raises Unreadable."""
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    edits = []
    for op in reader.parse(text).walk():
        start = starts[op.line - 1]
        end = text.find("\n", start)
        line = Line(op, start, text[start:end], text[:start], text[end:])
        for name, operator in OPERATORS.items():
            edits += [Edit(name, start + a, start + b, new) for a, b, new in operator(line)]
    return list(changes(text, edits))


def _put(line: Line, expression: str, new: Callable[[str], str | None]) -> Iterator[Pair]:
    """Yield what the first group of the expression matched, changed."""
    match = re.search(expression, line.text)
    if match and (replacement := new(match[1])) is not None:
        yield match.start(1), match.end(1), replacement


def wait(line: Line) -> Iterator[Pair]:
    """Yield a wait that lets more pending, or that does not wait at all."""
    if attribute := _WAITS.get(line.op.name):
        for more in (1, 2):
            yield from _put(line, rf"\b{attribute} = (\d+)", lambda n, more=more: str(int(n) + more))  # type: ignore[misc]
        yield from _bypass(line)


def commit(line: Line) -> Iterator[Pair]:
    """Yield copies that are not made a group: they belong to the next."""
    if line.op.name == "ttg.async_commit_group":
        yield from _bypass(line)


def _bypass(line: Line) -> Iterator[Pair]:
    """Yield the text without the op: what uses its results takes its operands, where their values are visible."""
    results, operands = line.op.results, line.op.operands
    if results and not operands and re.search(rf"{re.escape(results[0])}(?![\w])", line.rest):
        return
    inner = re.match(r" *", line.text)
    indented = re.match(rf"(?:\n {{{len(inner[0]) if inner else 0},}}\S.*)*", line.rest)
    after = indented[0] if indented else ""
    for result, operand in zip(results, operands, strict=False):
        plain = result.removesuffix("#0") if len(results) == 1 else result
        after = re.sub(rf"{re.escape(plain)}(?![\w#])", operand, after)
    yield 0, len(line.text) + (len(indented[0]) if indented else 0), after.removeprefix("\n")


def dropped(line: Line) -> Iterator[Pair]:
    """Yield a barrier, a fence, a copy or a store that is left out."""
    if line.op.name in _DROPPED and not line.op.results:
        yield 0, len(line.text) + 1, ""


def count(line: Line) -> Iterator[Pair]:
    """Yield a barrier that expects more or less."""
    if expression := _COUNTED.get(line.op.name):
        factors = _COUNTS.get(line.op.name)
        if factors:
            for f in factors:
                yield from _put(line, expression, lambda n, f=f: str(int(int(n) * f)))  # type: ignore[misc]
        else:
            for by in (1, -1):
                yield from _put(line, expression, lambda n, by=by: str(int(n) + by))  # type: ignore[misc]


def phase(line: Line) -> Iterator[Pair]:
    """Yield the other phase of a barrier."""
    if line.op.name == "ttng.wait_barrier" and len(line.op.operands) > 1:
        old = line.op.operands[1]
        at = line.text.index(old, line.text.index(line.op.operands[0]) + 1)
        new = f"    %turned = arith.constant 1 : i32\n    %other = arith.xori {old}, %turned : i32\n"
        yield 0, at + len(old), new + line.text[:at] + "%other"


def slot(line: Line) -> Iterator[Pair]:
    """Yield the first slot of a ring, or another counter of the loop, in place of the one that is meant."""
    if line.op.name != "ttg.memdesc_index":
        return
    region = re.split(r"\n *partition\d+\(", line.before)[-1]  # what stands outside of it cannot be used in it
    for other in re.findall(r"(%c[01]_i32\w*) = arith\.constant", region):
        yield from _put(line, r"\[(%[\w#-]+)\]", lambda v, other=other: other if v != other else None)  # type: ignore[misc]


def mask(line: Line) -> Iterator[Pair]:
    """Yield a load, copy or store without its mask."""
    if line.op.name in ("tt.load", "tt.store") and len(line.op.operands) > (1 if line.op.name == "tt.load" else 2):
        operands = line.op.operands[: 1 if line.op.name == "tt.load" else 2]
        yield from _put(line, rf"{line.op.name} (%.*?) (?:\w+ = |[{{:]|cacheM|evict)", lambda _: ", ".join(operands))
    if line.op.name == "ttg.async_copy_global_to_local":
        yield from _put(line, r"( mask %[\w#]+(?: other %[\w#]+)?)", lambda _: "")


def constant(line: Line) -> Iterator[Pair]:
    """Yield a number that is one more or one less; another value to begin with."""
    if line.op.name != "arith.constant":
        return
    for by in (1, -1):
        yield from _put(line, r"constant (?:dense<)?(-?\d+)\b(?!\.)", lambda n, by=by: str(int(n) + by))  # type: ignore[misc]
    yield from _put(line, r"constant (?:dense<)?(-?\d\.\d+e[+-]\d+|0xFF800000)", _float)
    yield from _put(line, r"constant (true|false)", lambda b: "false" if b == "true" else "true")


def _float(value: str) -> str:
    if value.startswith("0x"):
        return "0.000000e+00"
    return "1.000000e+00" if float(value) == 0 else f"{2 * float(value):e}"


def arithmetic(line: Line) -> Iterator[Pair]:
    """Yield another operation of the same types."""
    if other := _OTHERS.get(line.op.name):
        yield from _put(line, rf"({re.escape(line.op.name)})\b", lambda _: other)


def comparison(line: Line) -> Iterator[Pair]:
    """Yield another predicate."""
    if line.op.name == "arith.cmpi":
        yield from _put(line, r"cmpi (\w+),", _PREDICATES.get)


def select(line: Line) -> Iterator[Pair]:
    """Yield the other choice."""
    if line.op.name == "arith.select" and len(line.op.operands) == 3:
        _, first, second = line.op.operands
        yield from _put(line, r"select %[\w#]+, (%[\w#-]+, %[\w#-]+)", lambda _: f"{second}, {first}")


def loop(line: Line) -> Iterator[Pair]:
    """Yield a loop that never turns, or not for the first time; a value that is not carried on."""
    if line.op.name == "scf.for" and (bounds := re.search(r"= (%[\w-]+) to (%[\w-]+) step (%[\w-]+)", line.text)):
        yield bounds.start(1), bounds.end(1), bounds[3]
        yield bounds.start(2), bounds.end(2), bounds[1]
    if line.op.name == "scf.yield":
        for place, (a, b) in enumerate(itertools.pairwise(line.op.operand_types)):
            pair = line.op.operands[place : place + 2]
            if a == b and pair[0] != pair[1]:
                yield from _put(line, rf"({', '.join(map(re.escape, pair))})(?!\w)", partial(_turned, pair))


def _turned(pair: tuple[str, ...], _: str) -> str:
    return ", ".join(reversed(pair))


OPERATORS: Mapping[str, Callable[[Line], Iterator[Pair]]] = {
    "wait": wait,
    "commit": commit,
    "dropped": dropped,
    "count": count,
    "phase": phase,
    "slot": slot,
    "mask": mask,
    "constant": constant,
    "arithmetic": arithmetic,
    "comparison": comparison,
    "select": select,
    "loop": loop,
}
