"""The verdict on the runs of an interpreter process: what was compared, what was left out and why.

Only what ran can be right: every output must have elements and must have been compared, and every kernel that plans of
public cases launch must have run in a right case. Otherwise the candidate is `built`, with the reason. Relies on
`numerics.py` for comparisons. The results of a process are read as hostile data.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import guard_zones
from pgo_agent.sandbox.bundle import decode
from pgo_agent.sandbox.gate.coverage import HELD_OUT, HELD_OUT_CASES, PUBLIC, Count, Coverage
from pgo_agent.sandbox.gate.reason import NONE, Reason, counted, left_out, plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.interpreted.cases import Trial
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.numerics import Comparison, Expected
from pgo_agent.sandbox.judge.results.stress_inputs import LAUNCHER_STRESS_INPUTS
from pgo_agent.sandbox.target import IN_PLACE

SEEN = {"wrong": Verdict.WRONG, "deadlock": Verdict.DEADLOCK}  # what the interpreter itself saw a kernel do
OUTPUTS_LIMIT = 256 << 20  # bytes of a candidate's outputs on one small case; they may be forged
NAMED = 5  # untried configurations that are named; the others are counted
DETAIL, MESSAGE = 300, 600  # characters of an error in what was left out, and of one that is the reason
SMALL, HIDDEN, CONFIGS = "small cases", HELD_OUT_CASES, "configurations"
RECORDED = "recorded plans"  # of small cases, executed as they were recorded for a GPU
STRESSED = "strains"  # what stored rows and recorded prompts call the count of stress inputs
REASON_COUNTS = (SMALL, HIDDEN, CONFIGS, STRESSED)  # the counts that a reason has
Result = Mapping[str, Any]  # one run, as the process left it
Results = Mapping[str, list[Result]]  # label of a trial -> its runs; unchecked


@dataclass
class Covered:
    """What was checked of a candidate."""

    small: int  # cases that there are
    held_out: int
    wanted: Collection[str]  # kernels that its plans launch; empty: not given
    functions: Mapping[str, int] = field(default_factory=dict)  # that its text defines -> how many of that name
    ran: dict[str, int] = field(default_factory=dict)  # case -> elements that were compared in it
    outputs: dict[int, int] = field(default_factory=dict)  # output -> elements
    kernels: set[str] = field(default_factory=set)
    listed: dict[str, None] = field(default_factory=dict)  # all configurations
    tried: set[str] = field(default_factory=set)
    stressed: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)  # case, configuration or stress input -> why
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # any case -> its parameters

    def right(self, trial: Trial, result: Result, expected: Expected) -> None:
        """Note a run that gave the expected outputs."""
        elements = sum(o.elements for o in expected.outputs)
        if not elements:
            self.left_out[trial.case] = "its results have no elements"
            return
        for i, o in enumerate(expected.outputs):
            self.outputs[i] = self.outputs.get(i, 0) + o.elements
        self.kernels.update(_words(result.get("launched")))
        if trial.stress_input:
            self.stressed.add(trial.stress_input.name)
            return
        self.ran[trial.case] = self.ran.get(trial.case, 0) + elements
        self.tried.add(str(result.get("config", "")))

    def add_held_out(self, apart: "Covered") -> None:
        """Add held-out cases that ran in a box of their own: nothing that was chosen there, such as configurations."""
        self.ran |= {case: n for case, n in apart.ran.items() if case.startswith(HELD_OUT)}
        self.left_out |= {case: why for case, why in apart.left_out.items() if case.startswith(HELD_OUT)}
        self.outputs |= {i: self.outputs.get(i, 0) + n for i, n in apart.outputs.items()}
        self.kernels |= apart.kernels

    def says_nothing(self, trial: Trial, result: Result, why: str) -> None:
        """Note a run that is no evidence, by its case and its configuration."""
        self.left_out.setdefault(trial.stress_input.name if trial.stress_input else trial.case, why)
        if not trial.stress_input and len(self.listed) > 1 and (config := str(result.get("config", ""))):
            self.left_out.setdefault(config, why)

    def note(self, results: Sequence[Result]) -> None:
        """Note the configurations that a case has, whatever their results."""
        self.listed.update(dict.fromkeys(n for r in results for n in _words(r.get("listed"))))

    def coverage(self, ended: bool = True) -> Coverage:
        """Return the coverage. `ended`: nothing wrong was found, so what was not reached is listed as left out."""
        held = sum(c.startswith(HELD_OUT) for c in self.ran)
        seen = [k for k in self.wanted if self.saw(k)]
        counts = {
            SMALL: Count(len(self.ran) - held, self.small),
            HIDDEN: Count(held, self.held_out),
            CONFIGS: Count(len(self.tried), max(len(self.listed), len(self.tried))),
            STRESSED: Count(len(self.stressed), len(LAUNCHER_STRESS_INPUTS)),
            "outputs": Count(sum(n > 0 for n in self.outputs.values()), len(self.outputs)),
            "kernels": Count(len(seen), len(self.wanted))
            if self.wanted
            else Count(len(self.kernels), len(self.kernels)),
            "elements compared": Count(*[sum(self.ran.values())] * 2),
        }
        untried = (
            [c for c in self.listed if c not in self.tried and c not in self.left_out] if ended and self.ran else []
        )
        skipped = self.left_out | dict.fromkeys(untried[:NAMED], "no time was left for it")
        if len(untried) > NAMED:
            skipped[f"{len(untried) - NAMED} more configurations"] = "no time was left for them"
        unseen = [k for k in self.wanted if not self.saw(k)] if ended and self.ran else []
        skipped |= dict.fromkeys(unseen, "no case that was checked runs it")
        skipped |= dict(self._only_one()) if ended and self.ran else {}
        seen_too = self.ran.keys() | self.tried | self.stressed
        return Coverage(counts, {n: why for n, why in skipped.items() if n not in seen_too})

    def _only_one(self) -> Iterator[tuple[str, str]]:
        """Give the sizes that are 1 in all cases that were checked, but not in the public ones: what depends on more,
        such as the stride of a batch, was not checked."""
        for case, params in self.sizes.items():
            for name, size in params.items() if case.startswith(PUBLIC) else ():
                checked = [self.sizes[c].get(name) for c in self.ran if c in self.sizes]
                if type(size) is int and size > 1 and checked and all(type(n) is int and n == 1 for n in checked):
                    yield (
                        f"{name} above 1",
                        f"it is 1 in every case that was checked, and {size} in {case[len(PUBLIC) :]}",
                    )

    def saw(self, kernel: str) -> bool:
        """Whether a kernel ran. A compiled kernel's name may begin with its function's, and then be no function's; of
        two functions of one name nobody knows which ran."""
        longer = kernel not in self.functions and any(kernel.startswith(f"{k}_") for k in self.kernels)
        return self.functions.get(kernel, 1) == 1 and (kernel in self.kernels or longer)

    def as_recorded(self, found: Judgement, ran: int, of: int, lacking: Mapping[str, str]) -> Judgement:
        """Return a verdict with what was executed of the recorded plans, and why others were not."""
        total = found.coverage
        counts = {**total.counts, RECORDED: Count(ran, of)}
        skipped = {f"{case} as recorded": why for case, why in lacking.items()}
        right = plain(f"; as recorded for a GPU right on {ran} of {of} small cases") if ran and not self.ran else NONE
        return replace(found, why=found.why + right, coverage=Coverage(counts, {**total.skipped, **skipped}))

    def lacking(self) -> Reason:
        """Return why the candidate cannot be called right; empty when it can."""
        if not self.ran:
            why = left_out(_public(self.coverage())) or plain("there is no small case")
            return plain("nothing of it could be checked here: ") + why
        blank = [str(i) for i, n in sorted(self.outputs.items()) if not n]
        if blank:
            return plain(f"output {', '.join(blank)} has no elements in any case that was checked")
        unseen = [k for k in self.wanted if not self.saw(k)]
        words = "launched for the public cases, and by no case that could be checked"
        return quoted(f"{', '.join(unseen)}: {words}") if unseen else NONE


def verdict(covered: Covered, evidence: Mapping[str, object]) -> Judgement:
    """Return the verdict where nothing wrong was found: `checked`, or `built` with the reason."""
    total, lacking = covered.coverage(), covered.lacking()
    if lacking:
        right = plain("; right on ") + counted(_public(total)) if covered.ran else NONE
        return Judgement(Verdict.BUILT, "interpreter", lacking + right, evidence, total)
    why = plain("right on ") + counted(_public(total)) + plain(" in Triton's interpreter; not measured")
    left = left_out(_public(total))
    why += plain("; left out: ") + left if left else NONE
    return Judgement(Verdict.CHECKED, "interpreter", why, evidence, total)


def _public(coverage: Coverage) -> Coverage:
    """Return what a reason shows: the main counts, and no name of a held-out case."""
    counts = {n: c for n, c in coverage.counts.items() if n in REASON_COUNTS and (c.ran or n in (SMALL, CONFIGS))}
    names = {s.name for s in LAUNCHER_STRESS_INPUTS}
    skipped = {n: w for n, w in coverage.skipped.items() if n not in names and not n.startswith(HELD_OUT)}
    return Coverage(counts, skipped)


def compared(
    trial: Trial, result: Result, expected: Expected, ratios: dict[str, float], folder: Path, is_target: bool
) -> Comparison | Judgement | str:
    """Compare one run; return the comparison, the verdict if it is wrong, or why it is no evidence.

    `is_target`: it ran the target's own kernel.
    """
    if result.get("unsupported"):
        return f"{_where(result)}{_line(result['error'])}"
    if lacking := _words(result.get("not_modelled")):
        return f"not modelled by the interpreter: {', '.join(lacking[:NAMED])}"
    if "error" in result:
        seen = SEEN.get(str(result.get("verdict")), Verdict.BUILD_ERROR)
        kind = Verdict.TIMEOUT if result.get("endless") is True else seen
        return Judgement(kind, "interpreter", trial.why + _quoted(f": {_where(result)}{result['error']}"))
    outputs = tensors.load(result["outputs"], folder, OUTPUTS_LIMIT)
    comparison = numerics.check([outputs[str(i)] for i in range(len(outputs))], expected, ratios)
    evidence: JsonObject = {"numerics": [comparison.as_json()]}
    if comparison.problem:
        return Judgement(Verdict.WRONG, "interpreter", trial.why + plain(": ") + comparison.why, evidence)
    if stray := decode.integer(result["stray"], 0, 1 << 40, "bytes written outside"):
        return Judgement(Verdict.WRONG, "interpreter", trial.why + plain(f": {guard_zones.said(stray)}"), evidence)
    if changed := [n for n in result["changed"] if n not in trial.in_place]:
        names = ", ".join(n for n in _words(changed) if n in trial.inputs) or "all of them"
        if is_target:
            return _writes(trial, names, f"name it in {IN_PLACE}, or clone it first", evidence)
        return _changed(trial, names, evidence, set(changed) <= set(_words(result.get("in_place"))))
    return comparison


def _writes(trial: Trial, names: str, advice: str, evidence: JsonObject) -> Judgement:
    words = f": kernel() writes into its argument {names}, and inputs are used again: {advice}"
    return Judgement(Verdict.REJECTED, "interpreter", trial.why + quoted(words), evidence)


def _changed(trial: Trial, names: str, evidence: JsonObject, as_outputs: bool) -> Judgement:
    if as_outputs:
        return _writes(trial, names, "clone it first", evidence)
    why = trial.why + quoted(f": the inputs were changed: {names}")
    return Judgement(Verdict.CHEATING, "interpreter", why, evidence)


def _quoted(text: str) -> Reason:
    return quoted(text[:MESSAGE])


def _where(result: Result) -> str:
    return f"line {result['line']}: " if type(result.get("line")) is int else ""


def _line(text: object) -> str:
    return " ".join(str(text).split())[:DETAIL]


def _words(value: Any) -> list[str]:
    """Return the names in what should be a list of names."""
    return [_line(n) for n in value] if isinstance(value, list) else []
