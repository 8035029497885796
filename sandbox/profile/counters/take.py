"""The counters pass as a whole: has Nsight Compute profile one launch of a kernel, and reads what it counted.

Needs a GPU whose counters this user may read, ncu and ncu-report. Whatever is missing is an answer of one line, and no
fault. ncu replays the launch some 20 to 40 times, in a process beside the judge's, so nothing may be timed meanwhile.
"""

import json
import tempfile
from pathlib import Path

from pgo_agent.sandbox.build import Builder
from pgo_agent.sandbox.judge.pool import Judge, on_shelf
from pgo_agent.sandbox.judge.process import environment
from pgo_agent.sandbox.profile.backend import CannotCompile, Subject, Workbench
from pgo_agent.sandbox.profile.counters import figures, read, tool
from pgo_agent.sandbox.profile.counters.figures import Code
from pgo_agent.sandbox.profile.counters.report import Counters
from pgo_agent.sandbox.profile.counters.tool import PROBLEM, Absent, Tool
from pgo_agent.sandbox.profile.nvidia import Nvidia
from pgo_agent.sandbox.profile.report import StaticProfile
from pgo_agent.sandbox.profile.timeline.twin import Place
from pgo_agent.sandbox.profile.whole import Missing, PassName

LAUNCHER = "pgo_agent.sandbox.profile.counters.launcher"
SECONDS = 300.0  # torch and the target are imported, a launch is replayed some 40 times
GRACE_SECONDS = 5.0  # behind the deadline, before the launcher ends itself
OTHER_CODE = "with line information the assembler makes other code of this kernel"


def take(
    judge: Judge, builder: Builder, place: Place, static: StaticProfile | None = None, seconds: float = SECONDS
) -> Counters | Missing:
    """What one launch of a kernel cost by the GPU's own counters: its first in one call of the launcher.

    `judge`: whose target, interpreter and GPU are used; its process is not. `static`: the kernel's, which knows the
    lines of the source; without it there are those of the TTGIR alone. Raises what the compiler's box raises: Killed,
    EnvironmentFault.
    """
    try:
        found = tool.find()
        if judge.gpu is None:
            raise Absent("there is no GPU")
        reader = tool.own_reader(found)
        read.readable(reader)
        with tempfile.TemporaryDirectory(prefix="pgo-counters-") as folder:
            facts = read.facts(profiled(found, judge, builder, place, Path(folder), seconds), reader)
        wanted = builder.shelf.manifest(place.bundle)["kernels"][place.kernel]["name"]
        if facts.kernel != wanted:
            raise Absent(f"ncu profiled {facts.kernel} in place of {wanted}")
        return figures.counters(facts, found.name, code(builder, place, static))
    except Absent as e:
        return Missing(PassName.COUNTERS, str(e))


def profiled(found: Tool, judge: Judge, builder: Builder, place: Place, folder: Path, seconds: float) -> Path:
    """The report of one launch, in this folder. Raises Absent where there is none."""
    request = {
        "contract": str(judge.target.contract_path.resolve()),
        "case": place.case,
        "kernel": place.kernel,
        "plain": {"bundle": on_shelf(builder.shelf, place.bundle), "choice": place.choice},
        "seconds": seconds + GRACE_SECONDS,
    }
    (folder / "request.json").write_text(json.dumps(request))
    launcher = [judge.python, "-B", "-m", LAUNCHER, str(folder / "request.json")]
    report = folder / "report.ncu-rep"
    ran = tool.run(found.command(report, launcher), environment(judge.gpu), seconds, folder / "log")
    if ran.timed_out:
        raise Absent(f"the launch was not profiled in {seconds:.0f} s")
    if not report.is_file():
        raise Absent(why_none(ran.output, folder / PROBLEM))
    return report


def why_none(output: str, problem: Path) -> str:
    """Why a run left no report: what ncu says, what the launcher left, or else the last line that was printed."""
    own = problem.read_text() if problem.is_file() else ""
    told = tool.refusal(output) or (f"nothing was launched: {own}" if own else "")
    return told or f"ncu profiled no kernel: {tool.last_line(output) or 'it does not say why'}"


def code(builder: Builder, place: Place, static: StaticProfile | None) -> Code:
    """The lines of the build that runs. Raises what the compiler's box raises."""
    try:
        compiled = Nvidia().compiled(Workbench(builder), Subject(place.kernel, None))
    except CannotCompile as e:
        return Code(unlined=f"its build with line information failed: {e}")
    if not compiled.same_code:
        return Code(unlined=OTHER_CODE)
    return Code(compiled.instructions, sources(static, place.kernel))


def sources(static: StaticProfile | None, build: str) -> dict[int, int] | None:
    """Line of the TTGIR -> line of the kernel's file; None where the static profile of this build knows no file."""
    if static is None or static.build != build or not static.file:
        return None
    return static.sources
