"""`python -m pgo_agent.sandbox.tracer.guard_time FOLDER`: how long a launcher's guards take on the host.

Reads FOLDER/request.json (the text of the guards, their names in the order of asking, and for each case what they are
given) and answers FOLDER/out/result.json: case -> seconds of a call. Tensors have no memory: shapes, strides and types
are what guards look at. What they ask of the GPU is remembered by the process, so it is timed as that: a cached answer.
Runs in the box.
"""

import functools
import json
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CALLS, TURNS = 2000, 7  # calls of a turn; of the turns the fastest counts


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    names: dict[str, Any] = {"torch": torch, "functools": functools}
    exec(compile(request["text"], "guards", "exec"), names)  # our own text, in the box
    guards = [names[n] for n in request["guards"]]
    known = _known()
    cases = {c: {n: _value(x) for n, x in given.items()} for c, given in request["cases"].items()}
    seconds = {c: _asked(guards, given, known) for c, given in cases.items()}
    (folder / "out" / "result.json").write_text(json.dumps(seconds))


def _known() -> float:
    """Return the seconds that it takes to ask a tensor for its device, and for what is remembered of that."""
    proven = functools.cache(lambda _device: True)
    tensor = torch.empty(1, device="meta")
    return _fastest(lambda: proven(tensor.device))


def _asked(guards: list[Callable[..., bool]], given: dict[str, Any], known: float) -> float:
    """Return the seconds of asking the guards in turn until one holds; `known`: of its last question."""

    def ask() -> bool:
        return any(g(**given) for g in guards)

    return _fastest(ask) + known


def _fastest(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=CALLS, repeat=TURNS)) / CALLS


def _value(x: Any) -> Any:
    """Return an argument from its form in a plan."""
    if isinstance(x, list):
        return [_value(one) for one in x]
    if not isinstance(x, dict):
        return x
    if "size" in x:
        dtype = getattr(torch, x["dtype"])
        return torch.empty_strided(x["size"], x["stride"], dtype=dtype, device="meta")
    if "f" in x:
        return float.fromhex(x["f"])
    return getattr(torch, x["torch"]) if "torch" in x else x.get("device")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
