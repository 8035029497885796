"""`python -m pgo_agent.sandbox.interpreter.as_shipped FOLDER`: runs a target's own kernel; compares nothing.

Runs in the box with TRITON_INTERPRET=1. FOLDER/request.json names the device, the target and the seconds. Of each small
or held-out case FOLDER/out/result.json tells (`Tried`) what no sizes of a sound target lead to: an error, memory
outside of the tensors, results that nobody wrote. A case of types that the interpreter lacks is left out.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.imports import heavy

HELD_OUT_FLOPS, HELD_OUT_BYTES = 1e8, 4e6  # of a held-out case that is interpreted
SEED = 7
UNWRITTEN = 0xFF  # each byte of memory that nobody wrote: see cuda_as_cpu.py


@dataclass(frozen=True)
class Tried:
    """What the kernel did in one case."""

    error: str = ""  # it failed, or reached outside of its tensors
    unwritten: int = 0  # elements of results
    of: int = 0  # elements
    late: bool = False  # there was no time to end it


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    with heavy():
        answer = _tried(folder, request)
    part = folder / "out" / "result.json.part"
    part.write_text(json.dumps({n: asdict(t) for n, t in answer.items()}))
    part.rename(part.with_suffix(""))
    os._exit(0)  # waiting blocks may still have threads


def _tried(folder: Path, request: Mapping[str, Any]) -> dict[str, Tried]:
    from pgo_agent.sandbox.interpreter.session import Session

    inner, file = folder / "out" / "run", (folder / request["target"]).resolve()
    for name in ("in", "out"):
        (inner / name).mkdir(parents=True)
    cases = _described(inner, file, devices.find(request["device"]))
    asked = {
        "candidate": str(file),
        "device": request["device"],
        "cases": cases,
        "configs": dict.fromkeys(cases, 1),
        "until": time.monotonic() + request["seconds"],
    }
    session = Session(inner, asked)
    session.work()
    answer = {n: _read(entries[0], inner / "out") for n, entries in session.results.items() if entries}
    return {n: answer.get(n) or Tried(late=True) for n in cases}


def _described(folder: Path, file: Path, device: Device) -> dict[str, dict[str, object]]:
    """Return the inputs of the cases that the interpreter can compute with, saved."""
    from pgo_agent.sandbox import target
    from pgo_agent.sandbox.interpreter import tensors
    from pgo_agent.sandbox.interpreter.cuda_as_cpu import DevicesOnCpu, answering
    from pgo_agent.sandbox.interpreter.floats import INTERPRETED
    from torch import Generator, Tensor
    from torch.utils._pytree import tree_leaves

    result = dict[str, dict[str, object]]()
    with answering(device), DevicesOnCpu():
        module = target.load(file, "pgo_target")
        for label, case in {**module.SMALL, **module.HELD_OUT}.items():
            if module.flops(case) > HELD_OUT_FLOPS or module.bytes_moved(case) > HELD_OUT_BYTES:
                continue
            inputs = dict(module.inputs(case, Generator().manual_seed(SEED)))
            floats = [t for t in tree_leaves(inputs) if isinstance(t, Tensor) and t.is_floating_point()]
            if all(t.dtype in INTERPRETED for t in floats):
                result[label] = tensors.save(inputs, folder / "in", str(len(result)))
    return result


def _read(entry: Mapping[str, Any], out: Path) -> Tried:
    from pgo_agent.sandbox import guard_zones
    from pgo_agent.sandbox.interpreter import tensors
    from torch import Tensor

    if "error" in entry:
        late = entry["unsupported"] or "endless" in entry
        line = f"line {entry['line']}: " if entry.get("line") else ""
        return Tried(late=True) if late else Tried(f"{line}{entry['error']}".split("\n")[0])
    if entry["stray"]:
        return Tried(guard_zones.said(entry["stray"]))
    outputs = tensors.load(entry["outputs"], out)
    floats = [t for t in outputs.values() if isinstance(t, Tensor) and t.is_floating_point()]
    return Tried(unwritten=sum(map(_unwritten, floats)), of=sum(t.numel() for t in floats))


def _unwritten(t: Any) -> int:
    import torch

    held = t.contiguous().view(torch.uint8).reshape(-1, t.dtype.itemsize)
    return int((held == UNWRITTEN).all(1).sum())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
