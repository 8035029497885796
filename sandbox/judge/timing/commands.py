"""The commands of a judge process that take times, besides those of `results/commands.py`.

Commands: sweep (time every configuration of a trusted bundle), look, judge and confirm (a candidate against the
incumbent), final (a table row for every case).
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.errors import BadBundle, TargetFault
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.coverage import Coverage
from pgo_agent.sandbox.gate.reason import NONE, joined, of_case, plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.questions import Against, OfCandidate, SweepEntry, SweptEntry
from pgo_agent.sandbox.judge.results import checks as stages
from pgo_agent.sandbox.judge.results import numerics, sealed, stress_runs
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession, verified_key
from pgo_agent.sandbox.judge.results.commands import CheckCommands, failed
from pgo_agent.sandbox.judge.stage_log import Clock
from pgo_agent.sandbox.judge.timing import bootstrap, last_session, sequential, timer
from pgo_agent.sandbox.judge.timing import decision as timing_verdict
from pgo_agent.sandbox.judge.timing.session import Inconsistent, time_sides

SWEEP_ROUNDS, FINALIST_ROUNDS = 4, 12
FINALISTS, FINALISTS_OWN = 5, 2
Ask = Callable[[TargetSession, Bundle, OfCandidate], Judgement]


@dataclass(frozen=True)
class Checked:
    """The results of all cases, none of them wrong."""

    comparisons: tuple[numerics.Comparison, ...] = ()
    dropped: tuple[dict[str, str], ...] = ()  # trials that do not count: case, stress input, why

    def as_json(self) -> JsonObject:
        return {"numerics": [c.as_json() for c in self.comparisons], "dropped": list(self.dropped)}


class Worker(CheckCommands):
    """All commands on an open target."""

    def sweep(self, asked: questions.Sweep) -> questions.Swept:
        """Check and time configurations of trusted bundles; time the best ones again.

        Only these finalists may be compared with one another: they were timed side by side. They include the best of
        the file's own list (entries marked `own`), and its fastest even if wrong: an autotuner goes by time.
        """
        bench = self._bench()
        bench.new_seeds()
        entries: dict[str, list[SweepEntry]] = {}
        for entry in asked.entries:
            entries.setdefault(entry.case, []).append(entry)
        return questions.Swept(tuple(e for case, listed in entries.items() for e in self._sweep(case, listed)))

    def _sweep(self, case: str, entries: Sequence[SweepEntry]) -> list[SweptEntry]:
        bench = self._bench()
        bench.expect(case)  # before a step of the kernel is announced
        swept = [self._try(entry) for entry in entries]
        bench.expected.clear()
        by_time = [i for i in range(len(swept)) if swept[i].ms]
        by_time.sort(key=lambda i: statistics.median(swept[i].ms))
        right = [i for i in by_time if not swept[i].problem]
        own = [i for i in right if swept[i].own][:FINALISTS_OWN]
        picked = [i for i in by_time if swept[i].own][:1]
        best = own + [i for i in right if i not in own][: FINALISTS - len(own)]
        chosen = {i: entries[i] for i in (*best, *(i for i in picked if i not in best))}
        for i, ms in self._finalists(case, chosen, {i for i in chosen if swept[i].problem}).items():
            swept[i] = replace(swept[i], ms=tuple(ms), finalist=True)
        return swept

    def _try(self, entry: SweepEntry) -> SweptEntry:
        bench, case = self._bench(), entry.case
        result = SweptEntry(entry.bundle.id, case, entry.choice, entry.own, problem="", ms=())
        pick: Pick = {case: (self._load(entry.bundle), entry.choice)}
        try:
            verdict, comparison = stages.check_case(bench, pick, case, "sweep")
        except BadBundle as e:
            return replace(result, problem=str(e))
        problem = f"{verdict}: {comparison.problem}" if verdict else ""
        result = replace(result, problem=problem, check=comparison.as_json())
        if verdict and not entry.own:
            return result
        try:
            timed = time_sides(bench, {"it": pick}, case, SWEEP_ROUNDS, "sweep", control=False)
        except Inconsistent as e:
            return replace(result, problem=problem or f"{e.verdict}: {e}")
        return replace(result, ms=tuple(timer.rounded(timed)["it"]))

    def _finalists(self, case: str, best: Mapping[int, SweepEntry], wrong: set[int]) -> dict[int, list[float]]:
        """Time the best configurations again, side by side; the new samples replace the first ones."""
        if not best:
            return {}
        sides: dict[str, Pick] = {str(i): {case: (self._load(e.bundle), e.choice)} for i, e in best.items()}
        try:
            timed = timer.rounded(time_sides(self._bench(), sides, case, FINALIST_ROUNDS, "sweep", control=False))
        except Inconsistent as e:
            if not wrong:
                advice = "fix it: its results must be what they were"
                raise TargetFault(f"the kernel as it stands: {e}", advice) from None
            # without the wrong ones, whose results may differ
            return self._finalists(case, {i: e for i, e in best.items() if i not in wrong}, set())
        return {i: timed[str(i)] for i in best}

    def look(self, asked: questions.Look) -> Judgement:
        """Take a candidate's public cases through smoke and quick time. `checked`: it may be faster; `judge` it."""
        return self._answer(asked, self._look)

    def judge(self, asked: questions.Judge) -> Judgement:
        """Take one candidate through smoke, quick time, numerics and time. `accepted` still needs `confirm`."""
        return self._answer(asked, self._judge)

    def _answer(self, asked: OfCandidate, ask: Ask) -> Judgement:
        """Return the verdict on a candidate; refuse one that cannot be launched, or not twice alike."""
        bench = self._bench()
        try:
            candidate = self._load(asked.candidate.bundle)
        except BadBundle as e:
            return Judgement(Verdict.REJECTED, "build", quoted(str(e)))
        bench.new_seeds()
        try:
            judged = ask(bench, candidate, asked)
        except BadBundle as e:
            judged = Judgement(Verdict.REJECTED, "smoke", quoted(str(e)))
        except Inconsistent as e:
            judged = self._why_different(candidate, e) or Judgement(e.verdict, "time", e.why)
        except sealed.Damaged as e:
            judged = Judgement(Verdict.WRONG, "numerics", plain(str(e)))
        return _within_its_memory(bench, judged)

    def _why_different(self, candidate: Bundle, found: Inconsistent) -> Judgement | None:
        """Return what a check says of outputs that differ in a case not checked before: they may be unwritten."""
        pick, case = found.launched
        bundle, label = pick[case]
        known = bundle is not candidate or verified_key(pick, case) in self._bench().verified
        if known or found.verdict != Verdict.RACE:
            return None
        return self._checked(self._bench(), bundle, {case: [label]}, "quick")[0]

    def _look(self, bench: TargetSession, candidate: Bundle, asked: OfCandidate) -> Judgement:
        clock = Clock()
        return clock.with_stages(self._first(bench, candidate, asked, asked.public, clock)[1])

    def _judge(self, bench: TargetSession, candidate: Bundle, asked: OfCandidate) -> Judgement:
        clock = Clock()
        everything = (*asked.public, *asked.held_out)
        pick, judged = self._first(bench, candidate, asked, everything, clock)
        if judged.verdict != Verdict.CHECKED:
            return judged
        wrong, checked, covered = self._numerics(bench, pick, asked, "numerics")
        if wrong:
            return clock.ends(wrong)
        clock.passed("numerics", plain(f"{len(checked.comparisons)} comparisons"), covered)
        evidence = {k: v for k, v in judged.evidence.items() if k != "speedup"} | checked.as_json()
        base = self._pick(asked.incumbent)
        return clock.ends(
            self._time(bench, asked, pick, base, Judgement(Verdict.CHECKED, "time", NONE, evidence, covered))
        )

    def _first(
        self, bench: TargetSession, candidate: Bundle, asked: OfCandidate, cases: Sequence[str], clock: Clock
    ) -> tuple[Pick, Judgement]:
        """Check the least of these cases and time the public ones quickly. `checked`: the candidate goes on."""
        absent = [c for c in cases if c not in candidate.plans]
        if absent:
            why = plain("does not build for ") + joined(", ", [of_case(c) for c in absent])
            return {}, Judgement(Verdict.BUILD_ERROR, "build", why)
        pick: dict[str, tuple[Bundle, str]] = {c: (candidate, next(iter(candidate.plans[c]))) for c in cases}
        smoke = _least(bench, candidate, cases, asked.public)
        wrong, _ = self._checked(bench, candidate, smoke, "smoke", self._pick(asked.shipped))
        if wrong:
            return pick, clock.ends(wrong)
        looked = coverage.of(cases=(len(smoke), len(cases)), configurations=_tried(smoke, candidate, cases))
        text = "every configuration on its least case against the reference, all memory filled in three ways"
        clock.passed("smoke", plain(text), looked)
        pick |= self._choose(bench, candidate, asked)
        sides: dict[str, Pick] = {"incumbent": self._pick(asked.incumbent), "candidate": pick}
        quick = {c: timer.rounded(time_sides(bench, sides, c, stages.QUICK_ROUNDS, "quick")) for c in asked.public}
        gain = bootstrap.geomean({c: (s["incumbent"], s["candidate"]) for c, s in quick.items()}, asked.weights)
        why = plain(f"{gain.mid:.3f}x of the incumbent")
        evidence = {"choices": _choices(pick), "quick": quick, "speedup": gain.as_json()}
        if gain.high < 1 + timing_verdict.NOISE_FLOOR and not asked.no_slower:
            return pick, clock.ends(Judgement(Verdict.SLOWER, "quick", why, evidence))
        clock.passed("quick", why, coverage.of(cases=len(quick)))
        return pick, Judgement(Verdict.CHECKED, "quick", why, evidence, looked)

    def _numerics(
        self, bench: TargetSession, pick: Pick, asked: Against, stage: str
    ) -> tuple[Judgement | None, Checked, Coverage]:
        """Check every case in every configuration, then some under stress inputs; return a failure or the evidence."""
        checks, wanted, shipped = list[numerics.Comparison](), _to_check(pick, asked), self._pick(asked.shipped)
        for case, labels in wanted.items():
            wrong, comparisons = self._checked(bench, pick[case][0], {case: labels}, stage, shipped)
            if wrong:
                return wrong, Checked(), coverage.NOTHING
            checks += comparisons
        under_stress = stress_runs.check_stress_inputs(bench, pick, shipped, stage)
        if under_stress.verdict:
            last = under_stress.checks[-1]
            return failed(under_stress.verdict, stage, last.case, last), Checked(), coverage.NOTHING
        compared = Checked((*checks, *under_stress.checks), tuple(under_stress.dropped))
        tried = coverage.of(
            cases=len(wanted),
            configurations=sum(map(len, wanted.values())),
            strains=(len(under_stress.checks), under_stress.possible),
        )
        return None, compared, tried

    def _checked(
        self,
        bench: TargetSession,
        bundle: Bundle,
        wanted: Mapping[str, list[str]],
        stage: str,
        shipped: Pick | None = None,
    ) -> tuple[Judgement | None, list[numerics.Comparison]]:
        """Check configurations of cases; return the first failure, and the comparisons before it."""
        checks = list[numerics.Comparison]()
        for case, labels in wanted.items():
            for label, verdict, comparison in stages.check_labels(bench, bundle, case, labels, stage, shipped):
                if verdict:
                    return failed(
                        verdict, stage, case, comparison, label if len(bundle.plans[case]) > 1 else ""
                    ), checks
                checks.append(comparison)
        return None, checks

    def _choose(self, bench: TargetSession, bundle: Bundle, asked: Against) -> dict[str, tuple[Bundle, str]]:
        """Return the candidate's fastest configuration of each case, by a short timing; see TIED."""
        chosen = {}
        for case in asked.public:
            labels = list(bundle.plans[case])
            if len(labels) > 1:
                sides: dict[str, Pick] = {c: {case: (bundle, c)} for c in labels}
                timed = time_sides(bench, sides, case, stages.QUICK_ROUNDS, "choose", control=False)
                own, kept = asked.incumbent[case].choice, 1 - timing_verdict.TIED if asked.no_slower else 1.0
                labels.sort(key=lambda c: statistics.median(timed[c].samples) * (kept if c == own else 1))
            chosen[case] = (bundle, labels[0])
        return chosen

    def _time(self, bench: TargetSession, asked: Against, pick: Pick, base: Pick, right: Judgement) -> Judgement:
        """Return the verdict on the time of a right candidate; `right` holds evidence and coverage of its results."""
        sides: dict[str, Pick] = {"incumbent": base, "shipped": self._pick(asked.shipped)}
        sides |= {"tuned": self._pick(asked.tuned)} if asked.tuned else {}
        return sequential.run(bench, sides | {"candidate": pick}, asked.public, asked.weights, right, asked.no_slower)

    def confirm(self, asked: questions.Confirm) -> Judgement:
        """Check and time a winner again, in this new process with new seeds."""
        bench, clock = self._bench(), Clock()
        bench.new_seeds()
        pick = self._pick(asked.candidate)
        try:
            wrong, checked, covered = self._numerics(bench, pick, asked, "confirm")
            if wrong:
                return clock.ends(wrong)
            right = Judgement(
                Verdict.CHECKED, "confirm", NONE, {"choices": _choices(pick), **checked.as_json()}, covered
            )
            judged = self._time(bench, asked, pick, self._pick(asked.incumbent), right)
        except Inconsistent as e:
            judged = Judgement(e.verdict, "confirm", e.why)
        except sealed.Damaged as e:
            judged = Judgement(Verdict.WRONG, "confirm", plain(str(e)))
        return clock.ends(_within_its_memory(bench, replace(judged, stage="confirm")))

    def final(self, asked: questions.Final) -> questions.Timed:
        """Time every side and every library on the given cases, in one session each: the rows of a table.

        `compile_reference`: time torch.compile of the reference, too, or answer in which cases that fails, and why.
        """
        self._bench().new_seeds()
        sides = {n: self._pick(p) for n, p in asked.sides.items()}
        return last_session.run(self._bench(), sides, asked.cases, bool(asked.compile_reference))


