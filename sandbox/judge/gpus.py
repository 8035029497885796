"""Which GPUs of this machine may be used: what nvidia-smi lists, cut to CUDA_VISIBLE_DEVICES and to `--gpus`.

A GPU is known by its UUID. Judge processes get that in place of an index: CUDA may count otherwise than nvidia-smi,
whose order the indices here are. An instance of MIG is a GPU of its own. Nothing here starts CUDA.
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
    """One that a process can be given."""

    uuid: str  # GPU-... or MIG-...
    index: str  # as nvidia-smi counts; "0:1" is the instance 1 of the GPU 0
    model: str  # as its driver calls it; of an instance: the whole GPU's

    @property
    def said(self) -> str:
        return f"GPU {self.index} ({self.uuid})"


def visible_gpu() -> str | None:
    """The first GPU that this process may use, as CUDA_VISIBLE_DEVICES names it; None when there is none."""
    return next(iter(visible_gpus()), None)


def visible_gpus() -> list[str]:
    """Every GPU that this process may use, as CUDA_VISIBLE_DEVICES names it. Asks nobody: a name may be no GPU."""
    if not Path("/dev/nvidiactl").exists():
        return []
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return _up_to_none(listed)
    found = [p for p in Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()]
    return [str(i) for i in range(len(found))]


def _up_to_none(listed: str) -> list[str]:
    """What such a list names; as for CUDA, an empty name and -1 end it."""
    names = [name.strip() for name in listed.split(",")]
    return names[: next((i for i, n in enumerate(names) if n in ("", "-1")), len(names))]


# by their UUIDs -------------------------------------------------------------------------------------------------------


def usable(only: str | None = None) -> list[Gpu]:
    """Every GPU that this process may use, or those of them that `only` names ("0,1").

    Raises EnvironmentFault where nvidia-smi does not answer, UsageFault for a name in `only` that is no such GPU.
    """
    if not visible_gpus():
        return []
    known = listed()
    found = visible_of(os.environ.get("CUDA_VISIBLE_DEVICES"), known)
    return found if only is None else narrowed(only, found, known)


def named(name: str) -> Gpu:
    """The GPU of this machine that is called so, whether it is visible or not. Raises as `usable`."""
    known = listed()
    return _must_be(find(name, known), name, known)


def listed() -> list[Gpu]:
    """Every GPU that nvidia-smi lists. Raises EnvironmentFault where it does not answer."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as e:
        hint = "use --judge cpu to go on without a GPU"
        raise EnvironmentFault(f"cannot ask nvidia-smi which GPUs there are: {e}", hint) from None
    return parse(done.stdout)


def parse(text: str) -> list[Gpu]:
    """What `nvidia-smi -L` prints. Of a GPU with instances they are listed, and not itself: CUDA shows no other."""
    found: list[Gpu] = []
    whole: Gpu | None = None
    for line in text.splitlines():
        if m := _GPU.fullmatch(line.rstrip()):
            whole = Gpu(m[3], m[1], m[2])
            found.append(whole)
        elif whole and (m := _MIG.fullmatch(line.rstrip())):
            found = [g for g in found if g is not whole]
            found.append(Gpu(m[2], f"{whole.index}:{m[1]}", whole.model))
    return found


def visible_of(names: str | None, known: Sequence[Gpu]) -> list[Gpu]:
    """What CUDA_VISIBLE_DEVICES leaves of the GPUs: each once. As for CUDA, a name that is no GPU ends the list."""
    return list(known) if names is None else list(dict.fromkeys(_up_to_unknown(names, known)))


def _up_to_unknown(names: str, known: Sequence[Gpu]) -> Iterator[Gpu]:
    for name in _up_to_none(names):
        gpu = find(name, known)
        if gpu is None:
            return
        yield gpu


def narrowed(names: str, visible: Sequence[Gpu], known: Sequence[Gpu]) -> list[Gpu]:
    """The visible GPUs that are named. Raises UsageFault for a name of none of them, and where nothing is named."""
    wanted = [n.strip() for n in names.split(",") if n.strip()]
    if not wanted:
        raise UsageFault("--gpus names no GPU", _there(visible))
    found = [_must_be(find(n, known), n, visible) for n in wanted]
    return list(dict.fromkeys(found))


def find(name: str, known: Sequence[Gpu]) -> Gpu | None:
    """A GPU by its index, its UUID or the beginning of that which is no other's; of one with instances the first."""
    if name.isdigit():
        return next((g for g in known if g.index.partition(":")[0] == str(int(name))), None)
    same = [g for g in known if name in (g.uuid, g.index)]
    begin = [g for g in known if name.startswith(("GPU-", "MIG-")) and g.uuid.startswith(name)]
    return same[0] if same else begin[0] if len(begin) == 1 else None


def _must_be(gpu: Gpu | None, name: str, visible: Sequence[Gpu]) -> Gpu:
    if gpu is None or gpu not in visible:
        raise UsageFault(f"no GPU that may be used here is called '{name}'", _there(visible))
    return gpu


def _there(visible: Sequence[Gpu]) -> str:
    told = "; ".join(f"{g.index}: {g.model}, {g.uuid}" for g in visible)
    return f"there are {told}" if visible else "there is none"
