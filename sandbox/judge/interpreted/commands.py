"""The judge without a GPU: runs small cases through Triton's interpreter, in the box.

This process is trusted: it makes the secret inputs and compares the outputs. It finds a candidate `checked` (right on
these cases, as far as the interpreter models the hardware) or `wrong`. It measures no time.

Small held-out cases are tried too. The request names the kernels that must run, `outcome.py` gives the verdict, and
`sandbox/interpreter/schedule.py` chooses configurations.

Cases are repeated with stress inputs (`stress_inputs.py`). A stress input counts for a case if the target's own kernel
passes it with a margin; this is tested once per process, and evidence lists what was dropped. Every tensor lies between
guard zones.
"""

import json
import secrets
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox import target
from pgo_agent.sandbox.build.trace_and_compile import place
from pgo_agent.sandbox.bundle import validate as rules
from pgo_agent.sandbox.bundle.store import room, writing
from pgo_agent.sandbox.errors import BadBundle, Fault, Killed, TargetFault
from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.gate.reason import plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.interpreter.floats import INTERPRETED
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.interpreted.cases import Trial, chosen, floats, large, params, to_find_out
from pgo_agent.sandbox.judge.interpreted.outcome import Covered, compared, verdict
from pgo_agent.sandbox.judge.interpreted.progress import watched
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.checks import Announce
from pgo_agent.sandbox.judge.results.reference_error import Spread
from pgo_agent.sandbox.judge.results.stress_inputs import LOOSER, OWN_RATIO, StressInput

CPU = torch.device("cpu")
SECONDS = 120.0  # for one candidate on all small cases, unless a request says otherwise
CONFIGS = 3  # of each small case at least (one with stress inputs); then others while time is left
OWN_SECONDS = 60.0  # of SECONDS, after which no optional run begins: held-out cases, the own kernel's stress inputs


