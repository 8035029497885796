"""What this GPU reaches at best: a large matrix product, and reading and copying of device memory. Measured once.

The physical floor of a kernel's time comes from it. The matrix is all zeros, which draws least power and so runs at the
highest clock. Figures are kept per GPU, driver and torch in the user's cache folder; a file that cannot be read or
written is no fault: it is measured again. Who is about to accuse a kernel of beating the floor measures anew.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox.judge import environment

MARGIN = 1.1  # a kernel may beat the best that was seen by as much
SIZES, LAUNCHES = (4096, 8192), 10
COPIED = 1 << 30  # bytes


@dataclass(frozen=True)
class Peaks:
    """Rates that were seen."""

    flops: float  # FLOP/s of a dense fp16 matrix product
    moved: float  # bytes/s of device memory, read and written together

    def floor_ms(self, flops: float, moved: float, narrow: bool, l2: int) -> float:
        """ms below which no kernel does so many operations and moves so many bytes.

        `narrow`: as in `best_flops`. What was written last may still be in the L2 (`l2` bytes) when the clock stops.
        """
        fastest = self.best_flops(narrow) * MARGIN
        return 1e3 * max(flops / fastest, max(0.0, moved - l2) / (self.moved * MARGIN))

    def best_flops(self, narrow: bool) -> float:
        """FLOP/s; twice as many where types of one byte take part (`narrow`), as tensor cores do of these."""
        return self.flops * (2 if narrow else 1)


def known(device: Any) -> Peaks:
    """The peaks from the cache, or measured now and put there."""
    path, key = _cache(), _key(device)
    found = kept(path)
    if key in found:
        with contextlib.suppress(TypeError):
            return Peaks(**found[key])
    return measured(device)


def measured(device: Any, seen: Peaks | None = None) -> Peaks:
    """Measured now, and never less than what was `seen` before; put into the cache."""
    flops = max(_product(n, device) for n in SIZES)
    moved = _memory(device)
    best = Peaks(max(flops, seen.flops if seen else 0.0), max(moved, seen.moved if seen else 0.0))
    with contextlib.suppress(OSError):
        keep(_cache(), _key(device), best)
    return best


def keep(path: Path, key: str, best: Peaks) -> None:
    """Puts it into the file; what other GPUs' processes put there at the same moment stays. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_text(json.dumps(kept(path) | {key: asdict(best)}))
        part.replace(path)


def _product(n: int, device: Any) -> float:
    a = torch.zeros((n, n), dtype=torch.float16, device=device)
    out = torch.empty_like(a)
    operations = 2.0 * n * n * n
    return operations / _best(lambda: torch.mm(a, a, out=out))


def _memory(device: Any) -> float:
    a, b = (torch.zeros(COPIED // 8, dtype=torch.float64, device=device) for _ in range(2))
    return max(2 * COPIED / _best(lambda: b.copy_(a)), COPIED / _best(lambda: a.sum()))


def _best(launch: Callable[[], object]) -> float:
    """Seconds of the fastest of some launches."""
    launch()
    times: list[float] = []
    for _ in range(LAUNCHES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(end)) / 1e3)
    return min(times)


def _key(device: Any) -> str:
    properties = torch.cuda.get_device_properties(device)
    return " ".join(map(str, (properties.name, properties.uuid, environment.driver_release(), torch.__version__)))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError:  # a user without a home
            base = tempfile.gettempdir()
    return Path(base) / "pgo-agent" / "peaks.json"


def kept(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
