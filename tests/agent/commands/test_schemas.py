"""What commands print with `--json` is what the schemas in `docs/schemas/` say."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pgo_agent.agent.commands import json_schema, schemas

from tests.agent.command_line import pgo, write
from tests.conftest import ROOT


def stored(name: str) -> Any:
    return json.loads((ROOT / "docs" / "schemas" / f"{name}.v{schemas.VERSION}.json").read_text())


ROWS = """import torch, triton, triton.language as tl
@triton.jit
def rows(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(row, axis=0))
def total(x):
    y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
    rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""


@pytest.mark.parametrize("name", schemas.NAMES)
def test_the_files_are_what_this_version_prints(name: str) -> None:
    assert stored(name) == schemas.schema(name)


@pytest.mark.long
def test_every_printed_object_fits_its_schema(tmp_path: Path) -> None:
    write(tmp_path)
    events = pgo("optimize", "add.py", "--judge", "cpu", "--candidates", "1", "--json", cwd=tmp_path).events
    assert {"run.started", "candidate.verdict", "run.completed"} <= {e["type"] for e in events}
    printed = {"runs": ("runs",), "show": ("show", "last"), "verdict": ("verdict", "add.py"), "doctor": ("doctor",)}
    printed |= {"profile": ("profile", "add.py"), "lessons": ("lessons", "add.py")}
    printed["init"] = ("init", "kernel.py", "--call", "total(torch.randn(8, 8))")
    (tmp_path / "kernel.py").write_text(ROWS)
    printed["dry-run"] = ("optimize", "add.py", "--dry-run")
    for event in events:
        jsonschema.validate(event, stored("events"))
    for name, words in printed.items():
        jsonschema.validate(json.loads(pgo(*words, "--json", cwd=tmp_path).out), stored(name))


@pytest.mark.parametrize(
    "words",
    [
        ("show", "last"),
        ("verdict", "none.py"),
        ("profile", "none.py"),
        ("lessons", "none.py"),
        ("init", "none.py"),
        ("optimize", "none.py", "--dry-run"),
        ("eval", "compare", "none.jsonl", "none.jsonl"),
    ],
)
def test_what_goes_wrong_is_told_as_an_event(words: tuple[str, ...], tmp_path: Path) -> None:
    done = pgo(*words, "--json", cwd=tmp_path)
    (event,) = done.events
    jsonschema.validate(event, stored("events"))
    assert event["type"] == "error" and event["hint"] and done.code == 2 and "error: " in done.err


def test_a_recording_fits_the_schema_of_its_lines_and_a_cut_one_does_not() -> None:
    lines = [json.loads(line) for line in (ROOT / "evals" / "recordings" / "gemm.jsonl").read_text().splitlines()]
    assert len(lines) > 1
    for line in lines:
        jsonschema.validate(line, stored("recording"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({n: v for n, v in lines[1].items() if n != "reply"}, stored("recording"))


def test_a_type_that_is_not_written_as_json_has_no_schema() -> None:
    with pytest.raises(TypeError, match="has no form in JSON"):
        json_schema.schema(Path)


def test_an_event_of_no_kind_fits_no_schema() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"type": "run.begun"}, stored("events"))
