"""The field suite: what it names is there, what is written by hand goes into a target, and one kernel comes through."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from pgo_agent.evals.field import merge, outcome, report, run, suite
from pgo_agent.evals.field.targets import FieldTarget
from pgo_agent.evals.nightly.row import Row
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.target import COMPILED

from tests.agent.command_line import pgo
from tests.evals.rows import case, failed, kept_schema, lot, row

TARGET = '''"""A target."""

import torch


def reference(x):
    raise NotImplementedError("the result")  # to write


CASES = {"one": dict(M=1)}
'''


READY = FieldTarget("add", "adders", "1.0", True, 0, True, 9.0, "", "", 0.0)
UNWRITTEN = replace(READY, kernel="unwritten", written=False, ready=False)
NOT_INSTALLED = replace(UNWRITTEN, kernel="absent", version="")


def timed(compiled: float, **changes: object) -> Row:
    """A run whose winner took 2.0 / 1.1 ms, with the time of the compiled reference; 0: it has none."""
    c = case()
    ms = c.ms | ({COMPILED: lot(compiled)} if compiled else {})
    return replace(row({"CASES/1m": replace(c, ms=ms)}), **changes)  # type: ignore[arg-type]


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


@pytest.mark.long
def test_a_kernel_comes_from_its_program_to_a_whole_target_and_is_not_made_twice(tmp_path: Path) -> None:
    words = ("eval", "field", "liger_selective_log_softmax", "--no-check", "-o", "out", "--json")
    done = pgo(*words, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    counted = done.events[-1]
    jsonschema.validate(counted, kept_schema("eval-field"))
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


def test_what_failed_counts_as_one_and_what_is_not_installed_counts_not_at_all() -> None:
    targets = [READY, replace(READY, kernel="broken"), UNWRITTEN, NOT_INSTALLED]
    found = outcome.of(targets, {"add": timed(0), "broken": failed(kernel="broken")})
    assert [o.over("tuned") for o in found[:3]] == [pytest.approx(1.1, rel=0.01), 1.0, 1.0]
    assert outcome.mean(found, "tuned") == pytest.approx(1.1 ** (1 / 3), rel=0.01)
    assert [o.why for o in found] == [
        "a move",
        "the kernel does not compile",
        "`init` found no launcher",
        "its package is not installed",
    ]


def test_the_compiled_reference_has_a_mean_over_the_kernels_where_it_was_timed() -> None:
    targets = [replace(READY, kernel=k) for k in ("add", "mul", "old")]
    rows = {"add": timed(4.0), "mul": timed(8.0), "old": timed(0)}
    counted = report.summary(targets, rows)
    assert counted.compiled == 2
    assert outcome.mean(counted.outcomes, COMPILED) == pytest.approx((2.2 * 4.4) ** 0.5, rel=0.01)
    first, _, old = (report.cells(o) for o in outcome.of(targets, rows))
    assert first[2].startswith("4.0") and (old[2], old[5]) == ("-", "-")


def test_a_file_of_targets_that_somebody_broke_is_refused_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "targets.jsonl"
    lines = [json.dumps(READY.as_json()), json.dumps({"what": "target", "kernel": 1})]
    file.write_text("\n".join(lines))
    assert run.holds_targets(file) and not run.holds_targets(tmp_path / "none.jsonl")
    with pytest.raises(UsageFault, match="line 2: it is no target"):
        run.read(file)
