"""Writes the recording of a run from its record. `llm/models/recording.py` reads recordings."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pgo_agent.agent.llm.models.recording import LAYOUT, Call, Head
from pgo_agent.agent.llm.models.types import sha256
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject


def write(store: Store, name: str, file: Path | None) -> str:
    """Return the recording of a run, and write it to `file` if given. Raises UsageFault when the run asked no model."""
    text = "".join(json.dumps(line) + "\n" for line in _lines(store, name))
    if file is not None:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as e:
            raise EnvironmentFault(f"cannot write {file}: {e.strerror}", "name another file with -o") from None
    return text


def _lines(store: Store, name: str) -> Iterator[JsonObject]:
    run = store.run(name)
    calls = store.calls(run.id)
    if not calls:
        raise UsageFault(f"run {run.id} asked no model", "start one with `pgo-agent optimize FILE --model NAME`")
    yield asdict(Head(LAYOUT, Path(run.target).stem, run.digest, run.device, store.answered(run.id)))
    for c in calls:
        tokens = (c.prompt_tokens, c.completion_tokens)
        yield asdict(Call(c.role, sha256(c.prompt), c.prompt, c.reply, c.model, *tokens))
