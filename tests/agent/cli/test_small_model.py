"""A real language model of 1.5 billion parameters, on this machine, takes part in a whole run over real HTTP.

It is too small to make a kernel faster: asked is that its prompts fit, that whatever it writes is read and judged, and
that its tokens are recorded. `make test-model` fetches it (1.1 GB) and runs this; elsewhere it is skipped.
"""

import json
import socket
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent.command_line import pgo, write
from tests.conftest import ROOT
from tests.small_model.serve import NAME

MODEL, PYTHON = ROOT / ".small-model" / "model.gguf", ROOT / ".small-model" / "venv" / "bin" / "python"
STARTS = 60.0  # seconds
NONE = (
    "" if MODEL.exists() and PYTHON.exists() else "the small model is not here: `make test-model` fetches it (1.1 GB)"
)


@pytest.fixture
def server() -> Iterator[str]:
    """Its address, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = ROOT / "tests" / "small_model" / "serve.py"
    process = subprocess.Popen([PYTHON, script, MODEL, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _awaited(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _awaited(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTS
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    pytest.fail(f"the server does not answer; its exit code: {process.poll()}")


@pytest.mark.model
@pytest.mark.skipif(bool(NONE), reason=NONE)
def test_a_real_model_drives_a_whole_run(server: str, tmp_path: Path) -> None:
    write(tmp_path)
    run = ("optimize", "add.py", "--case", "1m", "--candidates", "4", "--width", "2", "--patience", "4", "--json")
    run += ("--model", NAME, "--prompt-tokens", "4000")  # it reads some 90 a second
    done = pgo(*run, cwd=tmp_path, seconds=1500, OPENAI_BASE_URL=server)
    assert done.code == 0, done.err
    assert done.events[-1]["type"] == "run.completed"
    shown = json.loads(pgo("show", "--json", cwd=tmp_path).out)
    assert shown["verdicts"] and all(v["verdict"] for v in shown["verdicts"])
    with sqlite3.connect(tmp_path / ".pgo-agent" / "pgo.db") as db:
        calls = db.execute("SELECT reply, prompt_tokens, completion_tokens FROM calls").fetchall()
    assert calls and all(reply and asked > 500 and answered for reply, asked, answered in calls)
    print(
        *(f"{asked} tokens asked, {answered} answered: {reply[:400]!r}" for reply, asked, answered in calls), sep="\n"
    )
    print(*(f"{v['move']}: {v['verdict']}" for v in shown["verdicts"]), sep="\n")
