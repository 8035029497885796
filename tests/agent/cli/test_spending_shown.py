"""What a person sees of models and budgets while a run goes on: told in lines, kept up to date in the live one."""

import io
from typing import Any

from pgo_agent.agent.run.events import Event
from pgo_agent.agent.views.live.progress import Progress
from rich.console import Console

STARTED = {
    "type": "run.started", "run": "add-1", "target": "add.py", "device": "NVIDIA H200", "gpu": True, "gpus": [],
    "judge": "auto", "sandbox": "bubblewrap", "settings": {"gpu_seconds": 90.0}, "workspace": "w",
}  # fmt: skip
SPENT = {"type": "model.spent", "role": "optimizer", "tokens": 1410, "of_tokens": 5000, "money": None, "of_money": None}
GONE = {"type": "model.exhausted", "model": "tiny", "text": "the server refused the key"}
VERDICT = {
    "type": "candidate.verdict", "candidate": "c1", "verdict": "slower", "move": "m", "reason": "r",
    "gpu_seconds": 12.5, "generation": 1, "kind": "launch", "stage": "time", "speedup": 0.9, "seconds": 1.0,
    "stages": [], "coverage": {},
}  # fmt: skip


def shown(*events: dict[str, Any]) -> tuple[str, str]:
    """The lines, and what the live one says in the end."""
    out = io.StringIO()
    progress = Progress(Console(file=out, width=200))
    for e in events:
        progress(Event.from_json(e))
    return out.getvalue(), str(progress._line().text)


def test_tokens_and_money_are_counted_against_their_budgets() -> None:
    assert "  1410 of 5000 tokens" in shown(STARTED, SPENT)[1]
    assert "  1410 tokens, 0.5 of 2 in money" in shown(SPENT | {"of_tokens": None, "money": 0.5, "of_money": 2.0})[1]


def test_seconds_of_the_gpu_are_counted_against_theirs() -> None:
    assert "  12.5 of 90 s of the GPU" in shown(STARTED, VERDICT)[1]
    assert "of the GPU" not in shown(STARTED, VERDICT | {"gpu_seconds": 0.0})[1]


def test_a_role_that_fell_back_is_told_by_its_name() -> None:
    lines = shown(GONE | {"role": "summarizer"}, GONE | {"role": "optimizer"})[0].splitlines()
    assert lines == [
        "  warning: the server refused the key: the embedded summarizer goes on",
        "  warning: the server refused the key: the embedded moves go on alone",
    ]


def test_what_models_say_of_themselves_is_no_markup() -> None:
    replied = {"type": "role.replied", "role": "profiler", "model": "[red]tiny[/red]", "remark": "[bold]x"}
    replied |= {"seconds": 1.0, "prompt_tokens": None, "completion_tokens": None}
    fallback = {"type": "role.fallback", "role": "profiler", "model": "tiny", "about": "[b]k", "text": "[i]no"}
    assert shown(replied, fallback)[0].splitlines() == [
        "  [red]tiny[/red] replied as profiler: [bold]x",
        "  note: the embedded profiler did [b]k: [i]no",
    ]
