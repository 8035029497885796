"""Compares what an interpreter process left of its trials with the reference, and finds which stress inputs count.

Relies on `outcome.py` for a single run and for the verdict, on `numerics.py` for what the reference gives. Results of a
process are hostile data: an answer that is not one raises what `CpuWorker._run` takes for a crash.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import torch
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.gate.reason import quoted
from pgo_agent.sandbox.gate.verdict import Judgement
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.interpreted.cases import Trial, params
from pgo_agent.sandbox.judge.interpreted.outcome import Covered, Result, Results, compared, verdict
from pgo_agent.sandbox.judge.interpreted.stress_trials import StressTrials
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.reference_error import Spread
from pgo_agent.sandbox.judge.results.stress_inputs import LOOSER, OWN_RATIO, StressInput

CPU = torch.device("cpu")


@dataclass
class ResultComparison:
    """The comparisons of one target."""

    module: ModuleType
    stress: StressTrials
    arch: int  # of the GPU that the kernels are for: compute capability x 10
    usual: dict[str, numerics.Expected] = field(default_factory=dict)  # results without stress inputs, by case
    stressed: dict[tuple[str, str, int], numerics.Expected | None] = field(default_factory=dict)
    # by case, stress input and seed: candidates get the very inputs that the target's own kernel passed

    def __post_init__(self) -> None:
        self.spread = Spread(self.module, CPU, self.arch)

    def compare(
        self,
        trials: list[Trial],
        results: Results,
        folder: Path,
        is_target: bool,
        covered: Covered,
    ) -> Judgement:
        """Return the verdict on results by label of trial; note in `covered` what they cover."""
        checks: list[object] = []
        for trial in trials:
            runs = results.get(trial.label, [])
            if trial.stress_input and is_target:
                checks += self._try_stress_input(trial, trial.stress_input, runs, folder, covered)
                continue
            if not trial.stress_input:
                covered.note(runs)
            expected = self._expected(trial) if runs else None
            if expected is None:
                continue
            for run in runs:
                outcome = compared(trial, run, expected, _ratios(self.module, trial, LOOSER), folder, is_target)
                if isinstance(outcome, Judgement):
                    if run is not runs[0] and run.get("config"):  # others were right, or not tried in this case
                        within = quoted(f"; in its configuration {run['config']}"[:300])
                        outcome = replace(outcome, why=outcome.why + within)
                    evidence = {"numerics": [*checks, *outcome.compared]}
                    return replace(outcome, evidence=evidence, coverage=covered.coverage(ended=False))
                if isinstance(outcome, str):
                    covered.says_nothing(trial, run, outcome)
                    continue
                checks.append(outcome.as_json() | {"config": str(run.get("config", ""))})
                covered.right(trial, run, expected)
        for drop in self.stress.dropped:
            if drop["strain"] not in covered.stressed:
                covered.left_out.setdefault(drop["strain"], drop["why"])
        return verdict(covered, {"numerics": checks, "dropped": list(self.stress.dropped)})

    def wanted(self, trial: Trial) -> tuple[numerics.Expected, dict[str, float]] | None:
        """Return what a trial must give and its tolerance; None for a stress input that breaks the reference."""
        expected = self._expected(trial)
        return None if expected is None else (expected, _ratios(self.module, trial, LOOSER))

    def _try_stress_input(
        self,
        trial: Trial,
        stress_input: StressInput,
        results: list[Result],
        folder: Path,
        covered: Covered,
    ) -> list[JsonObject]:
        """Test a stress input with the target's own kernel; if it passes, it counts. Return the comparisons."""
        expected = self._expected(trial)
        if expected is None:
            self.stress.drop(trial.case, stress_input, "the reference breaks down in its own precision")
            return []
        ratios = _ratios(self.module, trial, OWN_RATIO)
        outcomes = [compared(trial, r, expected, ratios, folder, is_target=True) for r in results]
        wrong = next(
            (f.reason if isinstance(f, Judgement) else f for f in outcomes if isinstance(f, Judgement | str)), ""
        )
        if outcomes and not wrong:
            self.stress.passes(trial.case, stress_input)
            covered.right(trial, results[0], expected)
        else:
            blamed = f"the target's own kernel: {wrong}" if any(isinstance(f, Judgement) for f in outcomes) else wrong
            self.stress.drop(trial.case, stress_input, blamed or "there was no time to try it")
        return [f.as_json() for f in outcomes if isinstance(f, numerics.Comparison)]

    def _expected(self, trial: Trial) -> numerics.Expected | None:
        """Return what a trial must give; None for a stress input that breaks the reference itself."""
        case = params(self.module, trial.case)
        if not trial.stress_input:
            self.usual[trial.case] = self.spread.expect(trial.case, case, trial.seed)
            return self.usual[trial.case]
        key = trial.case, trial.label, trial.seed
        if key not in self.stressed:
            self.stressed[key] = self._under_stress(trial, case)
        expected = self.stressed[key]
        if expected is None:
            return None
        usual = self.usual.get(trial.case) or self.spread.expect(trial.case, case, trial.seed)
        return numerics.forgiving(expected, usual)

    def _under_stress(self, trial: Trial, case: JsonObject) -> numerics.Expected | None:
        try:
            expected = numerics.expect(
                self.module, trial.case, case, trial.seed, CPU, trial.stress_input, arch=self.arch
            )
        except TargetFault:
            return None
        return expected if expected.reliable else None


def _ratios(module: ModuleType, trial: Trial, times: float) -> dict[str, float]:
    return numerics.looser(getattr(module, "TOLERANCE", None), times if trial.stress_input else 1.0)
