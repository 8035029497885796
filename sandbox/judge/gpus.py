"""The GPUs of this machine that may be used: those of nvidia-smi, limited by CUDA_VISIBLE_DEVICES and `--gpus`.

A GPU is named by its UUID. Judge processes get the UUID and no index, because CUDA and nvidia-smi may count in another
order; indices here are nvidia-smi's. A MIG instance counts as a GPU. Nothing here starts CUDA.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

_GPU = re.compile(r"GPU (\d+): (.+) \(UUID: (GPU-[0-9A-Za-z-]+)\)")
_MIG = re.compile(r"\s+MIG \S+\s+Device\s+(\d+): \(UUID: (MIG-[0-9A-Za-z/-]+)\)")


@dataclass(frozen=True)
class Gpu:
    """A GPU that a process can use."""

    uuid: str  # GPU-... or MIG-...
    index: str  # as nvidia-smi counts; "0:1" is the instance 1 of the GPU 0
    model: str  # as its driver calls it; of an instance: the whole GPU's


def visible_gpu() -> str | None:
    """Return the first GPU that this process may use, as CUDA_VISIBLE_DEVICES names it, or None."""
    return next(iter(visible_gpus()), None)


def visible_gpus() -> list[str]:
    """Return every GPU that this process may use, as CUDA_VISIBLE_DEVICES names it. Names are not checked."""
    if not Path("/dev/nvidiactl").exists():
        return []
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return _up_to_none(listed)
    devices = [p for p in Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()]
    return [str(i) for i in range(len(devices))]


def _up_to_none(listed: str) -> list[str]:
    """Return the names of such a list. As in CUDA, an empty name or -1 ends it."""
    names = [name.strip() for name in listed.split(",")]
    return names[: next((i for i, n in enumerate(names) if n in ("", "-1")), len(names))]


# by their UUIDs -------------------------------------------------------------------------------------------------------


def usable(only: str | None = None) -> list[Gpu]:
    """Return every GPU that this process may use, or those of them that `only` names ("0,1").

    Raises EnvironmentFault where nvidia-smi fails, UsageFault for a name in `only` of no such GPU.
    """
    if not visible_gpus():
        return []
    every = listed()
    visible = visible_of(os.environ.get("CUDA_VISIBLE_DEVICES"), every)
    return visible if only is None else narrowed(only, visible, every)


def named(name: str) -> Gpu:
    """Return the GPU of this machine with that name, visible or not. Raises as `usable`."""
    every = listed()
    return _must_be(find(name, every), name, every)


def listed() -> list[Gpu]:
    """Return every GPU that nvidia-smi lists. Raises EnvironmentFault where it fails."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as e:
        hint = "use --judge cpu to go on without a GPU"
        raise EnvironmentFault(f"cannot ask nvidia-smi which GPUs there are: {e}", hint) from None
    return parse(done.stdout)


def parse(text: str) -> list[Gpu]:
    """Read the output of `nvidia-smi -L`. A GPU with MIG instances is replaced by them, as in CUDA."""
    result: list[Gpu] = []
    whole: Gpu | None = None
    for line in text.splitlines():
        if m := _GPU.fullmatch(line.rstrip()):
            whole = Gpu(m[3], m[1], m[2])
            result.append(whole)
        elif whole and (m := _MIG.fullmatch(line.rstrip())):
            result = [g for g in result if g is not whole]
            result.append(Gpu(m[2], f"{whole.index}:{m[1]}", whole.model))
    return result


def visible_of(names: str | None, every: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, each once. As in CUDA, an unknown name ends the list."""
    return list(every) if names is None else list(dict.fromkeys(_up_to_unknown(names, every)))


def _up_to_unknown(names: str, every: Sequence[Gpu]) -> Iterator[Gpu]:
    for name in _up_to_none(names):
        gpu = find(name, every)
        if gpu is None:
            return
        yield gpu


def narrowed(names: str, visible: Sequence[Gpu], every: Sequence[Gpu]) -> list[Gpu]:
    """Return the visible GPUs that are named. Raises UsageFault for another name, and for no name."""
    wanted = [n.strip() for n in names.split(",") if n.strip()]
    if not wanted:
        raise UsageFault("--gpus names no GPU", _there(visible))
    chosen = [_must_be(find(n, every), n, visible) for n in wanted]
    return list(dict.fromkeys(chosen))


def find(name: str, every: Sequence[Gpu]) -> Gpu | None:
    """Return a GPU by its index, its UUID or a unique prefix of that; the first instance of a GPU with instances."""
    if name.isdigit():
        return next((g for g in every if g.index.partition(":")[0] == str(int(name))), None)
    same = [g for g in every if name in (g.uuid, g.index)]
    begin = [g for g in every if name.startswith(("GPU-", "MIG-")) and g.uuid.startswith(name)]
    return same[0] if same else begin[0] if len(begin) == 1 else None


def _must_be(gpu: Gpu | None, name: str, visible: Sequence[Gpu]) -> Gpu:
    if gpu is None or gpu not in visible:
        raise UsageFault(f"no GPU that may be used here is called '{name}'", _there(visible))
    return gpu


def _there(visible: Sequence[Gpu]) -> str:
    names = "; ".join(f"{g.index}: {g.model}, {g.uuid}" for g in visible)
    return f"there are {names}" if visible else "there is none"
