"""Triton's own parser and verifier, asked in a boxed process: is a text TTGIR, and how does MLIR print it?

The box holds because MLIR may crash on a hostile text. Its verifier is weak: `pendings = -1` and barriers that can
never be passed get through (research on triton 3.6 and 3.9), so an answer without errors proves little.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation.box import ATTEMPTS, Box, killed
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.ttgir.token_lists import locations
from pgo_agent.sandbox.ttgir.tokens import Unreadable, tokens

SECONDS = 60.0  # to parse and to verify one text
_DIAGNOSTIC = re.compile(r'^loc\((?:"[^"\n]*":(\d+):(\d+)|.*?)\): (error|warning|remark|note): (.*)$', re.M)


@dataclass(frozen=True)
class Diagnostic:
    """What MLIR says of a place in a text."""

    line: int  # of the text, from 1; 0 where MLIR names none
    column: int
    severity: str  # error, warning, remark, note
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True)
class Answer:
    printed: str  # the module as MLIR prints it, without locations; empty when it is refused
    diagnostics: tuple[Diagnostic, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)  # num_warps, num_ctas, tensordesc_meta; empty when refused

    @property
    def error(self) -> Diagnostic | None:
        """Why the text is refused; None when it is not."""
        if self.printed:
            return None
        diagnostic = next((d for d in self.diagnostics if d.severity == "error"), None)
        return diagnostic or Diagnostic(0, 0, "error", "Triton's parser refuses the text and does not say why")


def ask(box: Box, contents: ContentStore, arch: int, text: str, records: bool = False) -> Answer:
    """Return what Triton's parser and verifier say of a text for an architecture; with `records` it may hold Proton's.

    Raises Killed when somebody kills the process again and again, EnvironmentFault when the disk is full.
    """
    return ask_all(box, contents, arch, [text], records)[0]


def ask_all(box: Box, contents: ContentStore, arch: int, texts: Sequence[str], records: bool = False) -> list[Answer]:
    """Do what `ask` does for several texts in one process, which starts Triton once."""
    kernels = [{"key": f"text{i}", "only": "read", "records": records} for i in range(len(texts))]
    request = {"arch": arch, "jobs": 1, "kernels": kernels}
    for _ in range(ATTEMPTS):
        with contents.scratch() as name:
            folder = Path(name)
            (folder / "in").mkdir()
            for i, text in enumerate(texts):
                (folder / "in" / f"text{i}.ttgir").write_text(bare(text))
            (folder / "request.json").write_text(json.dumps(request))
            ran = box.run("pgo_agent.sandbox.compiler", folder, SECONDS + len(texts))
            if not ran.killed:
                return [_answer(folder / "out", f"text{i}", ran.output) for i in range(len(texts))]
    raise killed("reading TTGIR")


def bare(text: str) -> str:
    """Return the text without locations, on the same lines: MLIR then names lines of the text, not of what it came
    from."""
    try:
        listed = list(tokens(text))
        spans = locations(listed)
    except Unreadable:
        return text  # MLIR says why
    result, begin = "", 0
    for first, last in spans:
        result = (result + "".join(t.text for t in listed[begin:first])).rstrip(" ")
        start, begin = result.rfind("\n") + 1, last + 1
        if result.endswith("=") and result[start:].startswith("#loc"):
            result = result[:start]
    return result + "".join(t.text for t in listed[begin:])


def _answer(out: Path, key: str, output: str) -> Answer:
    try:
        answer = validate.answer(out / f"{key}.json")
        message = str(answer.get("error", ""))
        printed = "" if message else validate.read(out / f"{key}.ttgir", validate.ARTEFACT_LIMIT).decode()
        facts = json_codec.from_json(JsonObject, answer.get("facts", {}))
    except (BadBundle, ValueError, TypeError, AttributeError):
        return Answer("", (Diagnostic(0, 0, "error", f"Triton's parser left no answer\n{output[-2000:]}"),))
    return Answer(printed, _diagnostics(message), facts)


def _diagnostics(text: str) -> tuple[Diagnostic, ...]:
    """MLIR's lines, each with what follows on lines of its own; a crash of the parser is one, too."""
    matches = list(_DIAGNOSTIC.finditer(text))
    if not matches:
        return (Diagnostic(0, 0, "error", text.strip()),) if text.strip() else ()
    ends = [*(m.start() for m in matches[1:]), len(text)]
    return tuple(
        Diagnostic(
            int(m[1] or 0), int(m[2] or 0), m[3], (m[4] + text[m.end() : end]).split("\nRuntimeError")[0].strip()
        )
        for m, end in zip(matches, ends, strict=True)
    )
