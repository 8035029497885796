"""The counters pass as a whole: has Nsight Compute profile one launch of a kernel, and reads what it counted.

Needs a GPU whose counters this user may read, ncu and ncu-report: here, or where a judge elsewhere is. Whatever is
missing is an answer of one line, and no fault. ncu replays the launch some 20 to 40 times, in a process beside the
judge's, so nothing may be timed meanwhile: a GPU of this machine is held for that, and not while torch is imported, the
kernel is built with lines, or the report is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.json_codec import Malformed
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.questions import Count, Problem
from pgo_agent.sandbox.judge.references import plan_ref
from pgo_agent.sandbox.profile import nvidia
from pgo_agent.sandbox.profile.backend import CannotCompile, Subject, Workbench
from pgo_agent.sandbox.profile.counters import metrics, ncu
from pgo_agent.sandbox.profile.counters.metrics import Code
from pgo_agent.sandbox.profile.counters.ncu import Absent
from pgo_agent.sandbox.profile.counters.ncu_report import Facts
from pgo_agent.sandbox.profile.counters.report import SECONDS, Found, Launched, facts
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef

OTHER_CODE = "with line information the assembler makes other code of this kernel"


def take(
    judge: GpuJudge | GpuPool,
    builder: Builder,
    place: KernelRef,
    static: StaticProfile | None = None,
    seconds: float = SECONDS,
) -> Counters | Missing:
    """Return what one launch of a kernel cost by the GPU's own counters: its first in one call of the launcher.

    `judge`: whose target, interpreter and GPU are used; its process is not. `static`: the kernel's, which knows the
    lines of the source; without it there are those of the TTGIR alone. `seconds`: until the launcher waits for a GPU,
    and again for what it does there. Raises what the compiler's box raises: Killed, EnvironmentFault.
    """
    lines: list[Code] = []
    try:
        ncu.find()
        if isinstance(judge, GpuJudge) and judge.gpu is None:
            raise Absent("there is no GPU")
        plain, contract = plan_ref(builder.contents, place.bundle, place.choice), judge.target.contract_path.resolve()
        launch = Launched(contract, place.case, place.kernel, plain, judge.python, seconds)
        found = facts(launch, partial(_turn, judge), lambda: lines.append(code(builder, place, static)))
        return _read(found, builder, place, lines[0])
    except Absent as e:
        return Missing(PassName.COUNTERS, str(e))


@contextmanager
def _turn(judge: GpuJudge | GpuPool) -> Iterator[str]:
    with judge.turn() as gpu, judge.occupied():
        yield str(gpu.gpu)


def asked(judge: Judge, builder: Builder, place: KernelRef, static: StaticProfile | None = None) -> Counters | Missing:
    """Return the same of a judge elsewhere. Raises as `take`, and what asking it raises."""
    answer = judge.ask(question(builder.contents, place))
    if isinstance(answer, Problem):
        return Missing(PassName.COUNTERS, answer.problem)
    try:
        found = Found(Facts.from_json(answer.facts), answer.tool)
        return _read(found, builder, place, code(builder, place, static))
    except Malformed as e:
        return Missing(PassName.COUNTERS, f"what was counted elsewhere cannot be read: {e}"[:300])
    except Absent as e:
        return Missing(PassName.COUNTERS, str(e))


def question(contents: ContentStore, place: KernelRef) -> Count:
    return Count(place.case, place.kernel, plan_ref(contents, place.bundle, place.choice))


def _read(found: Found, builder: Builder, place: KernelRef, lines: Code) -> Counters:
    """Return the counters in a report. Raises Absent for one of another kernel, or without the figures that matter."""
    kernel = builder.contents.manifest(place.bundle)["kernels"][place.kernel]["name"]
    if found.facts.kernel != kernel:
        raise Absent(f"ncu profiled {found.facts.kernel} in place of {kernel}")
    return metrics.counters(found.facts, found.tool, lines)


def code(builder: Builder, place: KernelRef, static: StaticProfile | None) -> Code:
    """Return the lines of the build that runs. Raises what the compiler's box raises."""
    try:
        compiled = nvidia.compiled(Workbench(builder), Subject(place.kernel, None))
    except CannotCompile as e:
        return Code(unlined=f"its build with line information failed: {e}")
    if not compiled.same_code:
        return Code(unlined=OTHER_CODE)
    return Code(compiled.instructions, sources(static, place.kernel))


def sources(static: StaticProfile | None, build: str) -> dict[int, int] | None:
    """Return line of the TTGIR -> line of the kernel's file; None where the static profile of this build knows no
    file."""
    if static is None or static.build != build or not static.file:
        return None
    return static.sources
