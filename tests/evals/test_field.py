"""The field suite: what it names is there, what is written by hand goes into a target, and one kernel comes through."""

import json
from pathlib import Path

import pytest
from pgo_agent.evals.field import merge, suite
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo

TARGET = '''"""A target."""

import torch


def reference(x):
    raise NotImplementedError("the result")  # to write


CASES = {"one": dict(M=1)}
'''


def test_every_kernel_has_a_program_and_a_package_with_a_version() -> None:
    kernels = suite.read()
    assert len({k.name for k in kernels}) == len(kernels) >= 30 and len({k.package for k in kernels}) >= 10
    assert [k.name for k in kernels if not (suite.PROGRAMS / k.program).is_file()] == []
    required = (suite.FOLDER / "requirements.txt").read_text()
    assert {k.package for k in kernels if f"\n{k.package}==" not in required} <= {"torch"}


def test_what_is_written_by_hand_belongs_to_a_kernel() -> None:
    named = {k.name for k in suite.read()}
    assert {p.stem for p in suite.BY_HAND.glob("*.py")} <= named


def test_definitions_by_hand_replace_those_of_the_target() -> None:
    own = "# why\ndef reference(x):\n    return x * 2\n\n\nTOLERANCE = dict(max_ratio=2)\n"
    text = merge.merged(TARGET, own)
    assert text.count("def reference") == 1 and "to write" not in text and 'CASES = {"one"' in text
    assert merge.lines(own) == 3, "without comments and empty lines"


def test_an_unknown_kernel_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageFault, match="nothing_like_it") as e:
        suite.read(["nothing_like_it"])
    assert "liger_rope" in e.value.hint


def test_a_kernel_comes_from_its_program_to_a_whole_target_and_is_not_made_twice(tmp_path: Path) -> None:
    words = ("eval", "field", "liger_selective_log_softmax", "--no-check", "-o", "out", "--json")
    done = pgo(*words, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    counted = done.events[-1]
    assert (counted["written"], counted["ready"], counted["lines by hand, median"]) == (1, 1, 0)
    target = tmp_path / "out" / "targets" / "liger_selective_log_softmax.py"
    before = target.stat().st_mtime_ns
    again = pgo(*words, cwd=tmp_path)
    assert again.events[-1]["seconds of init, median"] == counted["seconds of init, median"]
    assert target.stat().st_mtime_ns == before


def test_a_package_that_is_not_installed_is_named_with_what_to_do(tmp_path: Path) -> None:
    if suite.read(["accelerated_scan_scalar"])[0].version:
        pytest.skip("it is installed here")
    done = pgo("eval", "field", "accelerated_scan_scalar", "-o", "out", cwd=tmp_path)
    assert done.code == 1 and "pip install --no-deps" in " ".join(done.out.split())
    (row,) = map(json.loads, (tmp_path / "out" / "targets.jsonl").read_text().splitlines())
    assert not row["written"] and row["version"] == ""
