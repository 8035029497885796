"""The counters pass as a whole: has Nsight Compute profile one launch of a kernel, and reads what it counted.

Needs a GPU whose counters this user may read, ncu and ncu-report. Whatever is missing is an answer of one line, and no
fault. ncu replays the launch some 20 to 40 times, in a process beside the judge's, so nothing may be timed meanwhile:
the GPU is held for that, and not while torch is imported, the kernel is built with lines, or the report is read.
"""

import json
import tempfile
from pathlib import Path

from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.references import plan_ref
from pgo_agent.sandbox.judge.worker_process import environment
from pgo_agent.sandbox.profile import nvidia
from pgo_agent.sandbox.profile.backend import CannotCompile, Subject, Workbench
from pgo_agent.sandbox.profile.counters import metrics, ncu, ncu_report
from pgo_agent.sandbox.profile.counters.gpu_handover import Handover
from pgo_agent.sandbox.profile.counters.metrics import Code
from pgo_agent.sandbox.profile.counters.ncu import PROBLEM, Absent, Program, Tool
from pgo_agent.sandbox.profile.counters.types import Counters, LaunchOnce
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef

LAUNCHER = "pgo_agent.sandbox.profile.counters.launcher"
SECONDS = 300.0  # for torch, and again for the target and a launch that is replayed some 40 times
GRACE_SECONDS = 5.0  # behind the deadline, before the launcher ends itself
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
    try:
        tool = ncu.find()
        if isinstance(judge, GpuJudge) and judge.gpu is None:
            raise Absent("there is no GPU")
        reader = ncu.own_reader(tool)
        ncu_report.readable(reader)
        with tempfile.TemporaryDirectory(prefix="pgo-counters-") as name:
            folder = Path(name)
            _ask(folder, judge, builder, place, seconds)
            with Handover(folder) as handover, _started(tool, judge.python, folder) as launcher:
                lines = code(builder, place, static)
                report = _launched(launcher, handover, judge, folder, seconds)
            facts = ncu_report.facts(report, reader)
        kernel = builder.contents.manifest(place.bundle)["kernels"][place.kernel]["name"]
        if facts.kernel != kernel:
            raise Absent(f"ncu profiled {facts.kernel} in place of {kernel}")
        return metrics.counters(facts, tool.name, lines)
    except Absent as e:
        return Missing(PassName.COUNTERS, str(e))


def _ask(folder: Path, judge: GpuJudge | GpuPool, builder: Builder, place: KernelRef, seconds: float) -> None:
    contract, plain = judge.target.contract_path.resolve(), plan_ref(builder.contents, place.bundle, place.choice)
    asked = LaunchOnce(str(contract), place.case, place.kernel, plain, seconds + GRACE_SECONDS)
    (folder / "request.json").write_text(json.dumps(asked.as_json()))


def _started(tool: Tool, python: str, folder: Path) -> Program:
    """ncu, with a launcher that imports torch, and then waits for its GPU: until then it sees none."""
    launcher = [python, "-B", "-m", LAUNCHER, str(folder / "request.json")]
    return Program(tool.command(_report(folder), launcher), environment(None), folder / "log")


def _launched(launcher: Program, handover: Handover, judge: GpuJudge | GpuPool, folder: Path, seconds: float) -> Path:
    """Return the report of one launch. Raises Absent where there is none."""
    if not launcher.within(seconds, handover.ready):
        raise Absent(f"the launcher was not ready in {seconds:.0f} s")
    if not launcher.ended():
        with judge.turn() as gpu, judge.occupied():
            handover.give(str(gpu.gpu))
            if not launcher.within(seconds, lambda: False):
                raise Absent(f"the launch was not profiled in {seconds:.0f} s")
    if not _report(folder).is_file():
        raise Absent(why_none(launcher.output, folder / PROBLEM))
    return _report(folder)


def _report(folder: Path) -> Path:
    return folder / "report.ncu-rep"


def why_none(output: str, problem: Path) -> str:
    """Return why a run left no report: what ncu says, what the launcher left, or else the last line that was
    printed."""
    reason = problem.read_text() if problem.is_file() else ""
    message = ncu.refusal(output) or (f"nothing was launched: {reason}" if reason else "")
    return message or f"ncu profiled no kernel: {ncu.last_line(output) or 'it does not say why'}"


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
