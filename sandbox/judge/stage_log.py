"""The log of one judgement: what each stage found and how long it took."""

import time
from dataclasses import replace

from pgo_agent.sandbox.gate.coverage import Coverage
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.reason import Reason
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.json_codec import JsonObject


class Clock:
    """Times the stages of one judgement, from its start."""

    def __init__(self) -> None:
        self.stages: list[JsonObject] = []
        self.since = time.monotonic()

    def passed(self, stage: str, why: Reason, coverage: Coverage) -> None:
        self._add(stage, None, why, coverage)

    def ends(self, judged: Judgement) -> Judgement:
        self._add(judged.stage, judged.verdict, judged.why, judged.coverage)
        return self.with_stages(judged)

    def with_stages(self, judged: Judgement) -> Judgement:
        """Return the judgement with the log of all stages so far."""
        return replace(judged, evidence={**judged.evidence, "stages": self.stages})

    def _add(self, stage: str, verdict: Verdict | None, why: Reason, coverage: Coverage) -> None:
        now = time.monotonic()
        self.stages.append(Evidence(stage, verdict, why, now - self.since, coverage=coverage).as_json())
        self.since = now
