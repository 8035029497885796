"""Runs with a candidate to export, and a Python without us that launches what was exported in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

from pgo_agent.agent.llm.replies.merge_contract import merge
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.command_line import write
from tests.agent.proposed import proposed
from tests.sandbox import forked_python

RUN = "run-1"
NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(256, 512)]


def get_init_inputs():
    return [512]
"""
NORM_KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x, weight, bias, z, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(inside, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
    result = centred * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(z + row * columns + at, result, mask=inside)


def kernel(x, norm_weight, norm_bias, features):
    z = torch.empty_like(x)
    rows, columns = x.shape
    _norm[(rows,)](x, norm_weight, norm_bias, z, columns, BLOCK=triton.next_power_of_2(columns))
    return z
"""
# Before the program: nothing of ours can be imported, and of a list of configurations the first is taken.
APART = """
import sys


class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pgo_agent":
            raise ImportError("a module of pgo-agent is imported")


sys.meta_path.insert(0, Refused())
import torch
import triton
from triton.runtime.autotuner import Autotuner

Autotuner.run = lambda self, *a, **k: self.fn.run(*a, **k, **self.configs[0].all_kwargs())
torch.manual_seed(0)
"""


def added(store: Store, path: Path, source: str, verdict: Verdict, kind: str = "source", name: str = "c1") -> None:
    """A run of the target at `path` with one candidate of that verdict."""
    found = target.read(path)
    store.add_run(RUN, path, found.digest, found.source, "h200", RunSettings(), RunFacts())
    told = {"kind": kind, "move": "fewer warps", "rationale": "r"}
    store.add_generation(RUN, 1, "shipped", [proposed(source, name, **told)])
    judged = Judgement(verdict, "interpreter", plain("right on 2 small cases"), coverage=coverage.of(cases=1))
    store.set_verdict(RUN, name, judged, None, 1.0)


def add_run(folder: Path, verdict: Verdict = Verdict.CHECKED, edit: str = "", kind: str = "source") -> Store:
    """A run of tests/kernels/add.py. `edit`: a line that its candidate has before the kernel."""
    path, store = write(folder), Store(folder / ".pgo-agent")
    source = target.read(path).source.replace("@triton.autotune", f"{edit}\n\n\n@triton.autotune", 1)
    added(store, path, source, verdict, kind)
    return store


def problem_run(folder: Path) -> Store:
    """A run of the target of NORM, with a candidate in Triton. `init` wrote it to norm_target.py."""
    path, store = folder / "norm_target.py", Store(folder / ".pgo-agent")
    added(store, path, merge(path.read_text(), NORM_KERNEL), Verdict.CHECKED)
    return store


def fresh(program: str, folder: Path, *paths: Path) -> str:
    """What a program prints in a fresh Python with Triton's interpreter, without anything of ours."""
    env = {n: v for n, v in os.environ.items() if not n.startswith("PYTHON")}
    env |= {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", APART + program], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def apart(program: str, folder: Path, *paths: Path) -> str:
    """The same in a process that is forked from one that has torch: it cannot import anything of ours either."""
    place = f"import os, sys\nos.chdir({str(folder)!r})\nsys.path[:0] = {[str(p) for p in paths]!r}\n"
    done = forked_python.ran(place + APART + program, interpreted=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
