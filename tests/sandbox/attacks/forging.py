"""Forged answers: what a tracer or an interpreter would leave behind whose candidate writes the results itself.

`Forger` is a box of the product in whose process the forger's Python runs in place of the module, `OUT` being the
folder for results. The product reads what it leaves exactly as it reads what the module leaves.
"""

import json
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.isolation.box import Box

from tests.sandbox.tracing import Traced

PRELUDE = "import json, os, sys\nfrom pathlib import Path\nOUT = Path(sys.argv[1]) / 'out'\n"


@dataclass(frozen=True)
class Forger(Box):
    code: str = ""

    def _program(self, module: str) -> list[str]:
        return ["-c", PRELUDE + self.code]


@dataclass(frozen=True)
class Honest:
    """A target, its builder, and what its tracer answered."""

    builder: Builder
    answer: dict[str, Any]  # as in result.json
    texts: dict[str, str]  # TTGIR by key

    @property
    def key(self) -> str:
        (key,) = self.texts
        return key

    def forged(self, code: str) -> Built:
        """What is built when the tracer runs this, with the honest `answer` and `texts`, and then writes them."""
        given = f"answer = json.loads({json.dumps(self.answer)!r})\ntexts = {self.texts!r}\nkey = {self.key!r}\n"
        write = "\nfor k, t in texts.items():\n    (OUT / f'{k}.ttgir').write_text(t)\n"
        write += "(OUT / 'result.json').write_text(json.dumps(answer) if isinstance(answer, dict) else answer)\n"
        return _Forging(self.builder, f"{given}{code}{write}").build()


@dataclass(frozen=True)
class _Forging:
    builder: Builder
    code: str

    def build(self) -> Built:
        b = self.builder
        tracer = Forger(b.box.kind, b.box.python, self.code)
        traced = trace_and_compile.trace(tracer, b.contents, b.target, b.device, b.target.source, {"CASES": None}, None)
        return b._assemble([traced], 1, "")


def honest(builder: Builder, traced: Traced) -> Honest:
    answer = {k: v for k, v in traced.answer.items() if k not in ("texts", "took")}
    return Honest(builder, answer, {k: t.decode() for k, t in traced.answer["texts"].items()})
