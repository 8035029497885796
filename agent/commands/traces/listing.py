"""Prints the kernels of a trace: launches, shapes with counts, the share of the time, and which are worth a run."""

from collections import Counter
from collections.abc import Iterator

from pgo_agent.agent.commands.traces import target_file
from pgo_agent.agent.commands.traces.events import TracedTensor
from pgo_agent.agent.commands.traces.summary import WORTH, Kernel, Signature, Trace
from pgo_agent.sandbox.devices import DEVICES, Device

MOST_KERNELS, MOST_SHAPES = 40, 4
MOST_TENSORS = 4


def show(trace: Trace, asked: Device | None) -> None:
    """Print them on stdout. `asked`: the GPU for whose bandwidth times are estimated; None: the trace's."""
    from pgo_agent.agent.views import summary
    from rich.markup import escape
    from rich.table import Table

    out, device = summary.output(), asked or of_arch(trace)
    table = Table("kernel", "launches", "share", "time", "shapes (launches)", "worth a run", box=None, pad_edge=False)
    for kernel, share in list(zip(trace.kernels, trace.shares(), strict=True))[:MOST_KERNELS]:
        table.add_row(
            escape(kernel.name),
            f"{kernel.launches}",
            f"{'' if trace.measured else '~'}{share:.0%}",
            time(kernel, trace, device),
            escape("\n".join(_shapes(kernel))),
            verdict(kernel, share),
        )
    out.print(table)
    for note in notes(trace, device):
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    first = next((k for k, s in zip(trace.kernels, trace.shares(), strict=True) if worth(k, s)), trace.kernels[0])
    command = f"pgo-agent init --from-trace {trace.path} --kernel {first.name}"
    out.print(f"then: {command}", markup=False, highlight=False, soft_wrap=True)


def of_arch(trace: Trace) -> Device:
    """Return a GPU of the trace's architecture; the first known one where that is not told."""
    known = {f"sm{d.arch}": d for d in reversed(DEVICES.values())} | {f"sm_{d.arch}": d for d in DEVICES.values()}
    return next((known[a] for a in sorted(trace.archs) if a in known), next(iter(DEVICES.values())))


def time(kernel: Kernel, trace: Trace, device: Device) -> str:
    """Return the time of all launches of a kernel: measured, or an estimate."""
    if trace.measured:
        return f"{kernel.ms:.3g} ms" if kernel.ms is not None else "not measured"
    return f"~{kernel.moved / device.gbps / 1e6:.3g} ms"


def worth(kernel: Kernel, share: float) -> bool:
    return share >= WORTH and bool(kernel.signatures)


def verdict(kernel: Kernel, share: float) -> str:
    if not kernel.launches:
        return "no: only its autotuner launched it"
    if not kernel.signatures:
        return "no: the trace has no arguments of it"
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
    if not trace.measured:
        yield (
            f"the trace has no times: those with ~ are an ESTIMATE, the bytes of tensor arguments over the "
            f"{device.gbps:.0f} GB/s of {device.name}"
        )
    if len(trace.kernels) > MOST_KERNELS:
        yield f"{len(trace.kernels) - MOST_KERNELS} further kernels are not shown"
    for kernel in trace.kernels:
        for why, count in kernel.without.items():
            yield f"{kernel.name}: {count} launches without arguments: {why}"
        if kernel.uncounted:
            yield f"{kernel.name}: {kernel.uncounted} launches with further shapes are counted, and not kept"
        if kernel.tuned:
            yield f"{kernel.name}: its autotuner measured {min(kernel.tuned):.3g} ms for one launch"
    yield from target_file.versions(trace)
