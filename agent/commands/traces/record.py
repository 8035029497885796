"""`pgo-agent trace -- PROGRAM`: runs a program under tritonparse's hooks, and ranks the kernels that it launched.

The program runs as it is, with its user's rights, on the GPU of this machine. Relies on
`sandbox/tracer/with_tritonparse.py`, which runs in the interpreter that has the program's packages.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pgo_agent.agent.commands.init import program
from pgo_agent.agent.commands.traces import listing, summary
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

MODULE = "pgo_agent.sandbox.tracer.with_tritonparse"
_ABLE = "import importlib.util as u, torch; print(u.find_spec('tritonparse') is not None, torch.cuda.is_available())"
ENVIRONMENT = {"TORCHINDUCTOR_RUN_JIT_POST_COMPILE_HOOK": "1"}  # else Inductor tells nobody what it compiled


def start(words: Sequence[str], to: Path, force: bool, python: str) -> None:
    """Run the program, and print what it launched. Raises UsageFault for no program, or one that launched nothing;
    EnvironmentFault where tritonparse or a GPU is missing."""
    if not words:
        raise UsageFault("no program is given", "for example: pgo-agent trace -- python train.py")
    asked = program.of_command(words)
    _refuse(to, force)
    _able(python)
    to.mkdir(parents=True, exist_ok=True)
    for old in to.glob("*.ndjson"):
        old.unlink()
    command = [python, "-m", MODULE, str(to.resolve()), asked.kind, *asked.args]
    ended = subprocess.run(command, env=os.environ | ENVIRONMENT, check=False).returncode
    if ended:
        print(f"note: the program ended with exit code {ended}; what it launched until then is used", file=sys.stderr)
    trace = summary.summarize(to)
    listing.show(trace, None)


def _refuse(to: Path, force: bool) -> None:
    if to.exists() and not (to.is_dir() and (force or not any(to.iterdir()))):
        raise UsageFault(f"{to} is there already", "name another folder with -o, or --force to write over its trace")


def _able(python: str) -> None:
    """Raise EnvironmentFault where an interpreter cannot record a trace."""
    try:
        done = subprocess.run([python, "-c", _ABLE], capture_output=True, text=True, check=True, timeout=120)
    except (subprocess.SubprocessError, OSError) as e:
        said = getattr(e, "stderr", "") or str(e)
        raise EnvironmentFault(
            f"{python} cannot import torch: {said.strip()[-300:]}", "name another one by --python"
        ) from None
    parse, gpu = done.stdout.split()[-2:]
    if parse != "True":
        raise EnvironmentFault("tritonparse is not installed", 'pip install "pgo-agent[trace]"')
    if gpu != "True":
        hint = "run it where the GPU is; a trace from there is read here: init --from-trace"
        raise EnvironmentFault("there is no GPU here, and a trace is of what a GPU runs", hint)
