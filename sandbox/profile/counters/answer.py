"""`python -m pgo_agent.sandbox.profile.counters.answer`: counts one launch for a judge that answers others.

The question is JSON on standard input, the answer on standard output: what stands in Nsight Compute's report, or in one
line why there is none. Who asks reads what it means, with the lines of its own build. The GPU is held by who started
this.
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox.json_codec import JsonObject, Record
from pgo_agent.sandbox.judge.references import PlanRef
from pgo_agent.sandbox.profile.counters.ncu import Absent
from pgo_agent.sandbox.profile.counters.report import Launched, facts


@dataclass(frozen=True)
class Asked(Record):
    contract: str  # path of the target's file
    python: str
    gpu: str | None
    case: str
    kernel: str  # key
    plain: PlanRef


def answer(asked: Asked) -> JsonObject:
    if asked.gpu is None:
        return {"problem": "there is no GPU"}
    launch = Launched(Path(asked.contract), asked.case, asked.kernel, asked.plain, asked.python)
    try:
        found = facts(launch, lambda: nullcontext(asked.gpu or ""))
    except Absent as e:
        return {"problem": str(e)}
    return {"tool": found.tool, "facts": found.facts.as_json()}


if __name__ == "__main__":
    print(json.dumps(answer(Asked.from_json(json.load(sys.stdin)))))
