"""`pgo-agent init --from-trace`: what is printed and written. Relies on `target_file.py` and `listing.py`."""

from pathlib import Path

from pgo_agent.agent.commands.init import outcome
from pgo_agent.agent.commands.init.outcome import Outcome
from pgo_agent.agent.commands.traces import listing, summary, target_file
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import devices


def start(
    path: Path, kernel: str | None, to: Path | None, force: bool, settings: RunSettings, json_lines: bool
) -> None:
    """List the kernels of a trace; with one named, or only one in it, write its target. Raises UsageFault."""
    trace = summary.summarize(path)
    if kernel is None and len(trace.kernels) > 1:
        asked = devices.find(settings.device) if settings.device else None
        if json_lines:
            outcome.tell(listing.outcome(trace, asked), json_lines)
        else:
            listing.show(trace, asked)
        return
    written = target_file.write(trace, trace.named(kernel), to, force, settings)
    about = [f"{written.kernel}: kinds of launches, each a case with its weight: {written.cases}"]
    made = outcome.written(written.path, about, written.notes)
    outcome.tell(Outcome((made,), notes=tuple(trace.reading.notes())), json_lines)
