"""`pgo-agent init --from-trace`: what is printed and written. Relies on `target_file.py` and `listing.py`."""

from pathlib import Path

from pgo_agent.agent.commands.init import command
from pgo_agent.agent.commands.traces import listing, summary, target_file
from pgo_agent.agent.commands.traces.target_file import Written
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import devices


def start(path: Path, kernel: str | None, to: Path | None, force: bool, settings: RunSettings) -> None:
    """List the kernels of a trace; with one named, or only one in it, write its target. Raises UsageFault."""
    trace = summary.summarize(path)
    if kernel is None and len(trace.kernels) > 1:
        listing.show(trace, devices.find(settings.device) if settings.device else None)
        return
    tell(target_file.write(trace, trace.named(kernel), to, force, settings))
    for note in trace.reading.notes():
        print(f"note: {note}")


def tell(written: Written) -> None:
    """Print what was written."""
    from pgo_agent.agent.views import summary as printing

    out = printing.output()
    to_write, guessed = command.marks(written.path)
    lines = [
        f"{written.kernel}: {written.cases} kinds of launches, each a case with its weight",
        f"{written.path} is written: {len(to_write)} lines to write, {len(guessed)} guessed ones to look at",
        *(f"  {text}" for text in to_write),
        f"then: pgo-agent init --check {written.path}",
        *(f"note: {note}" for note in written.notes),
    ]
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
