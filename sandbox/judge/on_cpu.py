"""The judge's other process, for machines without a GPU: small cases through Triton's interpreter, in the box.

This process is trusted: it makes the secret inputs and compares. What it learns is that a candidate is `checked` (right
on these cases, as far as the interpreter models the hardware) or `wrong`; it never learns how fast anything is.
"""

import json
import secrets
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox import box, target
from pgo_agent.sandbox.boxed import place
from pgo_agent.sandbox.bundle import check as rules
from pgo_agent.sandbox.bundle.shelf import room, writing
from pgo_agent.sandbox.errors import BadBundle, Fault, Killed, TargetFault
from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.judge import numerics
from pgo_agent.sandbox.judge.stages import Announce

SECONDS = 120.0  # for one candidate on all small cases
CONFIGS = 3  # configurations of a candidate that are tried
INTERPRETED = {torch.float16, torch.float32, torch.float64}


class CpuWorker:
    """Commands `open` and `check`."""

    def __init__(self, announce: Announce) -> None:
        self.announce = announce
        self.module: ModuleType | None = None

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.announce("import the target", 120.0)
        self.target = target.read(Path(request["path"]))
        try:
            self.module = target.load(self.target.contract_path, "pgo_target")
        except Exception as e:
            raise TargetFault(
                f"{self.target.contract_path} cannot be imported: {type(e).__name__}: {e}", "mend it"
            ) from e
        self.device = request["device"]
        self.box = box.choose(request["sandbox"], request["python"])
        return {"gpu": None, "torch": torch.__version__}

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """One candidate's source on the small cases, with fresh seeds.

        Raises Killed when somebody kills the interpreter again and again, and EnvironmentFault when the disk is full.
        Code that is `foreign` may have killed itself, and must not stop a run by it.
        """
        if self.module is None:
            raise Fault("no target is open", "send the command `open` first")
        try:
            judged = self._check(self.module, request["source"])
        except Killed as e:
            if not request.get("foreign"):
                raise
            judged = Judged(Verdict.UNDECIDED, "interpreter", e.message)
        if judged.verdict not in (Verdict.CHECKED, Verdict.BUILT):
            room(Path(tempfile.gettempdir()))
        return judged.as_json()

    def _check(self, module: ModuleType, source: str) -> Judged:
        cases: dict[str, tuple[int, dict[str, Any]]] = {}
        for name, case in module.SMALL.items():
            seed = secrets.randbits(48)
            given = numerics.make_inputs(module, case, seed, torch.device("cpu"))
            if all(
                t.dtype in INTERPRETED for t in given.values() if isinstance(t, torch.Tensor) and t.is_floating_point()
            ):
                cases[name] = seed, given
        if not cases:
            return Judged(
                Verdict.BUILT, "interpreter", "no small case of fp16 or fp32: the interpreter's bf16 is wrong"
            )
        for _ in range(box.ATTEMPTS):
            self.announce("interpreter", SECONDS + 60.0)
            with tempfile.TemporaryDirectory() as name, writing(Path(name)):
                judged = self._run(module, source, cases, Path(name))
            if judged is not None:
                return judged
        raise box.killed("interpreting")

    def _run(self, module: ModuleType, source: str, cases: dict[str, Any], folder: Path) -> Judged | None:
        """One boxed process and what it comes to; None when somebody killed it."""
        _, candidate = place(folder, self.target, source)
        (folder / "in").mkdir()
        described = {n: tensors.save(given, folder / "in", str(i)) for i, (n, (_, given)) in enumerate(cases.items())}
        request = {"candidate": candidate, "cases": described, "configs": CONFIGS, "device": self.device}
        (folder / "request.json").write_text(json.dumps(request))
        ran = self.box.run("pgo_agent.sandbox.interpreter", folder, SECONDS, env={"TRITON_INTERPRET": "1"})
        if ran.killed:
            return None
        if ran.timed_out:
            return Judged(Verdict.TIMEOUT, "interpreter", f"ran for over {SECONDS:.0f} s on the small cases")
        try:
            results = json.loads(rules.read(folder / "out" / "result.json", rules.JSON_LIMIT))
            return self._compare(module, cases, results, folder / "out")
        except (BadBundle, ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError) as e:
            if isinstance(e, Fault):
                raise
            return Judged(Verdict.CRASHED, "interpreter", _last_line(ran.output) or str(e))

    def _compare(self, module: ModuleType, cases: dict[str, Any], results: dict[str, Any], folder: Path) -> Judged:
        checks = []
        for name, (seed, _) in cases.items():
            expected = numerics.expect(module, name, module.SMALL[name], seed, torch.device("cpu"))
            for result in results[name]:
                if "error" in result:
                    line = f"line {result['line']}: " if result["line"] else ""
                    return Judged(Verdict.BUILD_ERROR, "interpreter", f"{name}: {line}{result['error']}"[:600])
                outputs = tensors.load(result["outputs"], folder)
                found = numerics.check(
                    [outputs[str(i)] for i in range(len(outputs))], expected, getattr(module, "TOLERANCE", None)
                )
                checks.append(found.as_json())
                if found.problem:
                    return Judged(Verdict.WRONG, "interpreter", f"{name}: {found.problem}", {"numerics": checks})
        reason = f"right on {len(cases)} small cases in Triton's interpreter; not measured"
        return Judged(Verdict.CHECKED, "interpreter", reason, {"numerics": checks})


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
