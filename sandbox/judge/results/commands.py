"""The commands of a judge process that take no times: they open a target, load bundles and check results.

Commands: open (target and device), hello (nothing more), own (a step of the target's own code), race (a sanitized
build, or many launches of the plain one), idle (each launch left out), numerics (results alone), same_bits (of two
plans), timeline (records of an instrumented build), peaks (of this GPU). `timing/commands.py` adds those that take
times. Every step that a kernel could block is announced, so that the parent can kill this process.
"""

from dataclasses import replace
from pathlib import Path

import torch
from pgo_agent.sandbox import guard_zones, target
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.validate import Bundle, Limits
from pgo_agent.sandbox.errors import BadBundle, Fault, TargetFault
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import of_case, plain, quoted, shown, withheld
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.environment import environment, healthy
from pgo_agent.sandbox.judge.launches import instrumented as instrumented_launch
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.questions import PeakRates, Problem, Recorded
from pgo_agent.sandbox.judge.references import BundleRef, Side
from pgo_agent.sandbox.judge.results import checks, output_checksums, stress_runs
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession
from pgo_agent.sandbox.judge.results.numerics import Comparison
from pgo_agent.sandbox.judge.timing import measured_peaks, timer

RACE_SECONDS, STRESS_LAUNCHES = 60.0, 200
STRESS_CHECKS = 10  # of three launches, where each is compared with the reference


