"""What tokens cost: a table of prices that the user writes. None ships: prices change, and differ by contract.

A TOML file, `~/.config/pgo-agent/prices.toml` unless another is named, with one table for each model by the name that
`--model` takes (`relay` for all folders), in any one unit of money, for a million tokens:

    ["some-model"]
    prompt = 1.25
    completion = 10
"""

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.errors import UsageFault

MILLION = 1_000_000
MOST = 1e6  # for a million tokens: more is a slip
FILE, VARIABLE = "pgo-agent/prices.toml", "PGO_AGENT_PRICES"


@dataclass(frozen=True)
class Price:
    """Of a million tokens."""

    prompt: float
    completion: float

    def of(self, prompt: int, completion: int) -> float:
        return (prompt * self.prompt + completion * self.completion) / MILLION


def file() -> Path:
    """Return the path of the table, whether it exists or not."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / FILE


def read() -> dict[str, Price]:
    """Return the table; empty without a file. Raises UsageFault with what is wrong with it."""
    path = file()
    try:
        table = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as e:
        raise UsageFault(f"cannot read the prices in {path}: {e}", "fix it, or move it away") from None
    return {name: _price(path, name, entry) for name, entry in table.items()}


def entry(model: str) -> str:
    """Return the entry of the table for a model that `--model` names."""
    return "relay" if model.startswith("relay:") else model


def wanted(table: Mapping[str, Price], model: str) -> Price:
    """Return the price of a model, for a budget of money. Raises UsageFault that says how to give it."""
    name = entry(model)
    if name not in table:
        raise UsageFault(
            f"--money, but no price is known of {model}",
            f'write what a million of its tokens cost into {file()}: ["{name}"], then prompt = 1.25, completion = 10',
        )
    return table[name]


def _price(path: Path, name: str, entry: Any) -> Price:
    numbers_by_kind = entry if isinstance(entry, dict) else {}
    numbers = [numbers_by_kind.get(kind) for kind in ("prompt", "completion")]
    if set(numbers_by_kind) != {"prompt", "completion"} or not all(_fits(n) for n in numbers):
        raise UsageFault(
            f"{path}: '{name}' is no price", "give it prompt and completion, each the money for a million tokens"
        )
    return Price(*(float(n) for n in numbers if n is not None))


def _fits(n: object) -> bool:
    return isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) and 0 <= n <= MOST
