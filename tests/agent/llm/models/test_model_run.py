"""A model proposes over real HTTP: what it writes is judged like anything else, recorded whole, and boxed."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.agent.command_line import pgo, write
from tests.agent.loopback import completion, failure, serving

EDIT = """The block is too small for this GPU.
<<<<<<< SEARCH
    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside), mask=inside)
=======
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(z_ptr + at, x + tl.load(y_ptr + at, mask=inside), mask=inside)
>>>>>>> REPLACE
"""
WRONG = EDIT.replace("x + tl.load(y_ptr", "x - tl.load(y_ptr")
SHORT = ("optimize", "add.py", "--case", "1m", "--candidates", "1", "--width", "1", "--model", "tiny")


def test_a_models_edit_is_judged_and_recorded_with_its_tokens(tmp_path: Path) -> None:
    write(tmp_path)
    with serving([completion(EDIT)]) as server:
        done = pgo(*SHORT, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="sk-secret")
    assert done.code == 0, done.err
    shown = json.loads(pgo("show", "--json", cwd=tmp_path).out)
    assert [v["verdict"] for v in shown["verdicts"]] == ["checked"]
    with sqlite3.connect(tmp_path / ".pgo-agent" / "pgo.db") as db:
        assert db.execute("SELECT author FROM candidates").fetchall() == [("tiny-1",)]
        assert db.execute("SELECT reply, prompt_tokens, completion_tokens FROM calls").fetchall() == [(EDIT, 7, 3)]
        assert "sk-secret" not in "".join(db.iterdump())


@pytest.mark.slow
def test_a_models_wrong_kernel_is_found_wrong(tmp_path: Path) -> None:
    write(tmp_path)
    with serving([completion(WRONG)]) as server:
        done = pgo(*SHORT, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
    assert done.code == 0 and "wrong" in done.err and "max error" in done.err


@pytest.mark.slow
def test_prose_costs_its_tokens_and_the_embedded_moves_go_on(tmp_path: Path) -> None:
    write(tmp_path)
    with serving([completion("I would rather talk about it.")]) as server:
        done = pgo(*SHORT, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
    assert done.code == 0 and "nothing of use" in done.err and " checked " in done.err, done.err


@pytest.mark.slow
def test_a_refused_key_is_loud_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    write(tmp_path)
    with serving([failure(401)]) as server:
        done = pgo(*SHORT, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="sk-secret")
    assert done.code == 3 and "refused the key" in done.err and "sk-secret" not in done.err
    with serving([completion(EDIT)]) as server:
        assert pgo("resume", cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k").code == 0


def test_a_model_without_a_key_makes_no_run(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo(*SHORT, cwd=tmp_path, OPENAI_BASE_URL="https://models.example/v1", OPENAI_API_KEY="")
    assert done.code == 2 and "OPENAI_API_KEY" in done.err
    assert "[]" in pgo("runs", "--json", cwd=tmp_path).out


def test_a_models_code_does_not_run_without_a_sandbox(tmp_path: Path) -> None:
    write(tmp_path)
    with serving([completion(EDIT)]) as server:
        done = pgo(*SHORT, "--sandbox", "none", cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
    assert done.code == 3 and "not your own code" in done.err and not server.requests
