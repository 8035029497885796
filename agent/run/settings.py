"""The settings of a run: every option, once, with its type, default, limit, unit and line of help.

The command line (`agent/cli/settings_options.py`), the session, the record and plans of evaluations take options from
here: a new option is a field here and its use. It imports nothing heavy, as `pgo-agent --help` imports it. It reads no
command line and knows no run; facts collected by a run are in `facts.py`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from pgo_agent.agent.exit_codes import Exit

DEFAULT_DEVICE, SPOOL, RAY = "h200", "spool:", "ray:"
STATES = {"done": Exit.DONE, "none_found": Exit.NONE_FOUND, "budget": Exit.BUDGET}
Value = str | int | float | tuple[str, ...] | None  # of a setting
Changes = Mapping[str, Value]  # name of a setting -> its new value


class ProfileVisibility(StrEnum):
    """What the optimizer sees of profiles."""

    ALL = "all"
    COUNTERS = "counters"
    BOUND = "bound"
    NONE = "none"


class Command(StrEnum):
    """The commands that take settings from the command line."""

    OPTIMIZE = "optimize"
    SESSION = "session"
    CHECK = "check"
    INIT = "init"
    RESUME = "resume"
    PROFILE = "profile"
    DISPATCH = "dispatch"
    MCP = "mcp"  # the runs that a server opens
    EVAL = "eval"  # gate and mutants
    PLAN = "eval of a plan"  # ablation and nightly


SEARCH = frozenset({Command.OPTIMIZE, Command.SESSION})
GOING_ON = SEARCH | {Command.MCP, Command.RESUME}  # a run that goes on may get another
CHECK_ALONE = frozenset({Command.CHECK})
JUDGE = SEARCH | CHECK_ALONE | {Command.MCP}
EVERY = frozenset(Command) - {Command.RESUME}  # a run that goes on has most of it already
EVERYWHERE = EVERY - {Command.INIT, Command.DISPATCH}  # which compile for this machine's device, and a run's


@dataclass(frozen=True)
class Option:
    """How a user gives a setting."""

    help: str
    commands: frozenset[Command]  # that take it
    flag: str = ""  # empty: by the name of the setting
    least: float | None = None  # the smallest value
    metavar: str | None = None
    variable: str | None = None  # of the environment, for where the option is left out
    unset: str = ""  # what None means, in words
    budget: str = ""  # unit of a budget: it may change while a run goes on, and plans may set it; empty: it is none
    of_models: bool = False  # a budget that only models spend
    example: float | None = None  # for a plan
    of_machine: bool = False  # it says nothing to whoever makes the run again elsewhere
    key: str = ""  # in the record of a run; empty: the name of the setting
    stored: bool = True  # in that record; if not, it is kept elsewhere, or holds for one command


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a run. The fields stand in the order of `--help`."""

    device: Annotated[
        str | None,
        Option(
            "Compile for: h200, h100, a100, b200, rtx4090, rtx5090.",
            EVERYWHERE,
            unset=f"the GPU here, else {DEFAULT_DEVICE}",
            stored=False,  # a column of its own
        ),
    ] = None
    candidates: Annotated[int, Option("Budget: candidates.", SEARCH, least=1, budget="candidates", example=16)] = 12
    minutes: Annotated[
        float,
        Option("Budget: minutes of wall clock, over all resumptions.", GOING_ON, least=0.0, budget="min", example=40),
    ] = 20.0
    width: Annotated[int | None, Option("Candidates of one generation.", SEARCH, least=1, unset="4; on 16 cores 8")] = (
        None  # see default_width
    )
    patience: Annotated[int, Option("Generations without a win before the run ends.", SEARCH, least=1, example=4)] = 3
    judge: Annotated[
        str,
        Option(
            "auto, gpu (fail without one), cpu (Triton's interpreter), spool:DIR: a GPU elsewhere, where `python "
            "-m pgo_agent.sandbox.judge --spool DIR --target FILE` answers what is asked in that folder, or "
            "ray:ADDRESS: the GPUs of a Ray cluster (ray:local, ray:auto, ray:HOST:6379, ray://HOST:10001).",
            (EVERY - {Command.PROFILE}) | {Command.RESUME},
            of_machine=True,
        ),
    ] = "auto"
    gpus: Annotated[
        str | None,
        Option(
            "GPUs of this machine, by index or UUID, as nvidia-smi lists them; of a Ray cluster: how many.",
            EVERYWHERE | {Command.RESUME, Command.DISPATCH},
            metavar="0,1",
            unset="all visible",
            of_machine=True,
        ),
    ] = None
    cases: Annotated[
        tuple[str, ...],
        Option("Use only this public case; may be repeated.", JUDGE | {Command.INIT, Command.PROFILE}, flag="--case"),
    ] = ()  # empty: all
    drop_wrong: Annotated[
        bool,
        Option(
            "Go on where the fastest of the file's own configurations, which triton.autotune picks, is not right.",
            JUDGE,
        ),
    ] = False
    compile_reference: Annotated[
        bool,
        Option(
            "Time torch.compile of reference() in the last session, too (GPU; needs a C compiler; takes minutes).",
            SEARCH,
        ),
    ] = False
    compiler: Annotated[
        bool,
        Option("Do not propose what PyTorch's compiler writes for reference() (it is where a GPU measures).", SEARCH),
    ] = True
    sandbox: Annotated[
        str,
        Option("auto, bubblewrap, landlock or none.", EVERY, variable="PGO_AGENT_SANDBOX", of_machine=True),
    ] = "auto"
    models: Annotated[
        tuple[str, ...],
        Option(
            "Let a model propose, too: its NAME on a server (OPENAI_BASE_URL, OPENAI_API_KEY), relay:DIR (prompts and "
            "replies are files there), replay:FILE (a recording gives its replies again). embedded: none. May be "
            "repeated, as profiler=NAME and summarizer=NAME. Default: PGO_AGENT_MODEL, PGO_AGENT_PROFILER_MODEL, "
            "PGO_AGENT_SUMMARIZER_MODEL.",
            SEARCH,
            flag="--model",
            metavar="[ROLE=]NAME",
            stored=False,  # a fact of the run: who was named, by role
        ),
    ] = ()
    tokens: Annotated[
        int | None,
        Option(
            "Budget: tokens of all models, prompts and replies.",
            GOING_ON,
            least=0,
            unset="no limit",
            budget="tokens",
            of_models=True,
        ),
    ] = None
    money: Annotated[
        float | None,
        Option(
            "Budget: money for models, by the prices in ~/.config/pgo-agent/prices.toml.",
            GOING_ON,
            least=0.0,
            unset="no limit",
            budget="in money",
            of_models=True,
        ),
    ] = None
    gpu_seconds: Annotated[
        float | None,
        Option(
            "Budget: seconds of the GPU.", GOING_ON, least=0.0, unset="no limit", budget="s of the GPU", example=1200
        ),
    ] = None
    wait: Annotated[
        bool,
        Option(
            "Do not wait for answers in relay:DIR or spool:DIR: end with 5, and `resume` goes on with them.",
            frozenset({Command.OPTIMIZE, Command.CHECK, Command.RESUME, Command.PLAN}),
            stored=False,  # holds for one command
        ),
    ] = True
    profile_visibility: Annotated[
        ProfileVisibility,
        Option(
            "What of profiles the optimizer is told; counters: Nsight Compute's; bound: by what the work is bound.",
            SEARCH,
            flag="--profile",
            key="insight",
        ),
    ] = ProfileVisibility.ALL
    seed: Annotated[
        int, Option("Orders what nothing tells apart: source moves, and who proposes first.", SEARCH, least=0)
    ] = 0  # 0: moves in the order of the catalogue
    prompt_tokens: Annotated[
        int | None,
        Option(
            "Budget: tokens of a prompt, by estimate; what matters least is left out.",
            SEARCH,
            least=1,
            unset="16,000; 8,000 beside a kernel that takes more",
        ),
    ] = None  # see sections.py
    second_assembler: Annotated[
        bool, Option("Its results by another ptxas, too (GPU; pip install nvidia-cuda-nvcc).", CHECK_ALONE)
    ] = False
    memcheck: Annotated[bool, Option("Every kernel under compute-sanitizer, too (GPU; CUDA toolkit).", CHECK_ALONE)] = (
        False
    )
    python: Annotated[
        str,
        Option(
            "Interpreter with your torch and triton, for tracer, compiler and judge.",
            EVERY | {Command.RESUME},
            of_machine=True,
        ),
    ] = sys.executable
    interpreting: float | None = None  # seconds of Triton's interpreter for a candidate; None: the judge's own limit
    alone: bool = False  # learn nothing from earlier runs in the workspace: runs of a plan must not help one another
    controlled: bool = False  # the model alone proposes, and of its prompts the profile alone follows from a profile
    generations: int | None = None  # at most; None: as many as candidates and patience allow
    baseline_of: str = ""  # the run of this target whose baseline, and profile of it, are taken over; empty: its own
    profile_of: str = ""  # the run of another target whose profile is told in place of the own: wrong on purpose

    def changed(self, changes: Changes) -> "RunSettings":
        """Return these settings with others in place of some. Raises TypeError for an unknown name."""
        values: Any = changes
        return replace(self, **values)


