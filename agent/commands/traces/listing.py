"""Prints the kernels of a trace: launches, shapes with counts, the share of the time, and which are worth a run."""

from collections import Counter
from collections.abc import Iterator

from pgo_agent.agent.commands.init.outcome import Outcome
from pgo_agent.agent.commands.traces import roof, target_file
from pgo_agent.agent.commands.traces.events import TracedTensor
from pgo_agent.agent.commands.traces.summary import WORTH, Kernel, Signature, Trace
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.devices import DEVICES, Device

MOST_KERNELS, MOST_SHAPES = 40, 4
MOST_TENSORS = 4
NEAR = 0.9  # part of the roof from which little is left to gain


def outcome(trace: Trace, asked: Device | None) -> Outcome:
    """Return them for `--json`: a line for each, the most time first."""
    device = asked or of_trace(trace)
    about = [
        f"{k.name}: {k.launches} launches, {'' if trace.measured else '~'}{share:.0%} of the time, "
        f"{verdict(k, share, device)}"
        for k, share in ranked(trace, device)
    ]
    return Outcome((), tuple(about), tuple(notes(trace, device)))


def show(trace: Trace, asked: Device | None) -> None:
    """Print them on stdout. `asked`: the GPU for whose bandwidth times are estimated; None: the trace's."""
    from pgo_agent.agent.views import summary
    from rich.markup import escape
    from rich.table import Table

    out, device = summary.output(), asked or of_trace(trace)
    roofs = ["of its roof"] if trace.measured else []
    heads = ("kernel", "launches", "share", "time", *roofs, "shapes (launches)", "worth a run")
    table = Table(*heads, box=None, pad_edge=False)
    for kernel, share in ranked(trace, device)[:MOST_KERNELS]:
        table.add_row(
            escape(kernel.name),
            f"{kernel.launches}",
            f"{'' if trace.measured else '~'}{share:.0%}",
            time(kernel, trace, device),
            *(_roof(kernel, device) for _ in roofs),
            escape("\n".join(_shapes(kernel))),
            verdict(kernel, share, device),
        )
    out.print(table)
    for note in notes(trace, device):
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    first = next((k for k, s in ranked(trace, device) if worth(k, s, device)), trace.kernels[0])
    command = f"pgo-agent init --from-trace {trace.path} --kernel {first.name}"
    out.print(f"then: {command}", markup=False, highlight=False, soft_wrap=True)


def of_trace(trace: Trace) -> Device:
    """Return the GPU that the trace was timed on, else one of its architecture, else the first known one."""
    if timed := devices.named(trace.gpu):
        return timed
    known = {f"sm{d.arch}": d for d in reversed(DEVICES.values())} | {f"sm_{d.arch}": d for d in DEVICES.values()}
    return next((known[a] for a in sorted(trace.archs) if a in known), next(iter(DEVICES.values())))


def time(kernel: Kernel, trace: Trace, device: Device) -> str:
    """Return the time of all launches of a kernel: measured, or an estimate."""
    if trace.measured:
        return f"{kernel.ms:.3g} ms" if kernel.ms is not None else "not measured"
    return f"~{kernel.moved / device.gbps / 1e6:.3g} ms"


def ranked(trace: Trace, device: Device) -> list[tuple[Kernel, float]]:
    """Return the kernels with their shares, first what could save most: a large share, far from its roof."""
    pairs = list(zip(trace.kernels, trace.shares(), strict=True))
    return sorted(pairs, key=lambda p: -p[1] * (1 - (roof.reached(p[0], device) or 0.0)))


def worth(kernel: Kernel, share: float, device: Device) -> bool:
    return share >= WORTH and bool(kernel.signatures) and (roof.reached(kernel, device) or 0.0) < NEAR


def _roof(kernel: Kernel, device: Device) -> str:
    part = roof.reached(kernel, device)
    return "-" if part is None else f"~{part:.0%}"


def verdict(kernel: Kernel, share: float, device: Device) -> str:
    if not kernel.launches:
        return "no: only its autotuner launched it"
    if not kernel.signatures:
        return "no: the trace has no arguments of it"
    if share >= WORTH and not worth(kernel, share, device):
        return f"no: ~{NEAR:.0%} of its roof, or more"
    return "yes" if share >= WORTH else f"no: under {WORTH:.0%}"


def _shapes(kernel: Kernel) -> Iterator[str]:
    counts = Counter[str]()
    for one in kernel.most:
        counts[shape(one)] += one.launches
    yield from (f"{text} ({n})" for text, n in counts.most_common(MOST_SHAPES))
    if len(counts) > MOST_SHAPES:
        yield f"and {len(counts) - MOST_SHAPES} more"


def shape(one: Signature) -> str:
    """Return the shapes of a signature, the first few."""
    tensors = [v for n, v in one.first.arguments.items() if isinstance(v, TracedTensor) and n not in one.aliases]
    listed = [f"{t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors]
    distinct = list(dict.fromkeys(listed))
    return ", ".join(distinct[:MOST_TENSORS]) + (", ..." if len(distinct) > MOST_TENSORS else "")


def notes(trace: Trace, device: Device) -> Iterator[str]:
    """Yield what was not read, what is an estimate, and what was not as here."""
    yield from trace.reading.notes()
    if trace.untimed:
        yield f"nothing was timed: {trace.untimed}"
    if trace.measured:
        yield (
            f"times are the GPU's; a part of the roof (~) is an ESTIMATE, by the bytes read and written and the "
            f"shapes of products, for {device.name}"
        )
    else:
        yield (
            f"the trace has no times: those with ~ are an ESTIMATE, the bytes read and written over the "
            f"{device.gbps:.0f} GB/s of {device.name}"
        )
    if len(trace.kernels) > MOST_KERNELS:
        yield f"{len(trace.kernels) - MOST_KERNELS} further kernels are not shown"
    for kernel in trace.kernels:
        for why, count in kernel.without.items():
            yield f"{kernel.name}: {count} launches without arguments: {why}"
        if kernel.uncounted:
            yield f"{kernel.name}: {kernel.uncounted} launches with further shapes are counted, and not kept"
        if kernel.trials:
            also = "; its time has those, too" if trace.measured else ""
            yield f"{kernel.name}: {kernel.trials} launches by which its autotuner tried configurations{also}"
        if kernel.tuned:
            yield f"{kernel.name}: its autotuner measured {min(kernel.tuned):.3g} ms for one launch"
    yield from target_file.versions(trace)
