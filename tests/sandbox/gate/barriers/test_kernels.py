"""The simulator on TTGIR of the installed Triton: nothing found as it is, each bug found that is edited into its text.

Triton compiles most of these edits without a word. What must be said of each is checked too: barrier, phase, who, why.
"""

import re
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from pgo_agent.sandbox.gate.barriers.finding import Kind
from pgo_agent.sandbox.gate.barriers.runs import read_and_simulate

from tests.sandbox.line_edits import (
    ARRIVE,
    COPY,
    EXPECT,
    INIT,
    INVAL,
    WAIT,
    Edit,
    change,
    double,
    move,
    places,
    put,
    remove,
)

KERNELS = (
    "gemm",
    "gemm_specialized",
    "persistent_flattened",
    "persistent_specialized",
    "two_consumers",
    "attention",
    "cp_async",
)


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_found_in_what_triton_makes(name: str, ttgir: Callable[[str], str]) -> None:
    found = read_and_simulate(ttgir(name))
    assert found.kind is Kind.NONE, found
    assert "not a proof" in found.sentence


# bugs -----------------------------------------------------------------------------------------------------------------


def uncommitted(text: str, times: int = 1, after: str = "tt.func") -> str:
    """Commits of groups removed, the first ones after a word; who waits for one gets what the copy gave."""
    for _ in range(times):
        m = places(text, rf"{after}(?:.*\n)*?( *(%\w+) = ttg.async_commit_group tokens (%\w+).*\n)")[0]
        text = text[: m.start(1)] + text[m.end(1) :]
        text = re.sub(rf"{m[2]}(?=[, ])", m[3], text)
    return text


def on_the_barrier_before(text: str) -> str:
    """The last TMA copy with the barrier of the one before it."""
    copy = rf"{COPY} .*\] %\w+, (%\w+), %\w+ :"
    first, second = (m[1] for m in places(text, copy)[-2:])
    return put(rf"({COPY} .*\] %\w+), {second}, ", rf"\1, {first}, ", -1, text)


COUNT = rf"({INIT} %\w+), 1"
CONSTANT = r"(ttng.wait_barrier %\w+), %\w+"
A_THIRD = r"= arith.subi (%\w+), %c2_i32"

