"""`pgo-agent optimize --from-trace TRACE`: runs for the kernels of a trace that take most time, under one budget.

Each gets a target of its own and a run of its own, the most promising first. A run may take what is left of minutes,
GPU seconds, tokens and money, in proportion to its kernel's share of the time of those that are still to come.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.commands.traces import listing, summary, target_file
from pgo_agent.agent.commands.traces.summary import Kernel, Trace
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run.events import Emit, Event, Warned
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import EnvironmentFault, Fault, UsageFault

NO_TIME = "no minutes were left for it"


@dataclass(frozen=True)
class Ended:
    """What came of one kernel."""

    kernel: str
    share: float
    said: str
    run: str = ""  # empty: there was none
    code: Exit | None = None
    faster: float | None = None  # times, where it was measured


@dataclass
class Left:
    """What is left of the budget."""

    until: float  # by the monotonic clock
    gpu_seconds: float | None
    tokens: int | None
    money: float | None

    @classmethod
    def of(cls, asked: RunSettings) -> "Left":
        return cls(time.monotonic() + 60 * asked.minutes, asked.gpu_seconds, asked.tokens, asked.money)

    def part(self, asked: RunSettings, part: float) -> RunSettings:
        """Return settings of a run that may take a part of what is left."""
        minutes = max(0.0, (self.until - time.monotonic()) / 60)
        return replace(
            asked,
            minutes=part * minutes,
            gpu_seconds=None if self.gpu_seconds is None else part * self.gpu_seconds,
            tokens=None if self.tokens is None else math.floor(part * self.tokens),
            money=None if self.money is None else part * self.money,
        )

    def take(self, store: Store, run: str) -> None:
        """Subtract what a run spent of GPU, tokens and money; minutes go by themselves."""
        models = store.spent(run)
        if self.gpu_seconds is not None:
            self.gpu_seconds = max(0.0, self.gpu_seconds - store.run(run).gpu_seconds)
        if self.tokens is not None:
            self.tokens = max(0, self.tokens - int(models["tokens"]))
        if self.money is not None:
            self.money = max(0.0, self.money - models["money"])


@dataclass
class Series:
    """The runs of a trace."""

    trace: Trace
    top: int
    asked: RunSettings
    store: Store
    emit: Emit
    ended: list[Ended] = field(default_factory=list)

    def go(self) -> Exit:
        """Make the runs. Raises UsageFault where there is nothing to run; EnvironmentFault for this machine's."""
        left, waiting = Left.of(self.asked), list(promising(self.trace))
        if not waiting:
            raise UsageFault(f"no kernel of {self.trace.path} is worth a run", "`init --from-trace` lists them")
        while waiting and sum(bool(e.run) for e in self.ended) < self.top:
            kernel, share = waiting.pop(0)
            rest = [s for _, s in waiting[: self.top - 1 - sum(bool(e.run) for e in self.ended)]]
            self.ended.append(self._ended(kernel, share, left, share / math.fsum((share, *rest))))
        codes = [e.code for e in self.ended if e.code is not None]
        if not codes:
            raise UsageFault(
                "; ".join(f"{e.kernel}: {e.said}" for e in self.ended), "name one: init --from-trace --kernel"
            )
        return next((c for c in (Exit.WAITING, Exit.DONE) if c in codes), min(codes))

    def _ended(self, kernel: Kernel, share: float, left: Left, part: float) -> Ended:
        settings = left.part(self.asked, part)
        if settings.minutes <= 0:
            return Ended(kernel.name, share, NO_TIME)
        runs = list[str]()

        def emit(event: Event) -> None:
            runs.extend([event.run] if event.type == "run.started" else [])
            self.emit(event)

        try:
            path = self._target(kernel, settings)
            settings = left.part(self.asked, part)
            code = optimize.start(path, settings, self.store, emit)
        except EnvironmentFault:
            raise
        except Fault as e:
            self._warn(f"{kernel.name} is skipped: {e.message}")
            return Ended(kernel.name, share, f"skipped: {e.message}", "".join(runs[:1]))
        left.take(self.store, runs[0])
        return self._measured(kernel, share, runs[0], code)

    def _target(self, kernel: Kernel, settings: RunSettings) -> Path:
        """Return the target of a kernel: a file of its name that is here, else it is written. Raises UsageFault."""
        path = target_file.usual(kernel)
        if path.exists():
            self._warn(f"{path} is there already, and is taken as it is")
            return path
        written = target_file.write(self.trace, kernel, path, False, settings)
        for note in written.notes:
            self._warn(f"{path}: {note}")
        if not written.sound:
            path.unlink()
            raise UsageFault(written.notes[-1], "mend the target that `init --from-trace` writes")
        return path

    def _warn(self, text: str) -> None:
        self.emit(Event(Warned(text)))

    def _measured(self, kernel: Kernel, share: float, run: str, code: Exit) -> Ended:
        found = self.store.run(run).summary
        if isinstance(found, MeasuredRun) and found.winner:
            low, middle, high = found.against["shipped"]
            said = f"{middle:.3f}x [{low:.3f}, {high:.3f}] as fast as shipped"
            return Ended(kernel.name, share, said, run, code, middle)
        said = "nothing faster was found" if isinstance(found, MeasuredRun) else _WITHOUT.get(code, "ended")
        return Ended(kernel.name, share, said, run, code)

    def tell(self) -> None:
        """Print what came of all of them."""
        from pgo_agent.agent.views import summary as printing
        from rich.markup import escape
        from rich.table import Table

        out, mark = printing.output(), "" if self.trace.measured else "~"
        table = Table("kernel", "share", "result", "run", box=None, pad_edge=False)
        for one in self.ended:
            table.add_row(escape(one.kernel), f"{mark}{one.share:.0%}", escape(one.said), one.run)
        out.print(table)
        saved = math.fsum(e.share * (1 - 1 / e.faster) for e in self.ended if e.faster)
        if saved:
            of = "the time of all its kernels" if self.trace.measured else "the bytes that all its kernels move"
            out.print(f"together {mark}{saved:.1%} of {of}, by the shares of the trace", highlight=False)
        for one in (e for e in self.ended if e.faster):
            how = f"pgo-agent dispatch {one.run}, then export {one.run} --dispatch --as launches"
            out.print(f"into the program: {how}", markup=False, highlight=False, soft_wrap=True)


_WITHOUT = {
    Exit.DONE: "ranked, not measured: no GPU judged it",
    Exit.NONE_FOUND: "nothing faster was found",
    Exit.BUDGET: "the budget was spent before anything was judged",
    Exit.WAITING: "waits for an answer: `pgo-agent resume` goes on with it",
}


def promising(trace: Trace) -> Iterator[tuple[Kernel, float]]:
    """Yield the kernels that are worth a run with their shares, first what could save most."""
    device = listing.of_trace(trace)
    yield from ((k, s) for k, s in listing.ranked(trace, device) if listing.worth(k, s, device))


def series(path: Path, top: int, asked: RunSettings, store: Store, emit: Emit) -> Series:
    """Return the runs of a trace, not begun. Raises UsageFault for what is no trace."""
    return Series(summary.summarize(path), top, asked, store, emit)
