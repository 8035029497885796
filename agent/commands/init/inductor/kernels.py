"""Asks the box for Inductor's kernels as plain Triton: with the configurations that Inductor's heuristics give them.

The file's text runs there alone. The answer is untrusted: it is a target's kernel part, which runs in the box, too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pgo_agent.agent.commands.init.inductor import draft
from pgo_agent.agent.commands.init.inductor.draft import Draft
from pgo_agent.sandbox import json_codec, parsing
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.errors import BadBundle, UsageFault
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.temporary_folders import temporary_folder

SECONDS = 120.0
CONFIGURATIONS = 6  # of a kernel


@dataclass(frozen=True)
class Plain:
    """The kernels of one draft."""

    kernels: Mapping[str, str]  # name -> text
    statements: tuple[str, ...]  # its launches, in order
    guessed: Mapping[str, str]  # name -> why its configurations are guesses
    refused: str = ""  # why there is none


@dataclass(frozen=True)
class Answer(Record):
    """What the box answers."""

    kernels: dict[str, str]  # name -> text
    refused: dict[str, str]  # name -> why
    guessed: dict[str, str]  # name -> why its configurations are guesses
    launches: tuple[str, ...]  # their statements


def plain(box: Box, device: str, drafts: Sequence[Draft]) -> list[Plain]:
    """Return the kernels of drafts. Raises UsageFault where the box leaves no answer."""
    wanted = {launch.kernel.name: launch.kernel for d in drafts for launch in d.group.launches}
    kernels = [{"name": n, "text": k.text, "changed": _changed(drafts, n)} for n, k in wanted.items()]
    launches = [
        {"kernel": launch.kernel.name, "args": draft.arguments(d, i)}
        for d in drafts
        for i, launch in enumerate(d.group.launches)
    ]
    answer = _asked(box, {"device": device, "kernels": kernels, "launches": launches, "limit": CONFIGURATIONS})
    statements = iter(answer.launches)
    return [_of(answer, d, [next(statements, "") for _ in d.group.launches]) for d in drafts]


def _changed(drafts: Sequence[Draft], name: str) -> list[str]:
    launches = [launch for d in drafts for launch in d.group.launches if launch.kernel.name == name]
    return list(dict.fromkeys(a.parameter for launch in launches for a in launch.writes if a.held))


def _of(answer: Answer, made: Draft, statements: Sequence[str]) -> Plain:
    names = made.group.names
    if why := next((answer.refused.get(n, "") for n in names if n not in answer.kernels or n in answer.refused), ""):
        return Plain({}, (), {}, why)
    texts = {n: answer.kernels[n] for n in names}
    for text in (*texts.values(), *statements):
        parsing.module(text)
    return Plain(texts, tuple(statements), {n: " ".join(why.split()) for n, why in answer.guessed.items()})


def _asked(box: Box, request: Mapping[str, object]) -> Answer:
    with temporary_folder("init") as folder:
        (folder / "out").mkdir()
        (folder / "request.json").write_text(json.dumps(request))
        ran = box.run("pgo_agent.sandbox.tracer", folder, SECONDS)
        try:
            answered = validate.answer(folder / "out" / "result.json")
            if "error" not in answered:
                return cast(Answer, json_codec.from_json(Answer, answered))
            said = str(answered["error"])[:500]
        except (BadBundle, OSError, ValueError, TypeError, KeyError):
            said = ran.output.strip()[-500:]
    raise UsageFault(f"the kernels cannot be read in the box: {said}", "try --kernel NAME")
