"""What a run is asked for: every option, with its default."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgo_agent.agent.exit_codes import Exit

PROMPT_TOKENS = 16_000  # of a prompt, by estimate
DEFAULT_DEVICE, SPOOL = "h200", "spool:"
OWN = ("device", "wait")  # wishes that are kept elsewhere, or hold for one command
STATES = {"done": Exit.DONE, "none_found": Exit.NONE_FOUND, "budget": Exit.BUDGET}


@dataclass(frozen=True)
class RunSettings:
    """What the command line asks for."""

    device: str | None = None
    candidates: int = 12
    width: int | None = None  # candidates of a generation; None: `default_width`
    minutes: float = 20.0
    patience: int = 3  # generations in a row without a win before a run ends
    sandbox: str = "auto"
    judge: str = "auto"  # auto, gpu, cpu or spool:DIR
    cases: tuple[str, ...] = ()  # public cases to optimize; none given: all
    python: str = sys.executable  # runs tracer, compiler and judge
    models: tuple[str, ...] = ()  # of the roles, as `--model` takes them: see llm/models/roles.py
    tokens: int | None = None  # of all models; None: no limit, as for what follows
    money: float | None = None
    gpu_seconds: float | None = None
    given: tuple[Mapping[str, str], ...] = ()  # candidates to judge, and no others: see check.py
    second_assembler: bool = False  # try the results of another ptxas, too, on a GPU
    memcheck: bool = False  # run every kernel under compute-sanitizer, too, on a GPU
    interpreting: float | None = None  # deadline of Triton's interpreter for a candidate, s; None: the judge's own
    prompt_tokens: int = PROMPT_TOKENS  # of a prompt, by estimate
    seed: int = 0  # picks the order of moves that nothing tells apart, and who proposes first; 0: as they are listed
    insight: str = "all"  # what of profiles the optimizer is told: see profile_visibility.py
    drop_wrong: bool = False  # go on where the fastest of the file's own configurations is not right
    alone: bool = False  # learn nothing from former runs of the target
    gpus: str | None = None  # of this machine, as `0,1`; None: all that are visible
    wait: bool = True  # for replies and verdicts that are not there yet; if not, the run is suspended


def longer(wishes: RunSettings, minutes: float | None) -> RunSettings:
    """With the minutes that somebody gave, which are the interpreter's, too; as they are where nobody did."""
    return wishes if minutes is None else replace(wishes, minutes=minutes, interpreting=60 * minutes or None)


def default_width(cores: int) -> int:
    """Candidates of a generation: four, and up to eight where there are cores to build them side by side."""
    return max(4, min(8, cores // 2))
