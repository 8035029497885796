"""A second look at foreign candidates that Triton's interpreter finds right, or cannot run: what is recorded for a GPU.

In the interpreter's process a candidate's Python runs, and could be right there alone. Here the tracer records its
launcher on the small cases, as it does for a GPU, and this process executes the plans from the kernels' TTGIR. Blocks
run in a random order. Whatever is wrong here is tried with the target's own kernel, too: an input that this fails on
says nothing. What cannot be executed is no evidence, unless the own kernel can be. What the interpreter cannot run
(Gluon) may be found wrong here, and is not called right.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from pgo_agent.sandbox import guard_zones, in_place
from pgo_agent.sandbox.build.trace_and_compile import Traced, trace
from pgo_agent.sandbox.bundle import decode, validate
from pgo_agent.sandbox.bundle.schema import Plan
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.program import Program
from pgo_agent.sandbox.gate.reason import Reason, plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.guard_zones import Fill
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.judge.interpreted.cases import Trial
from pgo_agent.sandbox.judge.interpreted.outcome import Covered
from pgo_agent.sandbox.judge.interpreted.recorded_plan import Order, RecordedPlan
from pgo_agent.sandbox.judge.questions import Check
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.numerics import Expected
from pgo_agent.sandbox.target import Target

CONFIGS = 2  # of each small case: the first, and another
MEMORY = 1 << 30  # bytes that a plan of a small case may take here
SECONDS = 30.0  # for one run of a plan
Wanted = Callable[[Trial], tuple[Expected, Mapping[str, float]] | None]  # what a trial must give, and its tolerance


@dataclass
class Recording:
    """What a launcher does in the small cases."""

    plans: dict[str, list[Plan]] = field(default_factory=dict)  # case -> a plan for each configuration
    programs: dict[str, Program] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)  # case -> why there is no plan of it

    @classmethod
    def of(cls, traced: Traced, cases: Iterable[str]) -> "Recording":
        """Read a tracer's answer, which a candidate may have forged: every plan passes the rules of a bundle."""
        read = cls()
        by_case = {} if "error" in traced else traced["traced"].get("SMALL", {})
        for case in cases:
            try:
                read._add(case, traced, by_case)
            except NotModelled as e:
                read.lacking[case] = f"it needs {e}"
            except Exception as e:  # what a hostile text may lead to
                read.lacking[case] = f"its plan cannot be executed here ({type(e).__name__}: {e})"[:300]
        return read

    def _add(self, case: str, traced: Traced, by_case: Mapping[str, Any]) -> None:
        if said := traced.get("error") or next((e["error"] for e in by_case[case] if "error" in e), None):
            self.lacking[case] = f"the tracer says: {said['message']}"[:300]
            return
        plans = [decode.plan(entry["plan"]) for entry in by_case[case]]
        decode.need(bool(plans), "no plan was recorded")
        for plan in plans:
            validate.check_places(plan, MEMORY)
            for launch in plan.launches:
                validate.check_arguments(launch)
                if launch.kernel not in self.programs:
                    self.programs[launch.kernel] = Program(traced["texts"][launch.kernel].decode())
        self.plans[case] = plans


@dataclass(frozen=True)
class Found:
    """What came of a trial: nothing, where it is right."""

    wrong: Reason | None = None
    lacking: str = ""


