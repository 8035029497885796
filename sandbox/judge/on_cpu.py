"""The judge's other process, for machines without a GPU: small cases through Triton's interpreter, in the box.

This process is trusted: it makes the secret inputs and compares. What it learns is that a candidate is `checked` (right
on these cases, as far as the interpreter models the hardware) or `wrong`; it never learns how fast anything is.

Each case is tried a second time with strained inputs: all floats times FACTOR. A softmax without its maximum, or a
result fitted to what inputs() usually gives, is right until then. They count where the target's own kernel passes them
with room to spare, and allow LOOSER times the error: only a breakdown is meant to be caught.
"""

import json
import secrets
import tempfile
from dataclasses import dataclass, replace
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

SECONDS = 120.0  # for one candidate on all small cases, unless a request says otherwise
CONFIGS = 3  # configurations of a candidate that are tried (with strained inputs the first alone)
FACTOR = 8.0  # a power of two: it rounds nothing
LOOSER = 8.0  # of the ratios of numerics.py; the target's own kernel must keep a fourth of that
INTERPRETED = {torch.float16, torch.float32, torch.float64}


@dataclass(frozen=True)
class Trial:
    """A small case with its secret inputs."""

    case: str
    seed: int
    given: dict[str, Any]
    factor: float = 1.0

    @property
    def strained(self) -> bool:
        return self.factor != 1.0

    @property
    def said(self) -> str:
        return f"{self.case}, inputs times {self.factor:g}" if self.strained else self.case


class CpuWorker:
    """Commands `open` and `check`."""

    def __init__(self, announce: Announce) -> None:
        self.announce = announce
        self.strained: set[str] | None = None  # cases that the target's own kernel passes strained; None: not known
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
            judged = self._check(self.module, request["source"], request.get("seconds") or SECONDS)
        except Killed as e:
            if not request.get("foreign"):
                raise
            judged = Judged(Verdict.UNDECIDED, "interpreter", e.message)
        if judged.verdict not in (Verdict.CHECKED, Verdict.BUILT):
            room(Path(tempfile.gettempdir()))
        return judged.as_json()

    def _check(self, module: ModuleType, source: str, seconds: float) -> Judged:
        own = source == self.target.source
        if self.strained is None and not own:
            self._check(module, self.target.source, SECONDS)
        if own:
            self.strained = set()
        trials = self._trials(module, None if own else self.strained)
        if not trials:
            return Judged(
                Verdict.BUILT, "interpreter", "no small case of fp16 or fp32: the interpreter's bf16 is wrong"
            )
        for _ in range(box.ATTEMPTS):
            self.announce("interpreter", seconds + 60.0)
            with tempfile.TemporaryDirectory() as name, writing(Path(name)):
                judged = self._run(module, source, trials, Path(name), seconds)
            if judged is not None:
                return judged
        raise box.killed("interpreting")

    def _trials(self, module: ModuleType, strained: set[str] | None) -> list[Trial]:
        """Every small case that can be interpreted, then those that are to be tried strained (None: all of them)."""
        plain = [self._trial(module, name, 1.0) for name in module.SMALL]
        usable = [t for t in plain if all(x.dtype in INTERPRETED for x in _floats(t.given))]
        again = [t.case for t in usable if _floats(t.given) and (strained is None or t.case in strained)]
        return usable + [self._trial(module, name, FACTOR) for name in again]

    def _trial(self, module: ModuleType, name: str, factor: float) -> Trial:
        seed = secrets.randbits(48)
        given = numerics.make_inputs(module, module.SMALL[name], seed, torch.device("cpu"), factor)
        return Trial(name, seed, given, factor)

    def _run(self, module: ModuleType, source: str, trials: list[Trial], folder: Path, seconds: float) -> Judged | None:
        """One boxed process and what it comes to; None when somebody killed it."""
        _, candidate = place(folder, self.target, source)
        (folder / "in").mkdir()
        described = {t.said: tensors.save(t.given, folder / "in", str(i)) for i, t in enumerate(trials)}
        configs = {t.said: 1 if t.strained else CONFIGS for t in trials}
        request = {"candidate": candidate, "cases": described, "configs": configs, "device": self.device}
        (folder / "request.json").write_text(json.dumps(request))
        ran = self.box.run("pgo_agent.sandbox.interpreter", folder, seconds, env={"TRITON_INTERPRET": "1"})
        if ran.killed:
            return None
        if ran.timed_out:
            return Judged(Verdict.TIMEOUT, "interpreter", f"ran for over {seconds:.0f} s on the small cases")
        try:
            results = rules.answer(folder / "out" / "result.json")
            return self._compare(module, trials, results, folder / "out", source == self.target.source)
        except (BadBundle, ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError) as e:
            if isinstance(e, Fault):
                raise
            return Judged(Verdict.CRASHED, "interpreter", _last_line(ran.output) or str(e))

    def _compare(
        self, module: ModuleType, trials: list[Trial], results: dict[str, Any], folder: Path, own: bool
    ) -> Judged:
        checks: list[dict[str, Any]] = []
        for trial in trials:
            expected = self._expected(module, trial)
            if expected is None:
                continue
            ratios = numerics.looser(getattr(module, "TOLERANCE", None), _slack(trial, own))
            found = [_one(trial.said, r, expected, ratios, folder) for r in results[trial.said]]
            wrong = next((f for f in found if isinstance(f, Judged)), None)
            told = [f.as_json() for f in found[: found.index(wrong) if wrong else None]]
            if trial.strained and own:
                self.strained = (self.strained or set()) | (set() if wrong else {trial.case})
            elif wrong:
                return replace(wrong, evidence={"numerics": [*checks, *told, *wrong.evidence.get("numerics", [])]})
            elif not trial.strained:
                checks += told
        reason = f"right on {len({t.case for t in trials})} small cases in Triton's interpreter; not measured"
        return Judged(Verdict.CHECKED, "interpreter", reason, {"numerics": checks})

    def _expected(self, module: ModuleType, trial: Trial) -> numerics.Expected | None:
        """What a trial must give; None for a strained one that breaks the reference itself."""
        case = module.SMALL[trial.case]
        try:
            found = numerics.expect(module, trial.case, case, trial.seed, torch.device("cpu"), trial.factor)
        except TargetFault:
            if trial.strained:
                return None
            raise
        return None if trial.strained and any(e.misplaced for e in found.low) else found


def _slack(trial: Trial, own: bool) -> float:
    return (LOOSER / 4 if own else LOOSER) if trial.strained else 1.0


def _one(
    said: str, result: dict[str, Any], expected: numerics.Expected, ratios: dict[str, float], folder: Path
) -> numerics.Comparison | Judged:
    """One configuration on one case: how it compares, or what is wrong with it."""
    if result.get("unsupported"):
        return Judged(Verdict.BUILT, "interpreter", f"cannot be interpreted: {result['error']}"[:300])
    if "error" in result:
        line = f"line {result['line']}: " if result["line"] else ""
        return Judged(Verdict.BUILD_ERROR, "interpreter", f"{said}: {line}{result['error']}"[:600])
    outputs = tensors.load(result["outputs"], folder)
    found = numerics.check([outputs[str(i)] for i in range(len(outputs))], expected, ratios)
    if found.problem:
        return Judged(Verdict.WRONG, "interpreter", f"{said}: {found.problem}", {"numerics": [found.as_json()]})
    if result["changed"]:
        return Judged(Verdict.CHEATING, "interpreter", f"{said}: the inputs were changed")
    return found


def _floats(given: dict[str, Any]) -> list[Any]:
    return [t for t in given.values() if isinstance(t, torch.Tensor) and t.is_floating_point()]


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
