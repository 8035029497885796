"""What a person sees of a run: live progress on stderr, the result on stdout. Reads the feed of events only."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pgo_agent.agent.models.base import OPTIMIZER
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pgo_agent.agent.live.watch import Watch
    from pgo_agent.agent.store import Store

BELOW = 4  # rows of a terminal that the live block leaves to what was said before
PIPED_WIDTH = 130  # columns of a table that goes to a file
STYLE = {"accepted": "bold green", "checked": "green", "built": "cyan", "slower": "yellow"} | dict.fromkeys(
    ("no_change", "vetoed"), "dim"
)

_MEANING = {  # of a given file
    "accepted": "is right, and faster than the target",
    "slower": "is right, and not faster than the target",
    "no_change": "is right, and no other code than the target has",
    "checked": "is right as far as can be told without a GPU",
    "built": "compiles, and nothing here could check its results",
    "undecided": "could not be decided",
    "wrong": "gives wrong results",
    "race": "can give other results from run to run",
    "deadlock": "waits for what never comes",
    "timeout": "does not end in time",
    "crashed": "crashes",
    "build_error": "does not build",
    "rejected": "does what a candidate may not",
    "cheating": "games the measurement",
}


class JsonLines:
    """`--json`: every event is one line on stdout."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.out = out

    def __call__(self, event: dict[str, Any]) -> None:
        print(json.dumps(event), file=self.out, flush=True)

    def look_at(self, store: "Store") -> None:
        """Every event says all of itself."""

    def close(self) -> None:
        """Nothing is held back."""


