"""A recording: the prompts and replies of a run, as JSON lines, for `replay:FILE` and for people.

The first line names the target; then comes one line for each call, in order. Another `LAYOUT` is refused. The file is
untrusted input: a wrong line is refused with its number.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.llm.models.types import count, sha256, signed, whole
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

LAYOUT = 1
_TEXTS = ("role", "prompt_sha256", "prompt", "reply", "model")  # of a call


@dataclass(frozen=True)
class Head:
    layout: int
    target: str  # name of the kernel file
    digest: str  # of the target's text
    device: str  # that was compiled for
    models: tuple[str, ...]  # what answered


@dataclass(frozen=True)
class Call:
    role: str
    prompt_sha256: str
    prompt: str
    reply: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True)
class Recording:
    head: Head
    calls: tuple[Call, ...]


# reading --------------------------------------------------------------------------------------------------------------


def read(file: Path) -> Recording:
    """Return the recording in `file`. Raises UsageFault with the number of the first wrong line."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as e:
        raise UsageFault(
            f"cannot read the recording {file}: {e.strerror}", "`pgo-agent recording` writes one"
        ) from None
    parsed = [_parsed(file, n, line) for n, line in enumerate(lines, 1)]
    if not parsed:
        raise _damaged(file, 1, "it is missing")
    return Recording(_head(file, parsed[0]), tuple(_call(file, n, line) for n, line in enumerate(parsed[1:], 2)))


def _parsed(file: Path, n: int, line: bytes) -> JsonObject:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(file, n, "it is no JSON") from None
    if not isinstance(value, dict):
        raise _damaged(file, n, "it is no JSON object")
    return value


def _head(file: Path, line: JsonObject) -> Head:
    if line.get("layout") != LAYOUT:
        raise _damaged(file, 1, f"it does not begin a recording of layout {LAYOUT}")
    target, digest, device = (_string(file, 1, line, name) for name in ("target", "digest", "device"))
    models = line.get("models")
    return Head(
        LAYOUT, target, digest, device, tuple(signed(m, "") for m in models) if isinstance(models, list) else ()
    )


def _call(file: Path, n: int, line: JsonObject) -> Call:
    role, digest, prompt, reply, model = (_string(file, n, line, name) for name in _TEXTS)
    if sha256(prompt) != digest:
        raise _damaged(file, n, "its prompt is not the one of its prompt_sha256")
    spent = (_tokens(file, n, line, name) for name in ("prompt_tokens", "completion_tokens"))
    return Call(role, digest, prompt, reply, signed(model, "unnamed"), *spent)


def _tokens(file: Path, n: int, line: JsonObject, name: str) -> int | None:
    value = line.get(name)
    if value is not None and count(value) is None:
        raise _damaged(file, n, f"{name} is no number of tokens")
    return count(value)


def _string(file: Path, n: int, line: JsonObject, name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise _damaged(file, n, f"it has no {name}" if value is None else f"{name} is no text")
    return whole(value)


def _damaged(file: Path, n: int, why: str) -> UsageFault:
    return UsageFault(f"{file}, line {n}: {why}", "`pgo-agent recording RUN -o FILE` writes a whole one")
