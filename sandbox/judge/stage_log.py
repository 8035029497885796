"""What each stage of one judgement said and took: the evidence that goes with its verdict."""

import time
from dataclasses import replace
from typing import Any

from pgo_agent.sandbox.gate.coverage import Coverage
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.reason import Reason
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict


class Clock:
    """Started with the judgement."""

    def __init__(self) -> None:
        self.stages: list[dict[str, Any]] = []
        self.since = time.monotonic()

    def passed(self, stage: str, why: Reason, coverage: Coverage) -> None:
        self._add(stage, None, why, coverage)

    def ends(self, judged: Judgement) -> Judgement:
        self._add(judged.stage, judged.verdict, judged.why, judged.coverage)
        return self.told(judged)

    def told(self, judged: Judgement) -> Judgement:
        """With what every stage so far said."""
        return replace(judged, evidence={**judged.evidence, "stages": self.stages})

    def _add(self, stage: str, verdict: Verdict | None, why: Reason, coverage: Coverage) -> None:
        now = time.monotonic()
        self.stages.append(Evidence(stage, verdict, why, now - self.since, coverage=coverage).as_json())
        self.since = now
