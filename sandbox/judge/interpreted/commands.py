"""The judge without a GPU: runs small cases through Triton's interpreter, in the box.

This process is trusted: it makes the secret inputs and compares the outputs. It finds a candidate `checked` (right on
these cases, as far as the interpreter models the hardware) or `wrong`. It measures no time.

Small held-out cases are tried too, those of foreign code apart (`trials_apart.py`). The request names the kernels that
must run, `outcome.py` gives the verdict, and `sandbox/interpreter/schedule.py` chooses configurations.

Cases are repeated with stress inputs. A stress input counts for a case if the target's own kernel passes it with a
margin; this is tested once per process (`stress_trials.py`), and evidence lists what was dropped. Every tensor lies
between guard zones.
"""

import ast
import json
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

import torch
from pgo_agent.sandbox import devices, in_place, parsing, target
from pgo_agent.sandbox.build.trace_and_compile import TRACE_SECONDS, place
from pgo_agent.sandbox.bundle import validate as rules
from pgo_agent.sandbox.bundle.store import room, writing
from pgo_agent.sandbox.errors import BadBundle, Fault, Killed, TargetFault
from pgo_agent.sandbox.gate.coverage import HELD_OUT, PUBLIC
from pgo_agent.sandbox.gate.reason import plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.interpreter.floats import INTERPRETED
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.interpreted import trials_apart
from pgo_agent.sandbox.judge.interpreted.as_recorded import AsRecorded
from pgo_agent.sandbox.judge.interpreted.cases import Trial, contract_on_cpu, floats, large, params
from pgo_agent.sandbox.judge.interpreted.outcome import Covered, Results, verdict
from pgo_agent.sandbox.judge.interpreted.progress import watched
from pgo_agent.sandbox.judge.interpreted.result_comparison import CPU, ResultComparison
from pgo_agent.sandbox.judge.interpreted.stress_trials import Pair, StressTrials
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.questions import Check
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.checks import Announce
from pgo_agent.sandbox.judge.results.stress_inputs import StressInput
from pgo_agent.sandbox.temporary_folders import temporary_folder

CONFIGS = 3  # of each small case at least (one with stress inputs); then others while time is left


