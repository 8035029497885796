"""`pgo-agent init --from-trace TRACE`: lists the kernels of a trace, or writes a target for one of them.

Relies on `captured_target.py` and `guessed_sizes.py` of init for the target: a trace's launches become calls of a
launcher that is made of them. Nothing of the trace runs here, but in the box, where sizes are tried.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.commands.init import command, guessed_sizes, program
from pgo_agent.agent.commands.init.captured_calls import Captured
from pgo_agent.agent.commands.init.guessed_sizes import Trying
from pgo_agent.agent.commands.traces import events, forms, inductor_graph, launched_calls, sources, summary
from pgo_agent.agent.commands.traces.events import Compiled, TracedTensor
from pgo_agent.agent.commands.traces.launcher import Launcher
from pgo_agent.agent.commands.traces.summary import Kernel, Signature, Trace
from pgo_agent.agent.run.settings import DEFAULT_DEVICE, RunSettings
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.target import AS_IT_STOOD
from pgo_agent.sandbox.ttgir import argument_uses
from pgo_agent.sandbox.ttgir.argument_uses import Uses

FOREIGN = "the source is the trace's own, and a check runs it as any target's: read it first"


@dataclass(frozen=True)
class Written:
    path: Path
    kernel: str
    cases: int
    notes: tuple[str, ...]
    sound: bool  # whether the kernel as shipped takes the cases, as far as that was tried


def write(trace: Trace, kernel: Kernel, to: Path | None, force: bool, settings: RunSettings) -> Written:
    """Write the target of a kernel. Raises UsageFault for a kernel that none can be made of, with the reason."""
    to = to or usual(kernel)
    command.refuse(to, Path(kernel.file), force)
    beside = list[str]()
    for code in (c for c, _ in kernel.callers.most_common() if inductor_graph.holds(Path(c), kernel.name)):
        if paths := inductor_graph.write(Path(code), kernel.name, to, settings, beside):
            return Written(paths[0], kernel.name, 1, (f"the reference is PyTorch's own graph, of {code}",), True)
    launcher = replace(made(trace, kernel), memory=devices.find(settings.device or DEFAULT_DEVICE).memory)
    tried, said = _tried(trace, launcher, to, settings)
    if tried.kept.kind == guessed_sizes.UNWRITTEN and launcher.outputs:
        launcher = replace(launcher, given=True, notes=[])
        tried, said = _tried(trace, launcher, to, settings)
        said = ["elements of results stay as they were, so these are given, and change in place", *said]
    form = launcher.form
    left = [f"{form.left_out} launches of other forms, or beyond {forms.MOST} kinds of sizes, are left out"]
    alone = [] if form.source.here else [f"{FOREIGN}: {form.source.path} is not here with that text"]
    notes = [
        AS_IT_STOOD,
        *alone,
        *beside,
        *dict.fromkeys(launcher.notes),
        *launched_calls.shrunk(launcher),
        *(left if form.left_out else []),
        *said,
        *versions(trace),
        *gpus(trace, devices.find(settings.device or DEFAULT_DEVICE)),
    ]
    return Written(to, kernel.name, len(form.signatures), tuple(notes), tried.kept.kind != guessed_sizes.WRONG)


def usual(kernel: Kernel) -> Path:
    """Return the file of a kernel's target where none is named."""
    return Path(f"{re.sub(r'[^a-z0-9_]', '_', kernel.name.lower()).strip('_')}_target.py")


def _tried(trace: Trace, launcher: Launcher, to: Path, settings: RunSettings) -> tuple[Trying, list[str]]:
    """Write the target of a launcher, with sizes that were tried; return what came of that, and notes on it."""
    form, path, text = launcher.form, launcher.form.source.path, launcher.text
    repository = program.repository(path) if form.source.here else path.parent
    captured = Captured(
        path,
        text,
        tuple(launched_calls.calls(launcher)),
        None,
        (),
        "",
        form.source.modules(repository, frozenset()),
        text,
        launcher.tiles,
        tuple(s.launches for s in form.signatures),
        f"the trace {trace.path.name}",
    )
    device = devices.find(settings.device or DEFAULT_DEVICE)
    trying = Trying(captured, to, box.choose(settings.sandbox, settings.python), device)
    return trying, trying.write()


def made(trace: Trace, kernel: Kernel) -> Launcher:
    """Return the launcher of a traced kernel. Raises UsageFault where there is none."""
    keys = {s.first.compiled for s in kernel.signatures.values()} or kernel.compiled
    found = {c.key: c for c in summary.compilations(trace.path, keys, kernel.name)}
    if not found:
        hint = "it was compiled before the trace began: record with an empty TRITON_CACHE_DIR"
        raise UsageFault(f"the trace has launches of {kernel.name}, but not its source", hint)
    compiled = next(
        (found[s.first.compiled] for s in kernel.most if s.first.compiled in found), next(iter(found.values()))
    )
    source = sources.of(compiled)
    uses = _uses(compiled, kernel.most[0]) if kernel.signatures else None
    return Launcher(forms.chosen(kernel, source, uses), events.warps(compiled))


def _uses(compiled: Compiled, one: Signature) -> Uses | None:
    pointers = [n for n, v in one.first.arguments.items() if isinstance(v, TracedTensor)]
    return argument_uses.of(compiled.ttgir, pointers) if compiled.ttgir else None


def gpus(trace: Trace, device: Device) -> list[str]:
    """Return what to say of a trace that another GPU made than the target is for."""
    others = sorted(a for a in trace.archs if a.replace("_", "") not in (f"sm{device.arch}", str(device.arch)))
    text = f"the trace is of {', '.join(others)}, and the target for {device.name}: its tiles and warps are the other's"
    return [text] if others else []


def versions(trace: Trace) -> list[str]:
    """Return what to say of a trace that another Triton made."""
    import importlib.metadata

    here = importlib.metadata.version("triton")
    others = sorted(v for v in trace.triton if v.partition("+")[0] != here.partition("+")[0])
    return [f"the trace is of Triton {', '.join(others)}; here is {here}"] if others else []
