"""What a run of many generations takes of memory: a night has thousands of candidates.

The judge makes its times up (`many.py`) and the model's replies are scripted: another constant each time, so that every
candidate is built, screened, judged and compared with all before it. The first generations fill caches that have a
bound; after those, memory must stay.
"""

import json
import subprocess
from pathlib import Path

import pytest
from pgo_agent.agent.kernel_part import kernel_part

from tests.agent.loopback import code, completion, serving
from tests.agent.many_runs import on

FROM, TO = 60, 100  # generations
MOST = 64 << 10  # bytes that one candidate may leave; it was 128 kB when every rewrite ever made was kept
LOADED = 'tl.load(x_ptr + at, mask=inside, eviction_policy="evict_first")'


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


@pytest.mark.slow
def test_candidates_of_a_long_run_leave_next_to_nothing_in_its_memory(tmp_path: Path) -> None:
    run = on(tmp_path / "run", 1)
    part = kernel_part((run.folder / "add.py").read_text())
    assert LOADED in part
    replies = [completion(code(part.replace(LOADED, f"({LOADED} + {n}.5)"))) for n in range(TO)]
    wanted = ("--width", "1", "--candidates", str(TO), "--patience", str(TO), "--minutes", "60", "--profile", "none")
    resident, verdicts = dict[int, int](), 0
    with serving(replies) as server:
        asked = run.machine.command("optimize", "add.py", "--case", "1m", "--model", "tiny", *wanted, "--json")
        env = run.env | {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        with subprocess.Popen(asked, cwd=run.folder, env=env, stdout=subprocess.PIPE, text=True) as agent:
            assert agent.stdout is not None
            for event in map(json.loads, agent.stdout):
                verdicts += event["type"] == "candidate.verdict"
                if event["type"] == "generation.completed":
                    resident[event["generation"]] = _resident(agent.pid)
    assert agent.returncode == 0 and verdicts == TO
    assert resident[TO] - resident[FROM] < MOST * (TO - FROM), resident
