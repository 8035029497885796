"""Shows a run's feed of events: as lines and a live block on stderr for a person, or as JSON on stdout for a program.

It reads that feed alone; `summary.py` prints the result of a run.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from pgo_agent.agent.llm.models.types import OPTIMIZER
from pgo_agent.agent.run import events
from pgo_agent.agent.run.events import Event
from pgo_agent.agent.views import summary
from pgo_agent.sandbox import json_codec
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.text import Text

if TYPE_CHECKING:
    from pgo_agent.agent.run.record.store import Store
    from pgo_agent.agent.views.live.refresh import Watch

BELOW = 4  # rows of a terminal that the live block leaves to earlier lines


class JsonLines:
    """`--json`: every event is one line on stdout."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.out = out

    def __call__(self, event: Event) -> None:
        print(json.dumps(event.as_json()), file=self.out, flush=True)

    def look_at(self, store: "Store") -> None:
        """Do nothing: events are complete."""

    def close(self) -> None:
        """Do nothing: every event is written at once."""


class Progress:
    """A line for every verdict, and on a terminal a live line with the phase below them."""

    def __init__(self, console: Console | None = None, live: bool = True) -> None:
        self.console = console or Console(stderr=True)
        self.doing, self.verdicts, self.best, self.started = "starting", 0, "", time.monotonic()
        self.run, self.spent, self.held = "", "", ""
        self.of_gpu: float | None = None
        self.explained = False  # whether it was printed how a judge elsewhere answers
        self.waited = set[tuple[str, str]]()  # GPUs that were waited for, and for whom
        self.watch: Watch | None = None
        drawn = live and self.console.is_terminal and not self.console.is_dumb_terminal
        self.phases = not drawn  # print a line for each; else the live line shows it
        self.live = (
            Live(get_renderable=self._block, console=self.console, refresh_per_second=4, transient=True)
            if drawn
            else None
        )
        if self.live:
            self.live.start()

    def __call__(self, event: Event) -> None:
        if self.watch is not None:
            self.watch(event)
        self.run = event.run or self.run
        handler = getattr(self, "_" + event.type.replace(".", "_"), None)
        if handler:
            handler(event.told)

    def look_at(self, store: "Store") -> None:
        """Draw what the record holds of the run, too, if there is a terminal to draw on."""
        if self.live:
            from pgo_agent.agent.views.live.refresh import Watch  # it reads profiles, which take long to import

            self.watch = Watch(store)

    def close(self) -> None:
        if self.live:
            self.live.stop()

    def _block(self) -> Group:
        """Return the live line, with the run at a glance above it if there is room."""
        width, height = self.console.size
        plain = not self.console.encoding.startswith("utf")
        rows = self.watch.lines(width, height - BELOW, plain) if self.watch else []
        return Group(*rows, self._line())

    def _line(self) -> Spinner:
        seconds = time.monotonic() - self.started
        best = f"  best {self.best}" if self.best else ""
        spent = f"{self.spent}{self.held}"
        text = f" {self.doing}  {seconds:.0f} s  {self.verdicts} verdicts{spent}{best}"
        return Spinner("dots", Text(text, no_wrap=True, overflow="ellipsis"))

    def _say(self, markup: str, prose: bool = False) -> None:
        """Print a line. `prose`: a terminal wraps it between words; text to be copied stays in one line."""
        self.console.print(markup, highlight=False, soft_wrap=not (prose and self.console.is_terminal))

    def _run_started(self, e: events.RunStarted) -> None:
        where = (
            f"judged on this machine's {e.device}{_which(e.gpus)}"
            if e.gpu and ":" not in e.judge
            else f"judged on {len(e.gpus)} x {e.device} of the cluster {escape(e.judge)}"
            if e.gpu and e.judge.startswith("ray:")
            else f"judged on an {e.device} elsewhere, by {escape(e.judge)}"
            if e.gpu
            else f"compiled for {e.device}; no GPU here, so nothing is measured"
        )
        self.of_gpu = json_codec.from_json(float | None, e.settings.get("gpu_seconds"))
        self._say(f"[bold]{escape(self.run)}[/bold]  {escape(summary.near(e.target))}")
        self._say(f"  {where}; sandbox: {e.sandbox}", prose=True)

    def _phase(self, e: events.Phase) -> None:
        self.doing = e.doing
        if self.phases:
            self._say(f"  {escape(e.doing)}")

    def _progress(self, e: events.Progressed) -> None:
        self.doing = e.said
        if self.phases:
            self._say(f"  {escape(e.said)}")

    def _model_replied(self, e: events.ModelReplied) -> None:
        text = f"{e.sources} candidates" if e.sources else f"nothing of use: {e.remark}"
        self._say(f"  {escape(e.model)} replied: {escape(text)}")

    def _model_waiting(self, e: events.ModelWaiting) -> None:
        self.doing = "waiting for a reply"
        self._say(f"  answer {escape(e.request)} in {escape(e.reply)}")

    def _role_replied(self, e: events.RoleReplied) -> None:
        text = f": {e.remark}" if e.remark else ""
        self._say(f"  {escape(e.model)} replied as {e.role}{escape(text)}")

    def _judge_waiting(self, e: events.JudgeWaiting) -> None:
        self.doing = f"waiting for {e.requests} answers in {e.folder}"
        if not self.explained:
            self.explained = True
            self._say(f"  waiting for a judge elsewhere, at {escape(e.folder)}; it answers with:")
            self._say(f"  {escape(e.how)}")

    def _gpu_waiting(self, e: events.GpuWaiting) -> None:
        if (e.uuid, e.holder) not in self.waited:
            self.waited.add((e.uuid, e.holder))
            self._say(f"  GPU {e.index} is in use: it is waited for until {escape(e.holder)} lets go of it")

    def _gpu_quarantined(self, e: events.GpuQuarantined) -> None:
        left = f"{e.left} go on" if e.left != 1 else "1 goes on"
        self._say(f"  [yellow]warning:[/yellow] GPU {e.index} ({e.uuid}) is quarantined, {left}: {escape(e.why)}")

    def _model_exhausted(self, e: events.ModelExhausted) -> None:
        who = "embedded moves go on alone" if e.role == OPTIMIZER else f"embedded {e.role} goes on"
        self._say(f"  [yellow]warning:[/yellow] {escape(e.text)}: the {who}")

    def _role_fallback(self, e: events.RoleFallback) -> None:
        self._say(f"  note: the embedded {e.role} did {escape(e.about)}: {escape(e.text)}")

    def _model_spent(self, e: events.ModelSpent) -> None:
        money = f", {_of(e.money, e.of_money)} in money" if e.money is not None else ""
        self.spent = f"  {_of(e.tokens, e.of_tokens)} tokens{money}"

    def _places_shared(self, e: events.PlacesShared) -> None:
        places = ", ".join(
            f"{who} {n} (worth {e.worth[who]:.2f})" if who in e.worth else f"{who} {n}" for who, n in e.places.items()
        )
        self._say(f"  generation {e.generation} is shared by what paid so far: {places}")

    def _search_restarted(self, e: events.SearchRestarted) -> None:
        names = ", ".join(c[:8] for c in e.candidates)
        self._say(f"  patience nears its end: generation {e.generation} starts from the runners-up: {names}")

    def _run_waiting(self, e: events.RunWaiting) -> None:
        self._say(f"  {escape(e.reply)} {escape(e.why)}; it is the answer to {escape(e.request)}")
        if e.how:
            self._say(f"  on the machine of the GPU: {escape(e.how)}")
        self._say(f"  then go on with: pgo-agent resume {escape(self.run)}")

    def _warning(self, e: events.Warned) -> None:
        self._say(f"  [yellow]warning:[/yellow] {escape(e.text)}")

    def _steer_taken(self, e: events.SteerTaken) -> None:
        self._say(f"  [bold]you:[/bold] {escape(e.outcome)}", prose=True)

    def _note(self, e: events.Note) -> None:
        self._say(f"  note: {escape(e.text)}")

    def _profile_completed(self, e: events.ProfileCompleted) -> None:
        first = e.bottleneck.finding.told if e.bottleneck else "nothing stands out"
        taken = " and ".join(name for name, why in e.passes.items() if not why)
        lost = "; ".join(why for why in e.passes.values() if why)
        self._say(
            f"  profile of {escape(e.case.split('/', 1)[1])}: {escape(f'{taken}: {first}' if taken else lost)}",
            prose=True,
        )

    def _candidate_verdict(self, e: events.CandidateVerdict) -> None:
        self.verdicts += 1
        self.held = f"  {_of(e.gpu_seconds, self.of_gpu)} s of the GPU" if e.gpu_seconds else ""
        if e.verdict == "accepted":
            self.best = f"{e.speedup:.3f}x"
        style = summary.STYLE.get(e.verdict, "red")
        self._say(
            f"  [dim]{e.candidate[:8]}[/dim] [{style}]{e.verdict:<11}[/{style}] {escape(e.move)}: {escape(e.reason)}",
            prose=True,
        )


def _of(spent: float, most: float | None) -> str:
    """Return how much was spent, and of which budget, if there is one."""
    text = f"{spent:.4g}" if spent < 1000 else f"{spent:.0f}"
    return text if most is None else f"{text} of {most:g}"


def _which(gpus: Sequence[dict[str, str]]) -> str:
    """Return which GPUs there are, if there are several; else empty."""
    return f", {len(gpus)} of them: GPUs {', '.join(g['index'] for g in gpus)}" if len(gpus) > 1 else ""
