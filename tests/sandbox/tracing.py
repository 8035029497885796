"""Makes whole targets of snippets and traces them with real tracer processes.

Every public function of a snippet becomes a case of one target, so that a process traces many launchers. A snippet may
define `_inputs(tensor)` for inputs of its own.
"""

import ast
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.build.trace_and_compile import KnownConfigs
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Ran

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _copy(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)
"""
CONTRACT = """

def kernel(do, **given):
    launcher = globals()[do]
    names = launcher.__code__.co_varnames[: launcher.__code__.co_argcount]
    return launcher(**{name: given[name] for name in names})


def reference(do, **given):
    return given["x"]


def inputs(case, generator):
    def tensor(*size, dtype=torch.float16):
        return torch.randn(size, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)

    q, k, v = tensor(2, 128, 3, 64).unbind(2)
    own = globals().get("_inputs", lambda tensor: {})(tensor)
    return {"do": case["do"], **own, "x": tensor(4096), "m": tensor(64, 32), "f": tensor(64, 64, dtype=torch.float32),
            "q": q, "k": k, "v": v}


def flops(case):
    return 1


def bytes_moved(case):
    return 1


SMALL, HELD_OUT = {}, {}
"""


def launchers(text: str) -> list[str]:
    """The plain public functions of a snippet."""
    found = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    return [n.name for n in found if not n.decorator_list and not n.name.startswith("_")]


def write(folder: Path, text: str, name: str = "snippet") -> target.Target:
    """A target file whose cases are the launchers of `text`, which may take any of the inputs above by their names."""
    cases = {n: {"do": n} for n in launchers(text)}
    path = folder / f"{name}.py"
    path.write_text(f"{KERNELS}{text}{CONTRACT}CASES = {cases}\n")
    return target.read(path)


def builder(folder: Path, of: target.Target, device: str = "h200") -> Builder:
    return Builder(of, devices.find(device), box.choose(), ContentStore(folder / "shelf"))


def build(folder: Path, text: str, device: str = "h200", limit: int | None = None) -> Built:
    """Traces and compiles every launcher of a snippet."""
    made = write(folder, text)
    return builder(folder, made, device).build(made.source, {"CASES": None}, limit)


@dataclass(frozen=True)
class Traced:
    """What a tracer answered about a snippet."""

    source: str
    answer: dict[str, Any]

    def entries(self, case: str) -> list[dict[str, Any]]:
        assert "error" not in self.answer, self.answer["error"]
        found: list[dict[str, Any]] = self.answer["traced"]["CASES"][case]
        return found

    def plan(self, case: str) -> dict[str, Any]:
        """The plan of a case with a single configuration."""
        (entry,) = self.entries(case)
        assert "error" not in entry, entry["error"]
        plan: dict[str, Any] = entry["plan"]
        return plan

    def steps(self, case: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.plan(case)["steps"]
        return found

    def ttgir(self, step: dict[str, Any]) -> str:
        text: bytes = self.answer["texts"][step["kernel"]]
        return text.decode()

    def error(self, case: str) -> dict[str, Any]:
        (entry,) = self.entries(case)
        found: dict[str, Any] = entry["error"]
        return found

    def line(self, marked: str) -> int:
        """The line that carries the comment `# marked`."""
        (line,) = [i for i, text in enumerate(self.source.splitlines(), 1) if text.endswith(f"# {marked}")]
        return line


def trace(
    folder: Path,
    text: str,
    device: str = "h200",
    limit: int | None = None,
    cases: list[str] | None = None,
    known: KnownConfigs | None = None,
    varied: frozenset[str] | None = None,
) -> Traced:
    """Traces every launcher of a snippet, or some of them, in one process."""
    made = write(folder, text)
    b = builder(folder, made, device)
    where = b.box, b.contents, made, b.device, made.source, {"CASES": cases}, limit
    return Traced(made.source, trace_and_compile.trace(*where, known=known, varied=varied))


def once_looping(run: Callable[[float], Ran]) -> Ran:
    """What came of a process that prints 'looping' and goes on for ever: a busy machine takes long to get there."""
    return next(ran for seconds in (1.0, 5.0, 30.0, 120.0) if "looping" in (ran := run(seconds)).output)


def trace_for(folder: Path, text: str, seconds: float) -> Ran:
    """The tracer's process itself, with a deadline of its own."""
    made = write(folder, text)
    contract, candidate = trace_and_compile.place(folder, made, made.source, hide=False)
    request = {"device": "h200", "contract": contract, "candidate": candidate, "limit": None, "cases": {"CASES": None}}
    (folder / "request.json").write_text(json.dumps(request))
    return box.choose().run("pgo_agent.sandbox.tracer", folder, seconds)
