"""`pgo-agent prove`: a real program in fresh processes, with a module of a package replaced by another file."""

import json
import math
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.run import proved
from pgo_agent.sandbox import compare_outputs, user_script

from tests.agent.command_line import Done, pgo
from tests.evals.rows import kept_schema

NORM = """
def norm(rows):
    result = []
    for _ in range({turns}):
        result = [[x / max(row) for x in row] for row in rows]
    return result
"""
PROGRAM = """
import time
from lib import norm

rows, seconds = [[float(i + j) for i in range(1, 60)] for j in range(20)], []
for _ in range(5):
    begun = time.perf_counter()
    outputs = {"normed": norm.norm(rows), "count": len(rows)}
    seconds.append(time.perf_counter() - begun)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program, and beside it the package whose module it uses; NORM does its work ten times."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("")
    (tmp_path / "lib" / "norm.py").write_text(NORM.format(turns=10))
    (tmp_path / "infer.py").write_text(PROGRAM)
    return tmp_path


def prove(folder: Path, patch: str, *more: str) -> Done:
    (folder / "mine.py").write_text(textwrap.dedent(patch))
    return pgo("prove", "--patched", "lib/norm.py=mine.py", *more, "--", sys.executable, "infer.py", cwd=folder)


def told(done: Done) -> dict[str, Any]:
    result = json.loads(done.out)
    jsonschema.validate(result, kept_schema("prove"))
    return dict(result)


@pytest.mark.long
def test_a_program_that_does_less_work_is_faster_and_gives_the_same(program: Path) -> None:
    done = prove(program, NORM.format(turns=1), "--json")
    assert done.code == 0, done.err
    result = told(done)
    assert result["verdict"] == "faster" and result["ratio"][0] > 2 and result["of_steps"]
    assert {o["name"]: o["exact"] for o in result["outputs"]} == {"normed": True, "count": True}
    assert len(result["seconds"]["with"]) == len(result["seconds"]["without"]) == 12
    assert (program / "lib" / "norm.py").read_text() == NORM.format(turns=10)


@pytest.mark.long
def test_where_the_minutes_are_over_the_turns_that_were_made_count(program: Path) -> None:
    done = prove(program, NORM.format(turns=1), "--turns", "500", "--minutes", "0.05", "--json")
    assert done.code == 0, done.err
    assert "0.05 minutes are over after" in done.err and 2 <= len(told(done)["seconds"]["with"]) < 1000


@pytest.mark.long
def test_other_outputs_are_no_gain(program: Path) -> None:
    done = prove(program, "def norm(rows): return [[x / max(row) * 1.01 for x in row] for row in rows]", "--turns", "1")
    assert done.code == 1 and done.out.startswith("other_outputs"), done.out + done.err
    assert "it differs by 0.01 of" in done.out and "give --turns 6 or more" in done.out


def test_what_differs_is_told_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near, count, words = [1.0, 2.0, math.inf], [1, 2], {"near": [1.0, 2.002, math.inf]}
    others = [{"count": [1, 3], "near": near}, {"count": [1], "near": [1.0, math.nan, math.inf]}, {"count": count}]
    for i, named in enumerate([{"near": near, "count": count}, {**words, "count": count}, *others]):
        (tmp_path / str(i)).write_text(json.dumps(named))
    compare_outputs.main([str(tmp_path / str(i)) for i in range(5)])
    first, second, third, fourth = json.loads(capsys.readouterr().out)
    assert first["count"]["exact"] and first["near"]["largest"] == pytest.approx(0.002)
    assert first["near"]["relative"] == pytest.approx(0.002 / math.sqrt(5))
    assert second["count"]["problem"] == "1 of 2 differ" and third["count"]["problem"].startswith("[1] torch.int64")
    assert third["near"]["problem"] == "NaN or infinities stand elsewhere"
    assert fourth["near"]["problem"] == "it is missing"


def test_outputs_may_be_lists_and_dicts_of_tensors(tmp_path: Path) -> None:
    layers = [{"hidden": torch.ones(2), "cache": (torch.zeros(3), torch.ones(1, 1))}, {"hidden": torch.ones(2)}]
    names = user_script.keep(
        {"layers": layers, "loss": 1.5, "steps": [1, 2], "rows": [[1.0], [2.0]]}, tmp_path / "kept"
    )
    assert names == [
        "layers.0.hidden",
        "layers.0.cache.0",
        "layers.0.cache.1",
        "layers.1.hidden",
        "loss",
        "steps",
        "rows",
    ]
    assert {n: list(t.shape) for n, t in torch.load(tmp_path / "kept").items()}["rows"] == [2, 1]
    with pytest.raises(TypeError, match="name is a str: give tensors, numbers"):
        user_script.keep({"name": "a model"}, tmp_path / "kept")
    with pytest.raises(TypeError, match="two outputs have one name"):
        user_script.keep({"a": {"b": torch.ones(1)}, "a.b": torch.zeros(1)}, tmp_path / "kept")


@pytest.mark.parametrize(
    ("text", "patch", "said"),
    [
        (PROGRAM.replace("outputs", "results"), "", "names no outputs"),
        ("outputs = 1", "", "never imports"),
        (PROGRAM, "def norm(rows): raise RuntimeError('it is broken')", "with the patch the program ended with 1"),
    ],
)
def test_a_program_that_proves_nothing_is_told_what_to_do(program: Path, text: str, patch: str, said: str) -> None:
    (program / "infer.py").write_text(text)
    done = prove(program, patch or NORM.format(turns=1), "--turns", "1")
    assert done.code == 2 and said in done.err, done.err


def test_a_patch_that_names_no_module_is_refused(program: Path) -> None:
    done = pgo("prove", "--patched", "lib.other=infer.py", "--", sys.executable, "infer.py", cwd=program)
    assert done.code == 2 and "names no module and no file" in done.err


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40))
def test_an_interval_holds_its_middle_and_is_all_of_few_ratios(ratios: list[float]) -> None:
    low, middle, high = proved.interval(ratios)
    assert min(ratios) <= low <= middle <= high <= max(ratios)
    if len(ratios) < 9:  # from nine on the outermost two can be left out at 95 %
        assert (low, high) == (min(ratios), max(ratios))