class Progress:
    """A line for every verdict, and on a terminal a live line with the phase below them."""

    def __init__(self, console: Console | None = None, live: bool = True) -> None:
        self.console = console or Console(stderr=True)
        self.doing, self.verdicts, self.best, self.started = "starting", 0, "", time.monotonic()
        self.spent, self.held, self.of_gpu = "", "", None
        self.told = False  # how a judge elsewhere answers
        self.waited = set[tuple[str, str]]()  # GPUs that were waited for, and for whom
        self.watch: Watch | None = None
        drawn = live and self.console.is_terminal and not self.console.is_dumb_terminal
        self.phases = not drawn  # a line for each; else the live line tells it
        self.live = (
            Live(get_renderable=self._block, console=self.console, refresh_per_second=4, transient=True)
            if drawn
            else None
        )
        if self.live:
            self.live.start()

    def __call__(self, event: dict[str, Any]) -> None:
        if self.watch is not None:
            self.watch(event)
        handler = getattr(self, "_" + event["type"].replace(".", "_"), None)
        if handler:
            handler(event)

    def look_at(self, store: "Store") -> None:
        """Draws what the record holds of the run, too, where there is a terminal to draw on."""
        if self.live:
            from pgo_agent.agent.live.watch import Watch  # it reads profiles, which take long to import

            self.watch = Watch(store)

    def close(self) -> None:
        if self.live:
            self.live.stop()

    def _block(self) -> Group:
        """The live line, with the run at a glance above it where there is room."""
        width, height = self.console.size
        plain = not self.console.encoding.startswith("utf")
        rows = self.watch.lines(width, height - BELOW, plain) if self.watch else []
        return Group(*rows, self._line())

    def _line(self) -> Spinner:
        seconds = time.monotonic() - self.started
        best = f"  best {self.best}" if self.best else ""
        spent = f"{self.spent}{self.held}"
        told = f" {self.doing}  {seconds:.0f} s  {self.verdicts} verdicts{spent}{best}"
        return Spinner("dots", Text(told, no_wrap=True, overflow="ellipsis"))

    def _say(self, markup: str, prose: bool = False) -> None:
        """`prose`: a terminal gets it broken between words; what is to be copied stays in one line."""
        self.console.print(markup, highlight=False, soft_wrap=not (prose and self.console.is_terminal))

    def _run_started(self, e: dict[str, Any]) -> None:
        where = (
            f"judged on this machine's {e['device']}{_which(e['gpus'])}"
            if e["gpu"] and not e["judge"].startswith("spool:")
            else f"judged on an {e['device']} elsewhere, by {escape(e['judge'])}"
            if e["gpu"]
            else f"compiled for {e['device']}; no GPU here, so nothing is measured"
        )
        self.of_gpu = e["settings"].get("gpu_seconds")
        self._say(f"[bold]{escape(e['run'])}[/bold]  {escape(near(e['target']))}")
        self._say(f"  {where}; sandbox: {e['sandbox']}", prose=True)

    def _phase(self, e: dict[str, Any]) -> None:
        self.doing = e["doing"]
        if self.phases:
            self._say(f"  {escape(e['doing'])}")

    def _model_replied(self, e: dict[str, Any]) -> None:
        said = f"{e['sources']} candidates" if e["sources"] else f"nothing of use: {e['remark']}"
        self._say(f"  {escape(e['model'])} replied: {escape(said)}")

    def _model_waiting(self, e: dict[str, Any]) -> None:
        self.doing = "waiting for a reply"
        self._say(f"  answer {escape(e['request'])} in {escape(e['reply'])}")

    def _role_replied(self, e: dict[str, Any]) -> None:
        said = f": {e['remark']}" if e["remark"] else ""
        self._say(f"  {escape(e['model'])} replied as {e['role']}{escape(said)}")

    def _judge_waiting(self, e: dict[str, Any]) -> None:
        self.doing = f"waiting for {e['requests']} answers in {e['folder']}"
        if not self.told:
            self.told = True
            self._say(f"  waiting for a judge elsewhere, at {escape(e['folder'])}; it answers with:")
            self._say(f"  {escape(e['how'])}")

    def _gpu_waiting(self, e: dict[str, Any]) -> None:
        if (e["uuid"], e["holder"]) not in self.waited:
            self.waited.add((e["uuid"], e["holder"]))
            self._say(f"  GPU {e['index']} is in use: it is waited for until {escape(e['holder'])} lets go of it")

    def _gpu_quarantined(self, e: dict[str, Any]) -> None:
        left = f"{e['left']} go on" if e["left"] != 1 else "1 goes on"
        self._say(
            f"  [yellow]warning:[/yellow] GPU {e['index']} ({e['uuid']}) is quarantined, {left}: {escape(e['why'])}"
        )

    def _model_exhausted(self, e: dict[str, Any]) -> None:
        who = "embedded moves go on alone" if e["role"] == OPTIMIZER else f"embedded {e['role']} goes on"
        self._say(f"  [yellow]warning:[/yellow] {escape(e['text'])}: the {who}")

    def _role_fallback(self, e: dict[str, Any]) -> None:
        self._say(f"  note: the embedded {e['role']} did {escape(e['about'])}: {escape(e['text'])}")

    def _model_spent(self, e: dict[str, Any]) -> None:
        money = f", {_of(e['money'], e['of_money'])} in money" if e["money"] is not None else ""
        self.spent = f"  {_of(e['tokens'], e['of_tokens'])} tokens{money}"

    def _places_shared(self, e: dict[str, Any]) -> None:
        places = ", ".join(
            f"{who} {n} (worth {e['worth'][who]:.2f})" if who in e["worth"] else f"{who} {n}"
            for who, n in e["places"].items()
        )
        self._say(f"  generation {e['generation']} is shared by what paid so far: {places}")

    def _search_restarted(self, e: dict[str, Any]) -> None:
        found = ", ".join(c[:8] for c in e["candidates"])
        self._say(f"  patience nears its end: generation {e['generation']} starts from the runners-up: {found}")

    def _run_waiting(self, e: dict[str, Any]) -> None:
        self._say(f"  {escape(e['reply'])} {escape(e['why'])}; it is the answer to {escape(e['request'])}")
        if "how" in e:
            self._say(f"  on the machine of the GPU: {escape(e['how'])}")
        self._say(f"  then go on with: pgo-agent resume {escape(e['run'])}")

    def _warning(self, e: dict[str, Any]) -> None:
        self._say(f"  [yellow]warning:[/yellow] {escape(e['text'])}")

    def _steer_taken(self, e: dict[str, Any]) -> None:
        self._say(f"  [bold]you:[/bold] {escape(e['outcome'])}", prose=True)

    def _note(self, e: dict[str, Any]) -> None:
        self._say(f"  note: {escape(e['text'])}")

    def _profile_completed(self, e: dict[str, Any]) -> None:
        first = e["bottleneck"]["finding"]["told"] if e["bottleneck"] else "nothing stands out"
        taken = " and ".join(name for name, why in e["passes"].items() if not why)
        lost = "; ".join(why for why in e["passes"].values() if why)
        self._say(
            f"  profile of {escape(e['case'].split('/', 1)[1])}: {escape(f'{taken}: {first}' if taken else lost)}",
            prose=True,
        )

    def _candidate_verdict(self, e: dict[str, Any]) -> None:
        self.verdicts += 1
        self.held = f"  {_of(e['gpu_seconds'], self.of_gpu)} s of the GPU" if e["gpu_seconds"] else ""
        if e["verdict"] == "accepted":
            self.best = f"{e['speedup']:.3f}x"
        style = STYLE.get(e["verdict"], "red")
        self._say(
            f"  [dim]{e['candidate'][:8]}[/dim] [{style}]{e['verdict']:<11}[/{style}] "
            f"{escape(e['move'])}: {escape(e['reason'])}",
            prose=True,
        )


def _of(spent: float, most: float | None) -> str:
    """What was spent of a budget, if there is one."""
    told = f"{spent:.4g}" if spent < 1000 else f"{spent:.0f}"
    return told if most is None else f"{told} of {most:g}"


