"""What the readable form says is what the TTGIR computes: random programs of integers are run both ways.

Programs have loops that carry values (exchanged, renewed, kept), nested loops, branches and stores. Lines are
translated to Python by a few rules, so that a bracket that is missing, a variable that is overwritten too early and a
value that is written at the wrong place all show as other numbers.
"""

import re
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable, readable

OPS = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "minsi": min,
    "maxsi": max,
}
DIVIDING = {"floordivsi": lambda a, b: a // b, "remsi": lambda a, b: a % b}  # Python's, in both
COMPARED = {"slt": lambda a, b: a < b, "sge": lambda a, b: a >= b, "eq": lambda a, b: a == b}
GIVEN = (3, 7)  # the kernel's arguments


@dataclass
class Program:
    """Writes a program by a source of numbers, and runs it while it does."""

    draw: "st.DataObject"
    rows: list[str] = field(default_factory=list)
    count: int = 0

    def number(self, most: int) -> int:
        return self.draw.draw(st.integers(0, most))  # type: ignore[no-any-return]

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(self, depth: int, text: str) -> None:
        self.rows.append("  " * (depth + 2) + text)

    def block(self, names: list[str], depth: int, length: int) -> list[str]:
        """Some ops; gives the names that are known behind them."""
        known = list(names)
        for _ in range(length):
            kind = self.number(9)
            if kind < 5:
                self._binary(known, depth)
            elif kind < 6:
                self._select(known, depth)
            elif kind < 7 or depth > 2:
                self.emit(depth, f"tt.store %p, {self._one(known)} : !tt.ptr<i64>")
            elif kind < 9:
                self._loop(known, depth)
            else:
                self._branch(known, depth)
        return known

    def _one(self, known: list[str]) -> str:
        return known[-1 - self.number(len(known) - 1)]

    def _binary(self, known: list[str], depth: int) -> None:
        name = self.fresh()
        if self.number(4):
            op = sorted(OPS)[self.number(len(OPS) - 1)]
            self.emit(depth, f"{name} = arith.{op} {self._one(known)}, {self._one(known)} : i64")
        else:
            op = sorted(DIVIDING)[self.number(1)]
            self.emit(depth, f"{name} = arith.{op} {self._one(known)}, %three : i64")
        known.append(name)

    def _condition(self, known: list[str], depth: int) -> str:
        name, predicate = self.fresh(), sorted(COMPARED)[self.number(2)]
        self.emit(depth, f"{name} = arith.cmpi {predicate}, {self._one(known)}, {self._one(known)} : i64")
        return name

    def _select(self, known: list[str], depth: int) -> None:
        condition, name = self._condition(known, depth), self.fresh()
        self.emit(depth, f"{name} = arith.select {condition}, {self._one(known)}, {self._one(known)} : i64")
        known.append(name)

    def _loop(self, known: list[str], depth: int) -> None:
        carried = [(self.fresh(), self._one(known)) for _ in range(1 + self.number(2))]
        name, counter = self.fresh(), self.fresh()
        starts = ", ".join(f"{a} = {b}" for a, b in carried)
        kinds = ", ".join("i64" for _ in carried)
        end = ["%two", "%three"][self.number(1)]
        head = f"{name}:{len(carried)} = scf.for {counter} = %zero to {end} step %one iter_args({starts})"
        self.emit(depth, f"{head} -> ({kinds})  : i64 {{")
        inner = self.block([*known, counter, *(a for a, _ in carried)], depth + 1, self.number(5))
        self.emit(depth + 1, f"scf.yield {', '.join(self._one(inner) for _ in carried)} : {kinds}")
        self.emit(depth, "}")
        known += [f"{name}#{i}" for i in range(len(carried))]

    def _branch(self, known: list[str], depth: int) -> None:
        condition, name = self._condition(known, depth), self.fresh()
        self.emit(depth, f"{name}:2 = scf.if {condition} -> (i64, i64) {{")
        for word in ("} else {", "}"):
            inner = self.block(known, depth + 1, self.number(3))
            self.emit(depth + 1, f"scf.yield {self._one(inner)}, {self._one(inner)} : i64, i64")
            self.emit(depth, word)
        known += [f"{name}#0", f"{name}#1"]

    def text(self) -> str:
        constants = "".join(
            f"    %{name} = arith.constant {n} : i64\n" for n, name in enumerate(("zero", "one", "two", "three"))
        )
        body = "\n".join(self.rows)
        head = "module {\n  tt.func public @f(%p: !tt.ptr<i64>, %a: i64, %b: i64) {\n"
        return f"{head}{constants}{body}\n    tt.return\n  }}\n}}\n"


class Machine:
    """Runs the TTGIR itself, op by op: the oracle, which shares nothing with the readable form."""

    def __init__(self, text: str) -> None:
        self.rows = [row.strip() for row in text.splitlines()][2:-3]
        self.values = {"%a": GIVEN[0], "%b": GIVEN[1]}
        self.stored: list[int] = []

    def run(self, at: int = 0, end: int | None = None) -> list[int]:
        """Runs rows up to a yield; gives what it yields."""
        while at < (len(self.rows) if end is None else end):
            row = self.rows[at]
            used = [self.values.get(v, 0) for v in re.findall(r"%[\w#]+", row)[1:]]
            name = row.split(" = ")[0].split(":")[0]
            if row.startswith("scf.yield"):
                return [self.values[v] for v in re.findall(r"%[\w#]+", row)]
            if "arith.constant" in row:
                self.values[name] = int(row.split("constant ")[1].split()[0])
            elif row.startswith("tt.store"):
                self.stored.append(used[0])
            elif "scf.for" in row or "scf.if" in row:
                at = self._inside(at, name)
            elif "arith.cmpi" in row:
                self.values[name] = int(COMPARED[row.split("cmpi ")[1].split(",")[0]](*used))
            elif "arith.select" in row:
                self.values[name] = used[1] if used[0] else used[2]
            else:
                op = row.split("arith.")[1].split()[0]
                self.values[name] = (OPS | DIVIDING)[op](*used)
            at += 1
        return []

    def _inside(self, at: int, name: str) -> int:
        row, ends = self.rows[at], self._ends(at)
        if "scf.if" in row:
            condition = self.values[re.findall(r"%[\w#]+", row)[1]]
            given = self.run(at + 1 if condition else ends[0] + 1, ends[-1])
        else:
            counter, _, end, _, *pairs = re.findall(r"%[\w#]+", row)[1:]
            arguments, starts = pairs[::2], pairs[1::2]
            given = [self.values[s] for s in starts]
            for i in range(self.values[end]):
                self.values |= {counter: i, **dict(zip(arguments, given, strict=True))}
                given = self.run(at + 1, ends[-1])
        self.values |= {f"{name}#{i}": v for i, v in enumerate(given)}
        return ends[-1]

    def _ends(self, at: int) -> list[int]:
        """The rows of the else and of the brace that closes what begins at a row."""
        depth, found = 0, []
        for i in range(at, len(self.rows)):
            row = self.rows[i]
            depth += row.endswith("{") - row.startswith("}")
            if row.startswith("} else") and depth == 1:
                found.append(i)
            if depth == 0:
                return [*found, i]
        raise AssertionError("a region is never closed")


def _python(view: Readable) -> str:
    """The lines as Python."""
    rows, empty = [], ""
    for line in view.lines[1:]:
        indent = "    " * (line.depth - 1)
        if len(indent) <= len(empty) and empty:
            rows.append(f"{empty}pass")
        text = line.text
        if text.startswith("for "):
            head, _, carried = text.removesuffix(":").partition(" carrying ")
            started = [part for part in _parts(carried) if " = " in part]
            rows += [f"{indent}{_together(started)}"] if started else []
            text = f"{head}:"
        elif text.startswith("next "):
            text = _together(_parts(text.removeprefix("next ")))
        elif text.startswith("store "):
            text = f"out({text.removeprefix('store ').removesuffix(' -> arg0')})"
        elif " = " in text and len(_parts(text)) > 1:
            text = _together(_parts(text))
        rows.append(indent + text)
        empty = indent + "    " if text.endswith(":") else ""
    return "\n".join([*rows, f"{empty}pass"] if empty else rows)


def _parts(text: str) -> list[str]:
    found, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            found.append("")
        else:
            found[-1] += c
    return [part.strip() for part in found if part.strip()]


def _together(parts: list[str]) -> str:
    names, values = zip(*(part.split(" = ", 1) for part in parts), strict=True)
    return f"{', '.join(names)} = {', '.join(values)}"


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_program_does_the_same_as_its_readable_form(data: st.DataObject) -> None:
    program = Program(data)
    known = program.block(["%a", "%b"], 0, 2 + program.number(8))
    for name in known[-4:]:
        program.emit(0, f"tt.store %p, {name} : !tt.ptr<i64>")
    text = program.text()
    machine, stored = Machine(text), list[int]()
    machine.run()
    code = _python(readable(reader.parse(text)))
    exec(code, {"arg1": GIVEN[0], "arg2": GIVEN[1], "out": stored.append, "min": min, "max": max})
    assert stored == machine.stored, code + "\n" + text