class CpuWorker:
    """Commands `open`, `hello`, `check` and `peaks`."""

    def __init__(self, announce: Announce) -> None:
        self.announce = announce
        self.seeds: dict[tuple[str, StressInput], int] = {}
        self.borne: list[tuple[str, StressInput]] | None = None  # passed by the target's own kernel; None: not tested
        self.dropped: list[dict[str, str]] = []  # the other stress inputs: case, name, why
        self.usual: dict[str, numerics.Expected] = {}  # results without stress inputs, by case
        self.module: ModuleType | None = None
        self.own: tuple[float, Judgement, Covered] | None = None  # of the target's own kernel, and its time limit
        self.spread: Spread

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.announce("import the target", 120.0)
        self.target = target.read(Path(request["path"]))
        try:
            self.module = target.load(self.target.contract_path, "pgo_target")
        except Exception as e:
            raise TargetFault(
                f"{self.target.contract_path} cannot be imported: {type(e).__name__}: {e}", "fix it"
            ) from e
        self.spread = Spread(self.module, CPU)
        self.device = request["device"]
        self.box = box.choose(request["sandbox"], request["python"])
        return {"gpu": None, "torch": torch.__version__}

    def rest(self) -> None:
        """Do nothing: there is no GPU to release."""

    def hello(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Return nothing: the target is open."""
        return {}

    def peaks(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Return a problem: nothing is timed here."""
        return {"problem": "this judge has no GPU"}

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one candidate's source on the small cases, with fresh seeds, and return the verdict.

        Raises Killed when every interpreter process is killed, and EnvironmentFault when the disk is full. Untrusted
        code (`foreign`) may have killed itself, and must not stop the run.
        """
        if self.module is None:
            raise Fault("no target is open", "send the command `open` first")
        try:
            judged = self._check(self.module, Asked.of(request))
        except Killed as e:
            if not request.get("foreign"):
                raise
            judged = Judgement(Verdict.UNDECIDED, "interpreter", quoted(e.message))
        if judged.verdict not in (Verdict.CHECKED, Verdict.BUILT):
            room(Path(tempfile.gettempdir()))
        return judged.as_json()

    def _check(self, module: ModuleType, asked: "Asked") -> Judgement:
        is_target = asked.source == self.target.source
        if is_target and self.own is not None and self.own[0] >= asked.seconds:
            return self._target_again(asked)
        if self.borne is None and not is_target:
            self._check(module, Asked(self.target.source))
        if is_target:
            self.borne, self.dropped = [], []
        covered = Covered(len(module.SMALL), len(module.HELD_OUT), asked.kernels)
        trials = self._trials(module, is_target, covered)
        judged = self._attempts(module, asked, trials, covered) if trials else verdict(covered, {"numerics": []})
        if is_target:
            self.own = asked.seconds, judged, covered
        return judged

    def _target_again(self, asked: "Asked") -> Judgement:
        """Return the stored verdict on the target's own kernel: it is asked for as baseline and as candidate."""
        _, judged, covered = self.own or (
            0.0,
            Judgement(Verdict.BUILT, "interpreter", plain("not tried")),
            Covered(0, 0, ()),
        )
        if judged.verdict not in (Verdict.CHECKED, Verdict.BUILT):
            return judged
        return verdict(replace(covered, wanted=asked.kernels), judged.evidence)

    def _attempts(self, module: ModuleType, asked: "Asked", trials: list[Trial], covered: Covered) -> Judgement:
        for _ in range(box.ATTEMPTS):
            self.announce("interpreter", asked.seconds + 60.0)
            with tempfile.TemporaryDirectory() as name, writing(Path(name)):
                judged = self._run(module, asked, trials, Path(name), covered)
            if judged is not None:
                return judged
        raise box.killed("interpreting")

    def _trials(self, module: ModuleType, is_target: bool, covered: Covered) -> list[Trial]:
        """Return the small cases that can be interpreted, the small held-out cases, then the stress inputs."""
        usable = [t for n in module.SMALL if (t := self._usable(module, n, covered))]
        held = [t for n in module.HELD_OUT if (t := self._usable(module, f"{HELD_OUT}{n}", covered))]
        pairs = to_find_out([t.case for t in usable if floats(t.inputs)]) if is_target else chosen(self.borne or [])
        under_stress = []
        for case, stress_input in pairs:
            try:
                under_stress.append(self._trial(module, case, stress_input))
            except TargetFault as e:
                self._drop(case, stress_input, e.message)
        return [*usable, *held, *under_stress]

    def _usable(self, module: ModuleType, case: str, covered: Covered) -> Trial | None:
        """Return a case with inputs. Return None and note it in `covered` where the interpreter lacks their types, or
        a held-out case is too large."""
        if case.startswith(HELD_OUT) and (why := large(module, params(module, case))):
            covered.left_out[case] = why
            return None
        trial = self._trial(module, case, None)
        types = [str(t.dtype)[6:] for t in floats(trial.inputs) if t.dtype not in INTERPRETED]
        if types:
            named = ", ".join(dict.fromkeys(types))
            covered.left_out[case] = f"its inputs are {named}, which the interpreter does not compute with"
            return None
        return trial

    def _trial(self, module: ModuleType, name: str, stress_input: StressInput | None) -> Trial:
        seed = secrets.randbits(48)
        if stress_input:  # candidates get the very inputs that the own kernel passed
            seed = self.seeds.setdefault((name, stress_input), seed)
        return Trial(
            name, seed, numerics.make_inputs(module, params(module, name), seed, CPU, stress_input), stress_input
        )

    def _drop(self, case: str, stress_input: StressInput, why: str) -> None:
        self.dropped.append({"case": case, "strain": stress_input.name, "why": why})

    def _run(
        self, module: ModuleType, asked: "Asked", trials: list[Trial], folder: Path, covered: Covered
    ) -> Judgement | None:
        """Run one boxed process and return the verdict; None when somebody killed it."""
        _, candidate = place(folder, self.target, asked.source)
        (folder / "in").mkdir()
        described = {t.label: tensors.save(t.inputs, folder / "in", str(i)) for i, t in enumerate(trials)}
        is_target = asked.source == self.target.source
        begin_by = asked.seconds * OWN_SECONDS / SECONDS
        request = {
            "candidate": candidate,
            "cases": described,
            "configs": {t.label: 1 if t.stress_input or t.held_out else CONFIGS for t in trials},
            "late": [t.label for t in trials if t.held_out or (t.stress_input and is_target)],
            "begin_by": begin_by,
            "plain": [t.label for t in trials if not t.stress_input and not t.held_out],
            "more_until": begin_by,
            "seed": secrets.randbits(32),
            "until": time.monotonic() + asked.seconds - max(5.0, asked.seconds / 12),
            "device": self.device,
        }
        (folder / "request.json").write_text(json.dumps(request))
        with watched(folder / "out" / "result.json", asked.seconds, self.announce):
            ran = self.box.run("pgo_agent.sandbox.interpreter", folder, asked.seconds, env={"TRITON_INTERPRET": "1"})
        if ran.killed:
            return None
        try:
            return self._read(module, asked, trials, folder / "out", covered, ran.timed_out)
        except (BadBundle, ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError) as e:
            if isinstance(e, Fault):
                raise
            if ran.timed_out:
                return _late(asked.seconds, is_target)
            return Judgement(Verdict.CRASHED, "interpreter", quoted(_last_line(ran.output) or str(e)))

    def _read(
        self,
        module: ModuleType,
        asked: "Asked",
        trials: list[Trial],
        out: Path,
        covered: Covered,
        timed_out: bool,
    ) -> Judgement:
        """Read the results and return the verdict. Raises KeyError where a small case is missing without a reason."""
        results, is_target = rules.answer(out / "result.json"), asked.source == self.target.source
        if timed_out:
            unended = [t.case for t in trials if not t.stress_input and t.label not in results]
            covered.left_out |= dict.fromkeys(unended, f"not reached before the deadline of {asked.seconds:.0f} s")
        elif lacking := [t.label for t in trials if not t.stress_input and not t.held_out and t.label not in results]:
            covered.left_out |= dict.fromkeys(lacking, "no time was left for it")
            if not _ended_for_time(results):
                raise KeyError(lacking[0])
        judged = self._compare(module, trials, results, out, is_target, covered)
        hung = timed_out and judged.verdict in (Verdict.CHECKED, Verdict.BUILT)
        return (
            replace(_late(asked.seconds, is_target), evidence=judged.evidence, coverage=judged.coverage)
            if hung
            else judged
        )

    def _compare(
        self,
        module: ModuleType,
        trials: list[Trial],
        results: dict[str, Any],
        folder: Path,
        is_target: bool,
        covered: Covered,
    ) -> Judgement:
        checks: list[dict[str, Any]] = []
        for trial in trials:
            runs = results.get(trial.label, [])
            if trial.stress_input and is_target:
                checks += self._try_stress_input(module, trial, trial.stress_input, runs, folder, covered)
                continue
            if not trial.stress_input:
                covered.note(runs)
            expected = self._expected(module, trial) if runs else None
            if expected is None:
                continue
            for run in runs:
                outcome = compared(trial, run, expected, _ratios(module, trial, LOOSER), folder, is_target)
                if isinstance(outcome, Judgement):
                    if run is not runs[0] and run.get("config"):  # others were right, or not tried in this case
                        within = quoted(f"; in its configuration {run['config']}"[:300])
                        outcome = replace(outcome, why=outcome.why + within)
                    evidence = {"numerics": [*checks, *outcome.evidence.get("numerics", [])]}
                    return replace(outcome, evidence=evidence, coverage=covered.coverage(ended=False))
                if isinstance(outcome, str):
                    covered.says_nothing(trial, run, outcome)
                    continue
                checks.append(outcome.as_json() | {"config": str(run.get("config", ""))})
                covered.right(trial, run, expected)
        for drop in self.dropped:
            if drop["strain"] not in covered.stressed:
                covered.left_out.setdefault(drop["strain"], drop["why"])
        return verdict(covered, {"numerics": checks, "dropped": list(self.dropped)})

    def _try_stress_input(
        self,
        module: ModuleType,
        trial: Trial,
        stress_input: StressInput,
        results: list[dict[str, Any]],
        folder: Path,
        covered: Covered,
    ) -> list[dict[str, Any]]:
        """Test a stress input with the target's own kernel; if it passes, it counts. Return the comparisons."""
        expected = self._expected(module, trial)
        if expected is None:
            self._drop(trial.case, stress_input, "the reference breaks down in its own precision")
            return []
        ratios = _ratios(module, trial, OWN_RATIO)
        outcomes = [compared(trial, r, expected, ratios, folder, is_target=True) for r in results]
        wrong = next(
            (f.reason if isinstance(f, Judgement) else f for f in outcomes if isinstance(f, Judgement | str)), ""
        )
        if outcomes and not wrong:
            self.borne = [*(self.borne or []), (trial.case, stress_input)]
            covered.right(trial, results[0], expected)
        else:
            blamed = f"the target's own kernel: {wrong}" if any(isinstance(f, Judgement) for f in outcomes) else wrong
            self._drop(trial.case, stress_input, blamed or "there was no time to try it")
        return [f.as_json() for f in outcomes if isinstance(f, numerics.Comparison)]

    def _expected(self, module: ModuleType, trial: Trial) -> numerics.Expected | None:
        """Return what a trial must give; None for a stress input that breaks the reference itself."""
        case = params(module, trial.case)
        if not trial.stress_input:
            self.usual[trial.case] = self.spread.expect(trial.case, case, trial.seed)
            return self.usual[trial.case]
        try:
            expected = numerics.expect(module, trial.case, case, trial.seed, CPU, trial.stress_input)
        except TargetFault:
            return None
        usual = self.usual.get(trial.case) or self.spread.expect(trial.case, case, trial.seed)
        return numerics.forgiving(expected, usual) if expected.reliable else None


@dataclass(frozen=True)
class Asked:
    """The fields of a request."""

    source: str
    seconds: float = SECONDS
    kernels: tuple[str, ...] = ()  # that the candidate's plans launch in public cases; empty: not given

    @classmethod
    def of(cls, request: dict[str, Any]) -> "Asked":
        return cls(request["source"], request.get("seconds") or SECONDS, tuple(request.get("kernels") or ()))


def _late(seconds: float, is_target: bool) -> Judgement:
    """Return the verdict on a process that was killed at its deadline: it blocked the timer of its runs."""
    text = f"ran for over {seconds:.0f} s on the small cases"
    return Judgement(Verdict.BUILT if is_target else Verdict.TIMEOUT, "interpreter", plain(text))


def _ended_for_time(results: dict[str, Any]) -> bool:
    return any("endless" in run for runs in results.values() for run in runs)


def _ratios(module: ModuleType, trial: Trial, times: float) -> dict[str, float]:
    return numerics.looser(getattr(module, "TOLERANCE", None), times if trial.stress_input else 1.0)


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