def _which(gpus: list[dict[str, str]]) -> str:
    """Where there are several."""
    return f", {len(gpus)} of them: GPUs {', '.join(g['index'] for g in gpus)}" if len(gpus) > 1 else ""


def output() -> Console:
    """A console on stdout: as wide as the terminal, or a fixed width for a file."""
    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)


def meaning(verdict: str) -> str:
    """What a verdict says of a given file."""
    return _MEANING.get(verdict, "has no verdict that is known")


def verdict(name: str, of: str, verdict: str, stage: str, reason: str, out: Console) -> None:
    """What a check came to, in one line."""
    style = STYLE.get(verdict, "red")
    out.print(
        f"[{style}]{verdict}[/{style}]: {escape(name)} {meaning(verdict)} (stage {stage}: {escape(reason)})",
        highlight=False,
        soft_wrap=True,
    )


def result(summary: dict[str, Any], run: str, state: str, console: Console | None = None) -> None:
    """The outcome of a run on stdout."""
    out = console or output()
    if "error" in summary:
        out.print(escape(summary["error"]), highlight=False)
    elif summary["environment"]:
        _measured(summary, run, out)
    else:
        _ranked(summary, run, out)
    if state == "budget":
        out.print("The budget was spent before anything was judged: give it more --minutes, or --gpu-seconds.")


def _measured(summary: dict[str, Any], run: str, out: Console) -> None:
    env = summary["environment"]
    names = {n for row in summary["cases"].values() for n in row["sides"]}
    libraries = sorted(names - {"shipped", "tuned", "winner", "A/A"})
    title = f"Measured on {env['gpu']}, driver {env['driver']}, torch {env['torch']}"
    table = Table(title=title, title_justify="left")
    sides = ["shipped", "tuned", *(["winner"] if summary["winner"] else []), *libraries]
    for column in ("case", "", *sides, *(["winner / tuned"] if summary["winner"] else [])):
        table.add_column(column, justify="left" if column in ("case", "") else "right")
    for case, row in summary["cases"].items():
        cells = [f"{row['sides'][s]['rate']:.0f}" if s in row["sides"] else "-" for s in sides]
        last = [interval(row["ratio"]["tuned"])] if summary["winner"] else []
        table.add_row(case.split("/", 1)[1], row["sides"]["shipped"]["unit"], *cells, *last)
    out.print(table)
    if summary["winner"]:
        against = summary["against"]
        out.print(
            f"accepted: {interval(against['shipped'])} of as shipped, {interval(against['tuned'])} of tuned "
            "(geometric mean, 95 %)"
        )
        out.print(f"evidence: pgo-agent show {run} {summary['winner']}", highlight=False)
    else:
        out.print("no candidate was faster than the kernel as shipped beyond the noise.")


def interval(x: Sequence[float]) -> str:
    """How many times faster, with its interval: low, middle, high."""
    return f"{x[1]:.3f}x [{x[0]:.3f}, {x[2]:.3f}]"


def _ranked(summary: dict[str, Any], run: str, out: Console) -> None:
    told = any(s["how"] == "recorded" for row in summary["cases"].values() for s in row.values())
    origin = f" (rates without ~ were recorded on an {summary['device']})" if told else ""
    table = Table(title=f"Best known configuration of each case{origin}", title_justify="left")
    for column in ("case", "as shipped", "rate", "best of the launch grid", "rate"):
        table.add_column(column, justify="right" if column == "rate" else "left")
    for case, row in summary["cases"].items():
        s, t = row["shipped"], row["tuned"]
        table.add_row(case.split("/", 1)[1], s["choice"], _rate(s), t["choice"], _rate(t))
    out.print(table)
    ranking = Table(
        title="Candidates, by recorded time first and by estimate after (below 1 is faster)", title_justify="left"
    )
    for column in ("candidate", "move", "verdict", "relative time", "known from"):
        ranking.add_column(column, justify="right" if column == "relative time" else "left")
    for row in summary["ranking"][:12]:
        mark = "~" if "estimate" in row["how"] or "partly" in row["how"] else ""
        relative = "-" if row["relative"] is None else f"{mark}{row['relative']:.3f}"
        ranking.add_row(row["candidate"][:8], row["move"], row["verdict"], relative, row["how"])
    if summary["ranking"]:
        out.print(ranking)
    out.print(
        "~ is an estimate from the static profile, never a measurement. Recorded figures are of this very code, "
        "measured on that GPU.",
        highlight=False,
    )
    out.print(
        f"next: pgo-agent show {run}   (on a machine with the GPU, the same command judges and measures)",
        highlight=False,
    )


def _rate(point: dict[str, Any]) -> str:
    return f"{'~' if point['how'] == 'estimate' else ''}{point['rate']:.0f} {point['unit']}"


def near(path: str) -> str:
    """A path from here where it is below here, else as it is."""
    inside = Path(path).is_relative_to(Path.cwd())
    return str(Path(path).relative_to(Path.cwd())) if inside else path