def _within_its_memory(bench: TargetSession, judged: Judgement) -> Judgement:
    """The judgement, if no launch wrote into the judge's own memory: guard zones see only what lies beside a tensor."""
    if not bench.damaged() or judged.verdict == Verdict.CHEATING:
        return judged
    return replace(judged, verdict=Verdict.WRONG, why=plain(sealed.DAMAGED))


def _to_check(pick: Pick, asked: Against) -> dict[str, list[str]]:
    """Return every configuration of every case, the chosen one first."""
    cases = (*asked.public, *asked.held_out)
    return {c: list(dict.fromkeys((pick[c][1], *pick[c][0].plans[c]))) for c in cases}


def _least(bench: TargetSession, bundle: Bundle, cases: Sequence[str], public: Sequence[str]) -> dict[str, list[str]]:
    """Return every configuration that may be timed, each with the least case that has it; and all of the least case."""
    wanted = {n for c in public for n in bundle.plans[c]}
    least: dict[str, list[str]] = {}
    for case in sorted(cases, key=lambda c: float(bench.target.flops(bench.cases[c]))):
        labels = [n for n in bundle.plans[case] if n in wanted or not least]
        if labels:
            least[case] = labels
            wanted.difference_update(labels)
    return least


def _tried(wanted: Mapping[str, list[str]], bundle: Bundle, cases: Sequence[str]) -> tuple[int, int]:
    """Return how many configurations of cases are checked, and how many there are."""
    return sum(map(len, wanted.values())), sum(len(bundle.plans[c]) for c in cases)


def _choices(pick: Pick) -> dict[str, str]:
    return {case: choice for case, (_, choice) in pick.items()}
