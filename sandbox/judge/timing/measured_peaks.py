"""The best measured rates of this GPU: a large matrix product, and reading and copying device memory.

The physical floor of a kernel's time comes from them. The matrix is all zeros, which draws least power and so runs at
the highest clock. Rates are stored per GPU, driver and torch in the user's cache folder; if the file cannot be read or
written, they are measured again. They are also measured again before a kernel is accused of beating the floor.
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
from pgo_agent.sandbox.judge.questions import PEAK_MARGIN

SIZES, LAUNCHES = (4096, 8192), 10
COPIED = 1 << 30  # bytes


@dataclass(frozen=True)
class Peaks:
    """Measured rates."""

    flops: float  # FLOP/s of a dense fp16 matrix product
    moved: float  # bytes/s of device memory, read and written together

    def floor_ms(self, flops: float, moved: float, narrow: bool, l2: int) -> float:
        """Return the least time in ms for so many operations (FLOP) and moved bytes.

        `narrow`: as in `best_flops`. The last `l2` bytes may still be in the L2 cache when the clock stops.
        """
        fastest = self.best_flops(narrow) * PEAK_MARGIN
        return 1e3 * max(flops / fastest, max(0.0, moved - l2) / (self.moved * PEAK_MARGIN))

    def best_flops(self, narrow: bool) -> float:
        """Return FLOP/s; for one-byte types (`narrow`) twice as many, as tensor cores do."""
        return self.flops * (2 if narrow else 1)


def load_or_measure(device: Any) -> Peaks:
    """Return the peaks from the cache; measure and store them where there are none."""
    path, key = _cache(), _key(device)
    stored = read_cache(path)
    if key in stored:
        with contextlib.suppress(TypeError):
            return Peaks(**stored[key])
    return measured(device)


def measured(device: Any, seen: Peaks | None = None) -> Peaks:
    """Measure the peaks, at least those `seen` before, and store them in the cache."""
    flops = max(_product(n, device) for n in SIZES)
    moved = _memory(device)
    best = Peaks(max(flops, seen.flops if seen else 0.0), max(moved, seen.moved if seen else 0.0))
    with contextlib.suppress(OSError):
        keep(_cache(), _key(device), best)
    return best


def keep(path: Path, key: str, best: Peaks) -> None:
    """Store one entry in the file, under a lock: entries of other GPUs stay. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_text(json.dumps(read_cache(path) | {key: asdict(best)}))
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
    """Return the time in s of the fastest of some launches."""
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


def read_cache(path: Path) -> dict[str, Any]:
    """Read all stored entries; empty where the file cannot be read."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}
