"""Reads a plan: a TOML file. Every entry is checked, and refused with what is wrong with it.

An evaluation says in a `Shape` which entries it wants; this module knows no evaluation.
"""

import hashlib
import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from pgo_agent.agent.run import settings
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

MOST = 1e6
P = TypeVar("P")
Problem = Callable[[object], str]  # what is wrong with a value; empty where nothing is
Shape = Mapping[str, Problem]


def read(file: Path, shape: Shape, hint: str, optional: Collection[str] = ()) -> JsonObject:
    """Return what the plan says, its lists as tuples. Raises UsageFault with what is wrong with it."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageFault(f"cannot read the plan {file}: {e.strerror}", hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise UsageFault(f"{file} is no TOML: {e}", hint) from None
    if missing := [name for name in shape if name not in values and name not in optional]:
        raise UsageFault(f"{file}: it says nothing of {', '.join(missing)}", hint)
    if unknown := sorted(values.keys() - shape.keys()):
        raise UsageFault(f"{file}: it may not say anything of {', '.join(unknown)}", hint)
    for name in (n for n in shape if n in values):
        if why := shape[name](values[name]):
            raise UsageFault(f"{file}: {name} {why}", hint)
    return {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}


def digest(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a plan says, whatever its file looks like."""
    return hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode()).hexdigest()


# settings of a run ----------------------------------------------------------------------------------------------------


def shape_of(names: Collection[str]) -> Shape:
    """Return what these settings of a run may be in a plan: numbers above 0, whole ones where the setting is, or true
    and false."""
    return {name: SHAPES.get(settings.kind(name), number) for name in names}


def limits_of(values: JsonObject, names: Collection[str]) -> RunSettings:
    """Take these settings of a run out of what a plan says, and return them."""
    of_run: Callable[..., RunSettings] = RunSettings
    return of_run(**{name: values.pop(name) for name in names if name in values})


def plan(kind: Callable[..., P], values: JsonObject, limits: RunSettings) -> P:
    """Return a plan of these values, whose shape was checked when they were read."""
    return kind(**values, limits=limits)


def values_of(limits: RunSettings, names: Collection[str]) -> dict[str, float | None]:
    """Return these settings as a plan's file says them; None for what it leaves out."""
    return {name: getattr(limits, name) for name in names}


def applied(limits: RunSettings, names: Collection[str], run_settings: RunSettings) -> RunSettings:
    """Return what the command line asks of a run, with these settings of the plan in their place."""
    return run_settings.changed(values_of(limits, names))


# shapes of values -----------------------------------------------------------------------------------------------------


def number(value: object) -> str:
    return "" if type(value) in (int, float) and 0 < cast(float, value) < MOST else "is no number above 0"


def whole(value: object) -> str:
    return number(value) if isinstance(value, int) else "is no whole number"


def flag(value: object) -> str:
    return "" if type(value) is bool else "is neither true nor false"


def text(value: object) -> str:
    return "" if isinstance(value, str) and value else "is no text"


def different(what: str, fits: Callable[[Any], bool]) -> Problem:
    """Return a check of a list: not empty, and without a repeated entry."""

    def problem(value: object) -> str:
        fine = isinstance(value, list) and value and all(map(fits, value)) and len(set(value)) == len(value)
        return "" if fine else f"is no list of different {what}"

    return problem


SHAPES: Mapping[type, Problem] = {int: whole, bool: flag}  # of settings by their kind; of others `number`
TEXTS = different("texts", lambda x: isinstance(x, str) and bool(x))
SEEDS = different("numbers from 0", lambda x: type(x) is int and x >= 0)
