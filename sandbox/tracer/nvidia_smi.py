"""What `nvidia-smi` says where there is no GPU: libraries run it to find out which one they have.

Only `subprocess.run` is replaced, which `check_output` calls, too. Any other command is run as it is.
"""

import shlex
import subprocess
from pathlib import Path
from typing import Any


def install(name: str) -> None:
    """Answer with the name of the device. Call it once in a process."""
    plain = subprocess.run

    def run(args: Any, *rest: Any, **options: Any) -> Any:
        words = shlex.split(args) if isinstance(args, str) else [str(a) for a in args]
        if not words or Path(words[0]).name != "nvidia-smi":
            return plain(args, *rest, **options)
        text = any(options.get(o) for o in ("text", "universal_newlines", "encoding"))
        said = f"{name}\n"
        return subprocess.CompletedProcess(args, 0, said if text else said.encode(), "" if text else b"")

    subprocess.run = run
