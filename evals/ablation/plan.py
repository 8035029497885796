"""The plan of an ablation: a TOML file that is fixed before the first run. Its hash stands in every result.

Relies on nothing but the file. What it leaves out has no default: whoever reads a result finds all of it in one place.
"""

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

from pgo_agent.agent.insight import Insight
from pgo_agent.sandbox.errors import UsageFault

METRICS = ("anytime", "final", "right")  # see scores.py
MOST = 1e6
HINT = "mend the plan; `pgo-agent eval ablation --help` shows one"


@dataclass(frozen=True, order=True)
class Arm:
    """What differs between runs of one target and seed."""

    model: str  # as `--model` takes it
    insight: Insight

    def __str__(self) -> str:
        return f"{self.model}, told {self.insight}"


@dataclass(frozen=True)
class Wanted:
    """One run."""

    target: str
    seed: int
    arm: Arm


@dataclass(frozen=True)
class Plan:
    metric: str  # what is compared: one of METRICS
    targets: tuple[str, ...]  # kernel files, or names of kernels that ship
    insights: tuple[Insight, ...]  # the first one is what the others are compared with
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    candidates: int  # of a run
    patience: int  # generations without a win before it ends
    minutes: float  # of a run: a run that is ended by them is left out, for builds of one arm may serve another

    @property
    def digest(self) -> str:
        """SHA-256 of what the plan says, whatever its file looks like."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def runs(self) -> list[Wanted]:
        """In the order in which they are made: arms of a target and seed stand together, and take turns to be first."""
        arms = [Arm(m, i) for m, i in product(self.models, self.insights)]
        return [
            Wanted(target, seed, arm)
            for target in self.targets
            for n, seed in enumerate(self.seeds)
            for arm in (*arms[n % len(arms) :], *arms[: n % len(arms)])
        ]


def read(file: Path) -> Plan:
    """The plan in a file. Raises UsageFault with what is wrong with it."""
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageFault(f"cannot read the plan {file}: {e.strerror}", HINT) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise UsageFault(f"{file} is no TOML: {e}", HINT) from None
    if missing := [name for name in SHAPE if name not in said]:
        raise _wrong(file, f"it says nothing of {', '.join(missing)}")
    if unknown := sorted(said.keys() - SHAPE.keys()):
        raise _wrong(file, f"it may not say anything of {', '.join(unknown)}")
    for name, problem in SHAPE.items():
        if why := problem(said[name]):
            raise _wrong(file, f"{name} {why}")
    kept: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in said.items()}
    kept |= {"insights": tuple(map(Insight, said["insights"])), "minutes": float(said["minutes"])}
    return Plan(**kept)


def _metric(said: object) -> str:
    return "" if said in METRICS else f"is none of {', '.join(METRICS)}"


def _number(said: object) -> str:
    return "" if type(said) in (int, float) and 0 < cast(float, said) < MOST else "is no number above 0"


def _whole(said: object) -> str:
    return _number(said) if isinstance(said, int) else "is no whole number"


def _different(what: str, fits: Callable[[Any], bool]) -> Callable[[object], str]:
    """A list of at least one, each another one."""

    def problem(said: object) -> str:
        fine = isinstance(said, list) and said and all(map(fits, said)) and len(set(said)) == len(said)
        return "" if fine else f"is no list of different {what}"

    return problem


SHAPE: Mapping[str, Callable[[object], str]] = {  # of the file: what is wrong with a value; empty where nothing is
    "metric": _metric,
    "targets": _different("texts", lambda x: isinstance(x, str) and bool(x)),
    "insights": _different(f"ones of {', '.join(Insight)}", lambda x: x in list(Insight)),
    "models": _different("texts", lambda x: isinstance(x, str) and bool(x)),
    "seeds": _different("numbers from 0", lambda x: type(x) is int and x >= 0),
    "candidates": _whole,
    "patience": _whole,
    "minutes": _number,
}


def _wrong(file: Path, why: str) -> UsageFault:
    return UsageFault(f"{file}: {why}", HINT)


def pairs(arms: Sequence[Arm], insights: Sequence[Insight]) -> list[tuple[Arm, Arm]]:
    """Each arm with the one it is compared with: the same model, told what the plan names first."""
    return [(Arm(a.model, insights[0]), a) for a in arms if a.insight != insights[0]]
