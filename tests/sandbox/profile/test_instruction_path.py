"""What is told of a stretch of machine code is what executing it gives, whatever its loop does and its layout is.

Programs are made of parts, laid out in any order with jumps between them, and run by an interpreter that knows nothing
of loops: it follows branches and counts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.profile import instruction_path
from pgo_agent.sandbox.profile.backend import Instruction

PLAIN, LOOP, GUARDED, BRANCH, WAIT, CALL, EXIT = "plain", "loop", "guarded", "branch", "wait", "call", "exit"


@dataclass(frozen=True)
class Jump:
    """An instruction before addresses are known: names of what it goes to."""

    opcode: str
    to: str = ""
    conditional: bool = True


@dataclass(frozen=True)
class Program:
    code: tuple[Instruction, ...]
    begin: int
    end: int


def chunk(kind: str, name: str, size: int) -> list[tuple[str, Jump]]:
    """Labelled instructions of one part; the last may fall through to the next part."""
    body = [(f"{name}.{i}", Jump("FADD")) for i in range(size)]
    back = [(f"{name}.back", Jump("BRA", f"{name}.0"))]
    over = [(f"{name}.over", Jump("BRA", f"{name}.out"))]
    out = [(f"{name}.out", Jump("MOV"))]
    tries = [(f"{name}.try", Jump("SYNCS.PHASECHK.TRANS64.TRYWAIT")), (f"{name}.again", Jump("BRA", f"{name}.try"))]
    parts = {
        PLAIN: body,
        LOOP: body + back,
        GUARDED: over + body + back + out,
        BRANCH: over + body + out,
        WAIT: tries,
        CALL: [(f"{name}.call", Jump("CALL"))],
        EXIT: [(f"{name}.exit", Jump("EXIT"))],
    }
    return parts[kind]


def laid_out(kinds: Sequence[str], sizes: Sequence[int], order: Sequence[int]) -> Program:
    """The parts one after the other between a begin and an end, each where `order` puts it."""
    parts = [chunk(kind, f"p{n}", size) for n, (kind, size) in enumerate(zip(kinds, sizes, strict=True))]
    parts = [[("begin", Jump("CS2R"))], *parts, [("end", Jump("CS2R")), ("exit", Jump("EXIT", conditional=False))]]
    linked = [
        [*part, (f"link{n}", Jump("BRA", parts[n + 1][0][0], conditional=False))] if n + 1 < len(parts) else part
        for n, part in enumerate(parts)
    ]
    flat = [one for n in order for one in linked[n]]
    places = {label: i for i, (label, _) in enumerate(flat)}
    return Program(tuple(_made(i, j, places) for i, (_, j) in enumerate(flat)), places["begin"], places["end"])


def _made(i: int, jump: Jump, places: dict[str, int]) -> Instruction:
    targets = (places[jump.to],) if jump.to else ()
    ends = jump.opcode == "EXIT" and not jump.conditional
    return Instruction(16 * i, jump.opcode, 0, None, targets, jump.conditional, ends)


def run(program: Program, taken: Callable[[int], bool]) -> Counter[int] | None:
    """How often each instruction is executed before the end; None for a run that is too long."""
    seen, at = Counter[int](), program.begin
    while at != program.end:
        seen[at] += 1
        one = program.code[at]
        if seen[at] > 50:
            return None
        at = one.targets[0] if one.targets and (not one.conditional or taken(at)) else at + 1
    return seen


@st.composite
def programs(draw: st.DrawFn, kinds: Sequence[str] = (PLAIN, LOOP, GUARDED, BRANCH, WAIT, EXIT)) -> Program:
    drawn = draw(st.lists(st.sampled_from(kinds), max_size=4))
    sizes = [draw(st.integers(1, 4)) for _ in drawn]
    return laid_out(drawn, sizes, draw(st.permutations(range(len(drawn) + 2))))


@settings(max_examples=300)
@given(programs(), st.data())
def test_whatever_is_told_is_what_every_run_executes(program: Program, data: st.DataObject) -> None:
    told = instruction_path.between(program.code, program.begin, [program.end])
    seen = run(program, lambda _: data.draw(st.booleans()))
    if told.why or seen is None:
        return
    turns = seen[told.turn[0]] if told.turn else 0
    if turns or not told.turn:
        assert seen == Counter(told.once) + Counter(told.turn * turns)


@settings(max_examples=150)
@given(st.lists(st.integers(1, 4), max_size=3), st.lists(st.integers(1, 4), max_size=3), st.data())
def test_plain_code_around_one_loop_is_always_told(before: list[int], after: list[int], data: st.DataObject) -> None:
    kind, size = data.draw(st.sampled_from([LOOP, GUARDED])), data.draw(st.integers(1, 4))
    kinds = [PLAIN] * len(before) + [kind] + [PLAIN] * len(after)
    order = data.draw(st.permutations(range(len(kinds) + 2)))
    program = laid_out(kinds, [*before, size, *after], order)
    told = instruction_path.between(program.code, program.begin, [program.end])
    assert (told.why, len(told.turn)) == ("", size + 1)
    guards = 2 if kind == GUARDED else 0
    assert len(told.once) == 1 + sum(before) + sum(after) + guards + len(kinds) + 1  # begin, and a jump after each part


REFUSED = [
    ([BRANCH], instruction_path.BRANCHES),
    ([LOOP, BRANCH], instruction_path.BRANCHES),
    ([LOOP, PLAIN, GUARDED], "it holds 2 loops"),
    ([PLAIN, WAIT], instruction_path.WAITS),
    ([LOOP, WAIT], instruction_path.WAITS),
    ([CALL], instruction_path.CALLS),
]


@pytest.mark.parametrize(("kinds", "why"), REFUSED)
def test_what_differs_from_run_to_run_is_refused_with_its_reason(kinds: list[str], why: str) -> None:
    program = laid_out(kinds, [2] * len(kinds), range(len(kinds) + 2))
    assert instruction_path.between(program.code, program.begin, [program.end]) == instruction_path.Stretch((), (), why)


def test_an_end_that_is_not_reached_is_a_reason() -> None:
    program = laid_out([PLAIN], [2], [0, 1, 2])
    assert instruction_path.between(program.code, program.end, [program.begin]).why == instruction_path.NOWHERE
    assert instruction_path.between(program.code, program.begin, []).why == instruction_path.NOWHERE


def test_a_loop_that_is_left_in_the_middle_is_refused_because_its_last_turn_is_shorter() -> None:
    """begin; L: FADD; @P BRA end; FADD; BRA L; end"""
    plain = Instruction(0, "FADD", 0, None)
    leaves = replace(plain, opcode="BRA", targets=(5,))
    back = replace(plain, opcode="BRA", targets=(1,), conditional=False)
    code = [plain, plain, leaves, plain, back, replace(plain, opcode="EXIT", conditional=False, ends=True)]
    assert instruction_path.between(code, 0, [5]).why == instruction_path.MIDDLE
