"""The judge's other process, for machines without a GPU: small cases through Triton's interpreter, in the box.

This process is trusted: it makes the secret inputs and compares. What it learns is that a candidate is `checked` (right
on these cases, as far as the interpreter models the hardware) or `wrong`; it never learns how fast anything is.

Cases are tried again with strained inputs (`strains.py`). Which strains count for which case is found out with the
target's own kernel, once for each process: what it does not bear with room to spare is dropped, and evidence says so.
Every tensor lies between guard zones.
"""

import json
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox import box, guards, target
from pgo_agent.sandbox.boxed import place
from pgo_agent.sandbox.bundle import check as rules
from pgo_agent.sandbox.bundle import grammar
from pgo_agent.sandbox.bundle.shelf import room, writing
from pgo_agent.sandbox.errors import BadBundle, Fault, Killed, TargetFault
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.interpreter.floats import INTERPRETED
from pgo_agent.sandbox.judge import numerics
from pgo_agent.sandbox.judge.spread import Spread
from pgo_agent.sandbox.judge.stages import Announce
from pgo_agent.sandbox.judge.strains import LOOSER, OWN_RATIO, SCALED, STRAINS, Strain
from pgo_agent.sandbox.judge.strains import tensors as tensors_of

CPU = torch.device("cpu")
SECONDS = 120.0  # for one candidate on all small cases, unless a request says otherwise
CONFIGS = 3  # configurations of a candidate that are tried (with strained inputs the first alone)
PLACES = 2  # cases on which a strain is tried with the target's own kernel; the first that it bears is a candidate's
OWN_SECONDS = 60.0  # after which no strain is tried any more with the target's own kernel
_SEEN = {"wrong": Verdict.WRONG, "deadlock": Verdict.DEADLOCK}  # what the interpreter itself sees a kernel do
OUTPUTS_LIMIT = 256 << 20  # bytes of a candidate's outputs on one small case; what it leaves may be forged


@dataclass(frozen=True)
class Trial:
    """A small case with its secret inputs."""

    case: str
    seed: int
    given: dict[str, Any]
    strain: Strain | None = None

    @property
    def said(self) -> str:
        return f"{self.case} with {self.strain.name}" if self.strain else self.case