class AsRecorded:
    """Judges the recorded plans of one target's candidates."""

    def __init__(self, module: ModuleType, target: Target, device: Device, box: Box, wanted: Wanted) -> None:
        self.module, self.target, self.device, self.box, self.wanted = module, target, device, box, wanted
        self.until = 0.0  # time.monotonic(): no run goes on beyond it
        self._of_own: dict[tuple[str, int], Found] = {}  # label and seed -> what came of the own kernel

    def judged(self, asked: Check, trials: Sequence[Trial], covered: Covered, found: Judgement) -> Judgement:
        """Return the verdict on a candidate that was found right, after its plans ran; note in `covered` what ran.

        Raises Killed when the tracer is killed again and again, EnvironmentFault for a full disk.
        """
        self.until = time.monotonic() + asked.seconds
        built = found.verdict == Verdict.BUILT
        shown = [t for t in trials if not t.held_out and (not t.stress_input if built else t.case in covered.ran)]
        recording = self._record(asked.source, [t.case for t in shown])
        ran, lacking = set[str](), dict[str, str]()
        for trial in shown:
            came = self._of_candidate(recording, trial)
            if came == Found():
                ran.add(trial.case)
                continue
            of_own = self._own_kernel(trial) if came.wrong is not None or not trial.stress_input else came
            if came.wrong is not None and of_own.wrong is None:
                why = trial.why + plain(", as recorded for a GPU: ") + came.wrong
                return replace(found, verdict=Verdict.BUILT if of_own.lacking else Verdict.WRONG, why=why)
            if of_own == Found() and not built:
                why = plain(": right in Triton's interpreter, but what was recorded for a GPU could not be executed: ")
                return replace(found, verdict=Verdict.BUILT, why=trial.why + why + quoted(came.lacking))
            if not trial.stress_input:
                lacking[trial.case] = came.lacking or "the target's own kernel is wrong there"
        return covered.as_recorded(found, len(ran), len({t.case for t in shown}), lacking)

    def _record(self, source: str, cases: Sequence[str]) -> Recording:
        names = list(dict.fromkeys(cases))
        with tempfile.TemporaryDirectory(prefix="pgo-recorded-") as folder:
            traced = trace(
                self.box, ContentStore(Path(folder)), self.target, self.device, source, {"SMALL": names}, CONFIGS,
                sample=True, untrusted=True,
            )  # fmt: skip
        return Recording.of(traced, names)

    @cached_property
    def _own(self) -> Recording:
        """What the target's own kernel does in the small cases."""
        return self._record(self.target.source, list(self.module.SMALL))

    def _own_kernel(self, trial: Trial) -> Found:
        """Return what comes of the target's own kernel in the same trial."""
        key = trial.label, trial.seed
        if key not in self._of_own:
            self._of_own[key] = self._try(self._own, trial)
        return self._of_own[key]

    def _of_candidate(self, recording: Recording, trial: Trial) -> Found:
        """Try a candidate's plans, which must launch kernels where those of the kernel as shipped do."""
        idle = any(not p.launches for p in recording.plans.get(trial.case, ()))
        if idle and any(p.launches for p in self._own.plans.get(trial.case, ())):
            return Found(lacking="its plan launches no kernel, where that of the kernel as shipped does")
        return self._try(recording, trial)

    def _try(self, recording: Recording, trial: Trial) -> Found:
        if trial.case in recording.lacking or trial.case not in recording.plans:
            return Found(lacking=recording.lacking.get(trial.case, "it was not recorded"))
        if (wanted := self.wanted(trial)) is None:
            return Found()
        plans = recording.plans[trial.case]
        for plan in plans[:1] if trial.stress_input else plans:
            if (found := self._executed(recording, plan, trial, *wanted)) != Found():
                return found
        return Found()

    def _executed(
        self, recording: Recording, plan: Plan, trial: Trial, expected: Expected, ratios: Mapping[str, float]
    ) -> Found:
        """Run one plan with its blocks in a random order; in order, too, where something or nothing came of that."""
        found = self._run(recording, plan, trial, expected, ratios, _shuffled)
        if found == Found():
            return found
        in_order = self._run(recording, plan, trial, expected, ratios, range)
        if found.wrong is None or in_order != Found():
            return in_order
        return Found(
            plain("right where the blocks of a launch run from first to last, and not in any order: ") + found.wrong
        )

    def _run(
        self,
        recording: Recording,
        plan: Plan,
        trial: Trial,
        expected: Expected,
        ratios: Mapping[str, float],
        order: Order,
    ) -> Found:
        until = min(time.monotonic() + SECONDS, self.until)
        try:
            run = RecordedPlan(plan, trial.inputs, recording.programs, order, until, in_place.names(self.module))
            run.poison(Fill())
            run()
            comparison = numerics.check(run.outputs, expected, dict(ratios))
            if not comparison.problem and not trial.stress_input and not run.written():
                run.blank()  # a caching allocator gives a program the same memory again, as the last call left it
                run.early = True
                run()
                comparison = numerics.check(run.outputs, expected, dict(ratios))
        except KernelFault as e:
            return Found(quoted(f"a kernel {e}"))
        except NotModelled as e:
            return Found(lacking=f"it needs {e}")
        except Exception as e:  # what a hostile text may lead to
            return Found(lacking=f"its plan cannot be executed here ({type(e).__name__}: {e})"[:300])
        if comparison.problem:
            return Found(comparison.why)
        if written := run.written():
            return Found(quoted(f"it writes into its input {', '.join(written)}"))
        stray = run.stray()
        return Found(plain(guard_zones.said(stray))) if stray else Found()


def _shuffled(blocks: int) -> list[int]:
    order = list(range(blocks))
    random.SystemRandom().shuffle(order)
    return order