class CheckCommands:
    """Commands on an open target. `announce` tells the parent the next step and its deadline in seconds."""

    def __init__(self, announce: checks.Announce) -> None:
        self.announce = announce
        self.bench: TargetSession | None = None
        self.bundles: dict[tuple[str, Limits], Bundle] = {}
        self.limits = Limits(0, 0, 0, 0)

    def open(self, asked: questions.Open) -> Environment:
        """Load the target, start CUDA, test the GPU."""
        return self.start(asked.contract, frozenset(asked.unfit))

    def start(self, contract: str, unfit: frozenset[str] = frozenset()) -> Environment:
        """Do so for the contract of that path, without some stress inputs."""
        self.announce("start CUDA", 120.0)
        device = torch.device("cuda", 0)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        healthy(device)
        self.announce("import the target", 120.0)
        try:
            module = target.load(Path(contract), "pgo_target")
        except Exception as e:
            raise TargetFault(f"{contract} cannot be imported: {type(e).__name__}: {e}", "fix it") from e
        cases = {f"{s}/{n}": p for s in ("CASES", "HELD_OUT") for n, p in getattr(module, s).items()}
        properties = torch.cuda.get_device_properties(device)
        arch = properties.major * 10 + properties.minor
        self.limits = Limits(
            arch,
            properties.shared_memory_per_block_optin,
            properties.total_memory * 9 // 10,
            properties.total_memory // 20,
        )
        peaks = measured_peaks.load_or_measure(device)
        self.bench = TargetSession(module, cases, device, timer.Timer(device), self.announce, peaks, unfit)
        return environment(properties, peaks.flops, peaks.moved)

    def rest(self) -> None:
        """Release the GPU's free memory until the next command."""
        torch.cuda.empty_cache()

    def hello(self, _: questions.Hello) -> questions.Nothing:
        """Return nothing: the target is open."""
        return questions.Nothing()

    def own(self, asked: questions.Own) -> questions.Nothing:
        """Take one of the target's own steps, and launch nothing else."""
        bench = self._bench()
        bench.new_seeds()
        if asked.stress_input:
            stress_runs.try_own(bench, self._pick(asked.shipped), asked.case, asked.stress_input)
        else:
            bench.expect(asked.case)
        return questions.Nothing()

    def race(self, asked: questions.Race) -> Judgement:
        """Run a sanitized build (`sandbox/build/variants.py`) on new inputs; a hazard ends this process with a message.

        A `stress` run replaces it where no such build compiles: many launches of the plain build on refilled buffers.
        """
        bench, case = self._bench(), asked.case
        bench.new_seeds()
        try:
            bundle = self._load(asked.bundle, replace(self.limits, variables=bool(asked.sanitized)))
        except BadBundle as e:
            return Judgement(Verdict.UNDECIDED, "race", quoted(str(e)))
        if asked.unguarded:
            guard_zones.GUARD = 0  # a memory checker cannot tell a zone from its tensor; lasts as long as this process
        pick: Pick = {case: (bundle, asked.choice)}
        if asked.stress and not bench.deterministic:
            return self._stressed(bench, pick, case)
        launches = STRESS_LAUNCHES if asked.stress else 1
        bench.announce(f"race {case}", RACE_SECONDS)
        seen = output_checksums.outputs_of(bench, pick, case, launches)
        if len(seen) > 1 and bench.deterministic:
            words = f": {launches} launches on the same inputs gave {len(seen)} different outputs"
            return Judgement(Verdict.RACE, "race", of_case(case) + plain(words))
        why = plain(f"the same outputs in {launches} launches (") + of_case(case) + plain(")")
        return Judgement(Verdict.CHECKED, "race", why, coverage=coverage.of(cases=1, launches=launches))

    def _stressed(self, bench: TargetSession, pick: Pick, case: str) -> Judgement:
        """Run a nondeterministic target many times; compare each launch with the reference."""
        for _ in range(STRESS_CHECKS):
            verdict, comparison = checks.check_case(bench, pick, case, "race")
            if verdict:
                return failed(verdict, "race", case, comparison)
        launches = STRESS_CHECKS * len(checks.FILLS)
        why = plain(f"right in {launches} launches (") + of_case(case) + plain(")")
        return Judgement(Verdict.CHECKED, "race", why, coverage=coverage.of(cases=1, launches=launches))

    def idle(self, asked: questions.Idle) -> questions.IdleLaunches:
        """Return a candidate's kernels that its outputs do not need, if there are more than in the shipped kernel."""
        bench, case = self._bench(), asked.case
        bench.new_seeds()
        bench.announce(f"launches {case}", checks.STEP_SECONDS)
        sides = (self._pick(side) for side in (asked.candidate, asked.shipped))
        ours, shipped = (output_checksums.idle_launches(bench, s, case) if case in s else [] for s in sides)
        return questions.IdleLaunches(tuple(ours) if len(ours) > len(shipped) else ())

    def numerics(self, asked: questions.Numerics) -> Judgement:
        """Check the results of one configuration of every case, on new inputs."""
        bench, stage = self._bench(), asked.stage
        bench.new_seeds()
        pick = self._pick(asked.candidate)
        for case in pick:
            verdict, comparison = checks.check_case(bench, pick, case, stage)
            if verdict:
                return failed(verdict, stage, case, comparison)
        why = plain("right") + withheld(f" on {len(pick)} cases")  # held-out ones are among them
        return Judgement(Verdict.CHECKED, stage, why, coverage=coverage.of(cases=len(pick)))

    def same_bits(self, asked: questions.SameBits) -> questions.Difference:
        """Return the first public case in which the checksums of two sides' outputs differ, or an empty name."""
        bench = self._bench()
        bench.new_seeds()
        ours, theirs = self._pick(asked.candidate), self._pick(asked.own)
        for case in asked.public:
            bench.announce(f"numerics {case}", checks.STEP_SECONDS)
            if output_checksums.outputs_of(bench, ours, case, 1) != output_checksums.outputs_of(bench, theirs, case, 1):
                return questions.Difference(shown(case))
        return questions.Difference("")

    def timeline(self, asked: questions.Timeline) -> Recorded | Problem:
        """Launch an instrumented build (`sandbox/build/variants.py`); return what `instrumented.record` gives."""
        bench, build = self._bench(), asked.instrumented
        bench.new_seeds()
        try:
            instrumented = {asked.case: (self._load(build.bundle, replace(self.limits, records=True)), build.choice)}
            return instrumented_launch.record(bench, instrumented, self._pick({asked.case: asked.plain}), asked)
        except BadBundle as e:
            return Problem(str(e))

    def peaks(self, asked: questions.Peaks) -> PeakRates | Problem:
        """Return the best measured rates of this GPU for a case's types."""
        bench, case = self._bench(), asked.case
        bench.announce(f"peaks {case}", checks.STEP_SECONDS)
        if case not in bench.cases:
            return Problem(f"the target has no case {shown(case)}")
        return PeakRates(bench.peaks.best_flops(bench.is_narrow(case)), bench.peaks.moved)

    def _bench(self) -> TargetSession:
        if self.bench is None:
            raise Fault("no target is open", "send the command `open` first")
        return self.bench

    def _load(self, where: BundleRef, limits: Limits | None = None) -> Bundle:
        key = where.id, limits or self.limits  # a build valid as a variant may be invalid as a candidate
        if key not in self.bundles:
            bundle = validate.load(Path(where.manifest), Path(where.artefacts), key[1])
            if bundle.id != where.id:
                raise BadBundle(f"bundle {where.id[:12]} was tampered with")
            self.bundles[key] = bundle
        return self.bundles[key]

    def _pick(self, side: Side) -> Pick:
        return {case: (self._load(plan.bundle), plan.choice) for case, plan in side.items()}


def failed(verdict: Verdict, stage: str, case: str, comparison: Comparison, label: str = "") -> Judgement:
    """Return the verdict on a case that failed, in the configuration `label` if there are several."""
    detail = (f" with {comparison.stress_input}" if comparison.stress_input else "") + (f" ({label})" if label else "")
    why = of_case(case, detail) + plain(": ") + comparison.why
    return Judgement(verdict, stage, why, {"check": comparison.as_json()})