class CpuWorker:
    """Commands `open`, `hello`, `check` and `peaks`."""

    def __init__(self, announce: Announce) -> None:
        self.announce = announce
        self.seeds: dict[tuple[str, Strain], int] = {}
        self.borne: list[tuple[str, Strain]] | None = None  # by the target's own kernel; None: not known
        self.dropped: list[dict[str, str]] = []  # the other strains: case, strain, why
        self.usual: dict[str, numerics.Expected] = {}  # what the last candidate's plain trials must give, by case
        self.module: ModuleType | None = None
        self.spread: Spread

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.announce("import the target", 120.0)
        self.target = target.read(Path(request["path"]))
        try:
            self.module = target.load(self.target.contract_path, "pgo_target")
        except Exception as e:
            raise TargetFault(
                f"{self.target.contract_path} cannot be imported: {type(e).__name__}: {e}", "mend it"
            ) from e
        self.spread = Spread(self.module, CPU)
        self.device = request["device"]
        self.box = box.choose(request["sandbox"], request["python"])
        return {"gpu": None, "torch": torch.__version__}

    def rest(self) -> None:
        """It holds no GPU."""

    def hello(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Nothing: the target is open."""
        return {}

    def peaks(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Nothing is timed here, so nobody knows what this machine reaches."""
        return {"problem": "this judge has no GPU"}

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
        if self.borne is None and not own:
            self._check(module, self.target.source, SECONDS)
        if own:
            self.borne, self.dropped = [], []
        trials = self._trials(module, own)
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

    def _trials(self, module: ModuleType, own: bool) -> list[Trial]:
        """Every small case that can be interpreted, then those that are to be tried strained."""
        plain = [self._trial(module, name, None) for name in module.SMALL]
        usable = [t for t in plain if all(x.dtype in INTERPRETED for x in _floats(t.given))]
        pairs = _to_find_out([t.case for t in usable if _floats(t.given)]) if own else _chosen(self.borne or [])
        strained = []
        for case, strain in pairs:
            try:
                strained.append(self._trial(module, case, strain))
            except TargetFault as e:
                self._drop(case, strain, e.message)
        return usable + strained

    def _trial(self, module: ModuleType, name: str, strain: Strain | None) -> Trial:
        seed = secrets.randbits(48)
        if strain:  # a candidate gets the very inputs that the own kernel bore: on others it might not have
            seed = self.seeds.setdefault((name, strain), seed)
        return Trial(name, seed, numerics.make_inputs(module, module.SMALL[name], seed, CPU, strain), strain)

    def _drop(self, case: str, strain: Strain, why: str) -> None:
        self.dropped.append({"case": case, "strain": strain.name, "why": why})

    def _run(self, module: ModuleType, source: str, trials: list[Trial], folder: Path, seconds: float) -> Judged | None:
        """One boxed process and what it comes to; None when somebody killed it."""
        _, candidate = place(folder, self.target, source)
        (folder / "in").mkdir()
        described = {t.said: tensors.save(t.given, folder / "in", str(i)) for i, t in enumerate(trials)}
        own = source == self.target.source
        request = {
            "candidate": candidate,
            "cases": described,
            "configs": {t.said: 1 if t.strain else CONFIGS for t in trials},
            "late": [t.said for t in trials if t.strain and own],
            "begin_by": OWN_SECONDS,
            "device": self.device,
        }
        (folder / "request.json").write_text(json.dumps(request))
        ran = self.box.run("pgo_agent.sandbox.interpreter", folder, seconds, env={"TRITON_INTERPRET": "1"})
        if ran.killed:
            return None
        if ran.timed_out:
            return Judged(Verdict.TIMEOUT, "interpreter", f"ran for over {seconds:.0f} s on the small cases")
        try:
            results = rules.answer(folder / "out" / "result.json")
            return self._compare(module, trials, results, folder / "out", own)
        except (BadBundle, ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError) as e:
            if isinstance(e, Fault):
                raise
            return Judged(Verdict.CRASHED, "interpreter", _last_line(ran.output) or str(e))

    def _compare(
        self, module: ModuleType, trials: list[Trial], results: dict[str, Any], folder: Path, own: bool
    ) -> Judged:
        checks: list[dict[str, Any]] = []
        for trial in trials:
            if trial.strain and own:
                checks += self._find_out(module, trial, trial.strain, results.get(trial.said, []), folder)
                continue
            expected = self._expected(module, trial)
            if expected is None:
                continue
            found = [_one(trial.said, r, expected, _ratios(module, trial, LOOSER), folder) for r in results[trial.said]]
            wrong = next((f for f in found if isinstance(f, Judged)), None)
            checks += [f.as_json() for f in found[: found.index(wrong) if wrong else None]]
            if wrong:
                return replace(wrong, evidence={"numerics": [*checks, *wrong.evidence.get("numerics", [])]})
        cases = {t.case for t in trials}
        reason = f"right on {len(cases)} small cases in Triton's interpreter; not measured"
        evidence = {"numerics": checks, "dropped": list(self.dropped)}
        covered = coverage.of(cases=(len(cases), len(module.SMALL)))
        return Judged(Verdict.CHECKED, "interpreter", reason, evidence, covered)

    def _find_out(
        self, module: ModuleType, trial: Trial, strain: Strain, results: list[dict[str, Any]], folder: Path
    ) -> list[dict[str, Any]]:
        """Whether the target's own kernel bears a strain: then it counts for candidates. Gives the comparisons."""
        expected = self._expected(module, trial)
        found = [_one(trial.said, r, expected, _ratios(module, trial, OWN_RATIO), folder) for r in results if expected]
        wrong = next((f.reason for f in found if isinstance(f, Judged)), "")
        if found and not wrong:
            self.borne = [*(self.borne or []), (trial.case, strain)]
        else:
            why = f"the target's own kernel: {wrong}" if wrong else "there was no time to try it"
            self._drop(trial.case, strain, why if expected else "the reference breaks down in its own precision")
        return [f.as_json() for f in found if not isinstance(f, Judged)]

    def _expected(self, module: ModuleType, trial: Trial) -> numerics.Expected | None:
        """What a trial must give; None for a strained one that breaks the reference itself."""
        case = module.SMALL[trial.case]
        if not trial.strain:
            self.usual[trial.case] = self.spread.expect(trial.case, case, trial.seed)
            return self.usual[trial.case]
        try:
            found = numerics.expect(module, trial.case, case, trial.seed, CPU, trial.strain)
        except TargetFault:
            return None
        return numerics.forgiving(found, self.usual[trial.case]) if found.reliable else None


def _to_find_out(cases: list[str]) -> Iterator[tuple[str, Strain]]:
    """What is tried with the target's own kernel: each strain on some cases, the first of them on all."""
    for k, strain in enumerate(STRAINS):
        for n in range(len(cases) if strain is SCALED else min(PLACES, len(cases))):
            turn = (k + n) % len(cases)
            yield cases[turn], strain.as_turn(turn)


def _chosen(borne: list[tuple[str, Strain]]) -> list[tuple[str, Strain]]:
    """What is tried with a candidate: each strain on the first case where it counts, the first of them on all."""
    first: dict[tuple[str, str], tuple[str, Strain]] = {}
    for case, strain in borne:
        first.setdefault((strain.name, case if strain is SCALED else ""), (case, strain))
    return list(first.values())


def _ratios(module: ModuleType, trial: Trial, times: float) -> dict[str, float]:
    return numerics.looser(getattr(module, "TOLERANCE", None), times if trial.strain else 1.0)


def _one(
    said: str, result: dict[str, Any], expected: numerics.Expected, ratios: dict[str, float], folder: Path
) -> numerics.Comparison | Judged:
    """One configuration on one case: how it compares, or what is wrong with it."""
    if result.get("unsupported"):
        return Judged(Verdict.BUILT, "interpreter", f"cannot be interpreted: {result['error']}"[:300])
    if "error" in result:
        line = f"line {result['line']}: " if result["line"] else ""
        verdict = _SEEN.get(str(result.get("verdict")), Verdict.BUILD_ERROR)
        return Judged(verdict, "interpreter", f"{said}: {line}{result['error']}"[:600])
    outputs = tensors.load(result["outputs"], folder, OUTPUTS_LIMIT)
    found = numerics.check([outputs[str(i)] for i in range(len(outputs))], expected, ratios)
    if found.problem:
        return Judged(Verdict.WRONG, "interpreter", f"{said}: {found.problem}", {"numerics": [found.as_json()]})
    if stray := grammar.integer(result["stray"], 0, 1 << 40, "bytes written outside"):
        return Judged(Verdict.WRONG, "interpreter", f"{said}: {guards.said(stray)}", {"numerics": [found.as_json()]})
    if result["changed"]:
        names = ", ".join(str(n) for n in result["changed"])[:200]
        if set(result["changed"]) <= set(result.get("in_place", ())):
            told = f"puts its result in place of its input {names}: make a copy first, inputs must stay as they are"
            return Judged(Verdict.WRONG, "interpreter", f"{said}: {told}")
        return Judged(Verdict.CHEATING, "interpreter", f"{said}: inputs were changed: {names}")
    return found


def _floats(given: dict[str, Any]) -> list[Any]:
    return [t for t in tensors_of(given) if t.is_floating_point()]


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