TYPES: Mapping[str, Any] = get_type_hints(RunSettings)
DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(RunSettings)}
OPTIONS: Mapping[str, Option] = {
    name: wanted.__metadata__[0]
    for name, wanted in get_type_hints(RunSettings, include_extras=True).items()
    if get_origin(wanted) is Annotated
}
BUDGETS: Mapping[str, Option] = {name: o for name, o in OPTIONS.items() if o.budget}
OPTIONAL_BUDGETS: Mapping[str, Option] = {name: o for name, o in BUDGETS.items() if DEFAULTS[name] is None}


def kind(name: str) -> type:
    """Return the type of a setting's values, None aside."""
    wanted = TYPES[name]
    union = get_args(wanted) if NoneType in get_args(wanted) else (wanted,)
    return cast(type, next(t for t in union if t is not NoneType))


def flag(name: str) -> str:
    """Return the option of a setting as the command line takes it: `--no-` and its name where it is on by default."""
    return OPTIONS[name].flag or f"--{'no-' if DEFAULTS[name] is True else ''}{name.replace('_', '-')}"


def arguments(asked: RunSettings, command: Command) -> list[str]:
    """Return the settings as the command line of a command takes them, those that are not the defaults."""
    taken = {n: getattr(asked, n) for n, o in OPTIONS.items() if command in o.commands}
    changed = {n: value for n, value in taken.items() if value != DEFAULTS[n]}
    values = {n: v if isinstance(v, tuple) else (v,) for n, v in changed.items()}
    return [w for n, each in values.items() for v in each for w in ((flag(n),) if v is True else (flag(n), str(v)))]


def stored_as(name: str) -> str:
    """Return the key of a setting in the record of a run; empty for one that is not stored there."""
    option = OPTIONS.get(name)
    return name if option is None else (option.key or name) if option.stored else ""


def with_minutes(asked: RunSettings, minutes: float | None) -> RunSettings:
    """Return the settings with the minutes that a check was given, which limit the interpreter, too.

    None: nobody gave any, and both keep their own limits.
    """
    return asked if minutes is None else replace(asked, minutes=minutes, interpreting=60 * minutes or None)


def default_width(cores: int) -> int:
    """Return the candidates of a generation: four, and up to eight where there are cores to build them at a time."""
    return max(4, min(8, cores // 2))
