"""What `nvidia-smi` says where there is no GPU: libraries run it to find out which one they have.

Only `subprocess.run` is replaced, which `check_output` calls, too. Any other command is run as it is.
"""

import shlex
import subprocess
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.devices import Device

QUERY = "--query-gpu="


def install(device: Device) -> None:
    """Answer for the device. Call it once in a process."""
    plain = subprocess.run

    def run(args: Any, *rest: Any, **options: Any) -> Any:
        words = shlex.split(args) if isinstance(args, str) else [str(a) for a in args]
        if not words or Path(words[0]).name != "nvidia-smi":
            return plain(args, *rest, **options)
        asked = next((w.removeprefix(QUERY) for w in words if w.startswith(QUERY)), "name")
        said = ", ".join(_properties(device).get(a.strip(), "[N/A]") for a in asked.split(",")) + "\n"
        text = any(options.get(o) for o in ("text", "universal_newlines", "encoding"))
        return subprocess.CompletedProcess(args, 0, said if text else said.encode(), "" if text else b"")

    subprocess.run = run


def _properties(d: Device) -> dict[str, str]:
    sm, memory = str(d.sm_khz // 1000), str(d.mem_khz // 1000)  # MHz
    return {
        "name": d.name,
        "gpu_name": d.name,
        "compute_cap": ".".join(map(str, divmod(d.arch, 10))),
        "memory.total": str(d.memory >> 20),  # MiB
        "count": "1",
        **dict.fromkeys(("clocks.max.sm", "clocks.max.graphics", "clocks.current.sm"), sm),
        **dict.fromkeys(("clocks.max.mem", "clocks.max.memory", "clocks.current.memory"), memory),
    }
