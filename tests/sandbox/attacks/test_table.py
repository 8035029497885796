"""The table of attacks (this package's docstring) against what is asked for, and against what is there."""

import ast
from pathlib import Path

import pytest

from tests.sandbox import attacks

HERE = Path(__file__).parent
ASKED = (
    "TCP", "UDP", "unix sockets", "the user's home and keys", "writing outside", "fork bomb", "surviving orphan",
    "memory hog", "disk filler", "stdout flood", "ptrace", "symlinks and `..` in a bundle", "a huge allocation",
    "a million launches", "C smuggled through a signature string", "forged metadata",
    "a cubin swapped after the build", "honest TTGIR paired with another cubin", "PTX in place of a cubin",
    "device globals that keep state", "a planted library in a compile cache",
)  # fmt: skip
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (attacks.__doc__ or "").splitlines()
    if line.startswith("| ") and not line.startswith(("| attack", "| ---"))
]


def functions(path: Path) -> set[str]:
    return {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}


def test_every_row_says_what_is_tried_where_and_what_stops_it() -> None:
    assert all(len(row) == 3 and all(row) for row in ROWS), [r for r in ROWS if len(r) != 3]


@pytest.mark.parametrize("attack", ASKED)
def test_every_attack_that_was_asked_for_has_a_test(attack: str) -> None:
    tests = [test for name, test, _ in ROWS if name == attack]
    assert tests
    for test in tests:
        file, function = test.split("::")
        assert function in functions(HERE / file), test


def test_every_test_of_the_table_is_there() -> None:
    assert [t for _, t, _ in ROWS if t.split("::")[1] not in functions(HERE / t.split("::")[0])] == []


def test_every_attempt_stands_in_the_table() -> None:
    attempts = {f for f in functions(HERE / "attempts.py") if not f.startswith("_")}
    assert {t.split("::")[1] for _, t, _ in ROWS if t.startswith("attempts.py")} == attempts