class CpuWorker:
    """Commands `open`, `hello`, `check` and `peaks`."""

    def __init__(self, announce: Announce) -> None:
        self.announce = announce
        self.stress = StressTrials()
        self.module: ModuleType | None = None
        self.own: tuple[float, Judgement, Covered] | None = None  # of the target's own kernel, and its time limit
        self.comparison: ResultComparison

    def open(self, asked: questions.Open) -> Environment:
        self.announce("import the target", 120.0)
        self.target = target.read(Path(asked.path))
        try:
            device = devices.find(asked.device)
            self.module = contract_on_cpu(self.target.contract_path, device)
        except Exception as e:
            raise TargetFault(
                f"{self.target.contract_path} cannot be imported: {type(e).__name__}: {e}", "fix it"
            ) from e
        self.comparison = ResultComparison(self.module, self.stress, device.arch)
        self.device = asked.device
        self.box = box.choose(asked.sandbox, asked.python)
        for module, inherited in zip(box.FORKED, asked.forks, strict=False):
            self.box.borrow(module, inherited)
        self.recorded = AsRecorded(self.module, self.target, device, self.box, self.comparison.wanted)
        return Environment(gpu=None, torch=str(torch.__version__))

    def rest(self) -> None:
        """Do nothing: there is no GPU to release."""

    def hello(self, _: questions.Hello) -> questions.Nothing:
        """Return nothing: the target is open."""
        return questions.Nothing()

    def peaks(self, _: questions.Peaks) -> questions.Problem:
        """Return a problem: nothing is timed here."""
        return questions.Problem("this judge has no GPU")

    def check(self, asked: Check) -> Judgement:
        """Run one candidate's source on the small cases, with fresh seeds, and return the verdict.

        Raises Killed when every interpreter process is killed, and EnvironmentFault when the disk is full. Untrusted
        code (`foreign`) may have killed itself, and must not stop the run.
        """
        if self.module is None:
            raise Fault("no target is open", "send the command `open` first")
        try:
            judged = self._check(self.module, asked)
        except Killed as e:
            if not asked.foreign:
                raise
            judged = Judgement(Verdict.UNDECIDED, "interpreter", quoted(e.message))
        if judged.verdict not in (Verdict.CHECKED, Verdict.BUILT):
            room(Path(tempfile.gettempdir()))
        return judged

    def _check(self, module: ModuleType, asked: Check) -> Judgement:
        is_target = asked.source == self.target.source
        if is_target and self.own is not None and self.own[0] >= asked.seconds:
            return self._target_again(asked)
        if self.stress.passed is None and not is_target:
            self._check(module, Check(self.target.source))
        if is_target:
            self.stress.begin()
        began = time.monotonic()
        functions = _functions(asked.source)
        covered = Covered(len(module.SMALL), len(module.HELD_OUT), asked.kernels, functions, sizes=_sizes(module))
        trials = self._trials(module, is_target, covered)
        attempt = partial(self._attempts, module)
        judged = trials_apart.judged(attempt, asked, trials, covered) if trials else verdict(covered, {"numerics": []})
        if asked.foreign and judged.verdict in (Verdict.CHECKED, Verdict.BUILT) and trials:
            self.announce("recorded plans", 2 * TRACE_SECONDS + asked.seconds + 60.0)
            judged = self.recorded.judged(asked, trials, covered, judged)
        if is_target:
            taken = time.monotonic() - began
            if judged.verdict == Verdict.CHECKED and taken < trials_apart.begin_by(asked):
                later = replace(asked, seconds=asked.seconds - taken)
                judged = self._elsewhere(module, later, trials, covered, judged)
            self.own = asked.seconds, judged, covered
        return judged

    def _elsewhere(
        self, module: ModuleType, asked: Check, trials: list[Trial], covered: Covered, judged: Judgement
    ) -> Judgement:
        """Try the own kernel's stress inputs that it did not pass on another case; add what came of it."""
        cases = [t.case for t in trials if not t.stress_input and not t.held_out and floats(t.inputs)]
        further = self._under_stress(module, self.stress.second(cases))
        found = self._attempts(module, asked, further, covered) if further else judged
        if found is judged or found.verdict != Verdict.CHECKED:
            return judged
        return replace(found, evidence={**found.evidence, "numerics": [*judged.compared, *found.compared]})

    def _target_again(self, asked: Check) -> Judgement:
        """Return the stored verdict on the target's own kernel: it is asked for as baseline and as candidate."""
        _, judged, covered = self.own or (
            0.0,
            Judgement(Verdict.BUILT, "interpreter", plain("not tried")),
            Covered(0, 0, ()),
        )
        if judged.verdict not in (Verdict.CHECKED, Verdict.BUILT):
            return judged
        return verdict(replace(covered, wanted=asked.kernels), judged.evidence)

    def _attempts(self, module: ModuleType, asked: Check, trials: list[Trial], covered: Covered) -> Judgement:
        for _ in range(box.ATTEMPTS):
            self.announce("interpreter", asked.seconds + 60.0)
            with temporary_folder("interpreter") as name, writing(name):
                judged = self._run(module, asked, trials, name, covered)
            if judged is not None:
                return judged
        raise box.killed("interpreting")

    def _trials(self, module: ModuleType, is_target: bool, covered: Covered) -> list[Trial]:
        """Return the small cases that can be interpreted, the small held-out cases, then the stress inputs."""
        usable = [t for n in module.SMALL if (t := self._usable(module, n, covered))]
        held = [t for n in module.HELD_OUT if (t := self._usable(module, f"{HELD_OUT}{n}", covered))]
        tested = [t.case for t in usable if floats(t.inputs)]
        pairs = self.stress.first(tested) if is_target else self.stress.of_candidate()
        return [*usable, *held, *self._under_stress(module, pairs)]

    def _under_stress(self, module: ModuleType, pairs: Sequence[Pair]) -> list[Trial]:
        trials = []
        for case, stress_input in pairs:
            try:
                trials.append(self._trial(module, case, stress_input))
            except TargetFault as e:
                self.stress.drop(case, stress_input, e.message)
        return trials

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
        seed = self.stress.seed(name, stress_input) if stress_input else secrets.randbits(48)
        inputs = numerics.make_inputs(module, params(module, name), seed, CPU, stress_input)
        return Trial(name, seed, inputs, stress_input, in_place.names(module))

    def _run(
        self, module: ModuleType, asked: Check, trials: list[Trial], folder: Path, covered: Covered
    ) -> Judgement | None:
        """Run one boxed process and return the verdict; None when somebody killed it."""
        _, candidate = place(folder, self.target, asked.source, hide=True)
        (folder / "in").mkdir()
        described = {t.label: tensors.save(t.inputs, folder / "in", str(i)) for i, t in enumerate(trials)}
        is_target = asked.source == self.target.source
        request = {
            "candidate": candidate,
            "cases": described,
            "configs": {t.label: 1 if t.stress_input or t.held_out else CONFIGS for t in trials},
            "late": [t.label for t in trials if t.held_out or (t.stress_input and is_target)],
            "begin_by": trials_apart.begin_by(asked),
            "plain": [t.label for t in trials if not t.stress_input and not t.held_out],
            "more_until": trials_apart.begin_by(asked),
            "seed": secrets.randbits(32),
            "until": time.monotonic() + asked.seconds - max(5.0, asked.seconds / 12),
            "device": self.device,
        }
        (folder / "request.json").write_text(json.dumps(request))
        with watched(folder / "out" / "result.json", asked.seconds, self.announce):
            ran = self.box.run(box.INTERPRETER, folder, asked.seconds)
        if ran.killed:
            return None
        try:
            return self._read(asked, trials, folder / "out", covered, ran.timed_out)
        except (BadBundle, ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError) as e:
            if isinstance(e, Fault):
                raise
            if ran.timed_out:
                return _late(asked.seconds, is_target)
            return Judgement(Verdict.CRASHED, "interpreter", quoted(_last_line(ran.output) or str(e)))

    def _read(
        self,
        asked: Check,
        trials: list[Trial],
        out: Path,
        covered: Covered,
        timed_out: bool,
    ) -> Judgement:
        """Read the results and return the verdict. Raises KeyError where a small case is missing without a reason."""
        results, is_target = cast(Results, rules.answer(out / "result.json")), asked.source == self.target.source
        if timed_out:
            unended = [t.case for t in trials if not t.stress_input and t.label not in results]
            covered.left_out |= dict.fromkeys(unended, f"not reached before the deadline of {asked.seconds:.0f} s")
        elif lacking := [t.label for t in trials if not t.stress_input and not t.held_out and t.label not in results]:
            covered.left_out |= dict.fromkeys(lacking, "no time was left for it")
            if not _ended_for_time(results):
                raise KeyError(lacking[0])
        judged = self.comparison.compare(trials, results, out, is_target, covered)
        hung = timed_out and judged.verdict in (Verdict.CHECKED, Verdict.BUILT)
        return (
            replace(_late(asked.seconds, is_target), evidence=judged.evidence, coverage=judged.coverage)
            if hung
            else judged
        )


def _sizes(module: ModuleType) -> dict[str, Mapping[str, object]]:
    """Return the parameters of every case, by its name with the section; small cases by their name alone."""
    sections = {PUBLIC: module.CASES, "": module.SMALL, HELD_OUT: module.HELD_OUT}
    return {f"{section}{name}": dict(p) for section, cases in sections.items() for name, p in cases.items()}


def _late(seconds: float, is_target: bool) -> Judgement:
    """Return the verdict on a process that was killed at its deadline: it blocked the timer of its runs."""
    text = f"ran for over {seconds:.0f} s on the small cases"
    return Judgement(Verdict.BUILT if is_target else Verdict.TIMEOUT, "interpreter", plain(text))


def _ended_for_time(results: Results) -> bool:
    return any("endless" in run for runs in results.values() for run in runs)


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _functions(source: str) -> Counter[str]:
    """Return the names of the decorated functions in a text, kernels among them, each with how many have it."""
    functions = (n for n in ast.walk(parsing.module(source)) if isinstance(n, ast.FunctionDef))
    return Counter(f.name for f in functions if f.decorator_list)