BUGS: dict[str, tuple[str, Edit, Kind, tuple[str, ...]]] = {
    # Triton's pipelined GEMM: one role
    "bytes doubled": (
        "gemm",
        change(f"({EXPECT} %\\w+), 32768", r"\1, 65536", -1),
        Kind.DEADLOCK,
        ("kernel waits for good on", "[2], phase 0", "1 of 1 arrivals came, 32768 of the expected bytes are missing"),
    ),
    "phase constant": (
        "gemm",
        change(CONSTANT, r"\1, %c0_i32"),
        Kind.ARRIVALS,
        ("[0]: kernel arrives 1", "in phase 1", "its last wait on it", "passed on phase 0, complete before"),
    ),
    "copy removed": ("gemm", remove(COPY, -1), Kind.DEADLOCK, ("16384 of the expected bytes are missing, nobody",)),
    "copy doubled": ("gemm", double(COPY, -1), Kind.BYTES, ("(16384 bytes) is one too many for phase 0",)),
    "expect removed": ("gemm", remove(EXPECT, 1), Kind.DEADLOCK, ("[1]", "32768 bytes came that nobody expected")),
    "init of two": (
        "gemm",
        change(COUNT, r"\1, 2"),
        Kind.DEADLOCK,
        ("[0], phase 0", "1 of 2 arrivals came, nobody is left"),
    ),
    "init removed": ("gemm", remove(INIT, 2), Kind.LIFETIME, ("[2]", "was not initialised")),
    "last iteration without copy": (
        "gemm",
        change(A_THIRD, r"= arith.subi \1, %c3_i32"),
        Kind.DEADLOCK,
        ("0 of 1 arrivals came, nobody is left to arrive",),
    ),
    "copy beyond the last iteration": (
        "gemm",
        change(A_THIRD, r"= arith.subi \1, %c1_i32"),
        Kind.LIFETIME,
        ("kernel invalidates", "while it may be in use"),
    ),
    "first slot off by one": (
        "gemm",
        change(r"= %c-1_i32", "= %c0_i32"),
        Kind.DEADLOCK,
        ("kernel waits for good on", "[1], phase 0", "0 of 1 arrivals came"),
    ),
    "first phase wrong": (
        "gemm",
        change(r"(= %c-1_i32, %\w+) = %c0_i32", r"\1 = %c1_i32"),
        Kind.ARRIVALS,
        ("[0]: kernel arrives 1", "passed on the fresh barrier"),
    ),
    "wait removed": (
        "gemm",
        remove(WAIT),
        Kind.ARRIVALS,
        ("more arrivals than the count", "32768 of the expected bytes"),
    ),
    "invalidated before the loop": (
        "gemm",
        move(INVAL, 1, "scf.for", 0),
        Kind.LIFETIME,
        ("[1]", "while it may be in use"),
    ),
    # two consumers and a producer
    "consumer frees nothing": (
        "two_consumers",
        remove(ARRIVE, 1),
        Kind.DEADLOCK,
        ("partition1 waits on %empty[0], phase 0 (1 of 2 arrivals came)", "each waits for the next"),
    ),
    "a slot freed by one of two": (
        "two_consumers",
        change(f"({INIT} %\\w+), 2", r"\1, 1"),
        Kind.DEADLOCK,
        ("before that, partition0 arrives on %empty[0] for phase 1", "without knowing that phase 0 is complete"),
    ),
    "producer waits for slots that nobody has used": (
        "two_consumers",
        change(r"arith.xori", "arith.andi", -1),
        Kind.DEADLOCK,
        (
            "waits on %full[0], phase 0 (0 of 1",
            "partition1 waits on %empty[0], phase 0 (0 of 2",
            "the last for the first",
        ),
    ),
    "freed before it was filled": (
        "two_consumers",
        move(WAIT, 0, "scf.yield", 0),
        Kind.ARRIVALS,
        ("default arrives on %empty[0] for phase 1", "without knowing that phase 0 is complete"),
    ),
    "frees another slot": (
        "two_consumers",
        change(r"%empty\[%s\]", "%empty[%c0_i32]"),
        Kind.DEADLOCK,
        ("partition1 waits on %empty[1], phase 0 (1 of 2 arrivals came)", "each waits for the next"),
    ),
    "producer begins with the second block": (
        "two_consumers",
        change(r"(scf.for %i) = (%c0_i32_?\d*) to (%\w+) step (%\w+)", r"\1 = \4 to \3 step \4", -1),
        Kind.DEADLOCK,
        ("%full[0], phase 0", "0 of 1 arrivals came, nobody is left to arrive"),
    ),
    # attention
    "V copied on K's barrier": (
        "attention",
        on_the_barrier_before,
        Kind.DEADLOCK,
        ("%v_full[0], phase 0", "8192 of the expected bytes are missing, nobody is left to bring them"),
    ),
    "rows of Q not expected": (
        "attention",
        remove(EXPECT, 1),
        Kind.DEADLOCK,
        ("partition0 waits for good on %q_bar[1]",),
    ),
    "V's copy removed": ("attention", remove(COPY, -1), Kind.DEADLOCK, ("%v_full[0]", "8192 of the expected bytes")),
    "V never freed": (
        "attention",
        remove(ARRIVE, 1),
        Kind.DEADLOCK,
        ("partition1 waits on %v_empty[0], phase 0 (1 of 2 arrivals came)",),
    ),
    # Triton's warp specialization
    "half of the bytes expected": (
        "gemm_specialized",
        change(f"({EXPECT} %\\w+), 8192", r"\1, 4096"),
        Kind.DEADLOCK,
        ("partition0", "4096 bytes came that nobody expected"),
    ),
    "count of a whole warp group missing": (
        "gemm_specialized",
        change(f"({ARRIVE} %\\w+), 128", r"\1, 96"),
        Kind.DEADLOCK,
        ("96 of 128 arrivals came",),
    ),
    "counter starts anew with each tile": (
        "persistent_specialized",
        change(r"(scf.yield \{async_task_id = array<i32: 0>\}) %\w+ : i64", r"\1 %c0_i64 : i64", 1),
        Kind.DEADLOCK,
        ("partition0 waits on %8[1], phase 1 (0 of 1 arrivals came)", "each waits for the next"),
    ),
    # cp.async
    "wait lets too much pass": (
        "cp_async",
        change(r"num = 2 : i32", "num = 4 : i32"),
        Kind.GROUPS,
        ("lets the last 4 groups of copies pending", "is among them"),
    ),
    "commits before the loop removed": (
        "cp_async",
        partial(uncommitted, times=4),
        Kind.GROUPS,
        ("never committed to a group",),
    ),
    "commit in the loop removed": (
        "cp_async",
        partial(uncommitted, after="scf.for"),
        Kind.GROUPS,
        ("lets the last 2 groups of copies pending", "is among them"),
    ),
    "wait for less than nothing": ("cp_async", change(r"pendings = 1", "pendings = -1"), Kind.GROUPS, ("until -1",)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_edited_into_real_ttgir_is_found_and_said(bug: str, ttgir: Callable[[str], str]) -> None:
    kernel, edit, kind, said = BUGS[bug]
    found = read_and_simulate(edit(ttgir(kernel)))
    assert (found.kind, [s for s in said if s not in found.sentence]) == (kind, []), found
    assert re.search(r"at line \d+", found.sentence), found
    assert "safe" not in " ".join((found.sentence, *found.trace))


def test_a_copy_without_a_commit_of_its_own_is_in_the_group_of_the_next(ttgir: Callable[[str], str]) -> None:
    found = read_and_simulate(uncommitted(ttgir("cp_async")))
    assert found.kind is Kind.NONE, found


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_done_to_lines_of_a_text_it_answers(seed: int, ttgir: Callable[[str], str]) -> None:
    random = Random(seed)
    lines = ttgir("two_consumers").split("\n")
    for _ in range(random.randint(1, 4)):
        one, other = random.randrange(len(lines)), random.randrange(len(lines))
        match random.randrange(3):
            case 0:
                del lines[one]
            case 1:
                lines.insert(one, lines[other])
            case 2:
                words = re.findall(r"%[\w#]+|\d+|\w+|\W", lines[one]) or [""]
                words[random.randrange(len(words))] = random.choice(lines[other].split() or [""])
                lines[one] = "".join(words)
    assert read_and_simulate("\n".join(lines)).kind in Kind
