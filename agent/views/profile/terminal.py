"""Draws a profile in the terminal: a kernel's resources, its findings, timeline, counters, loops and lines.

A pass that was not taken is one dim line with its reason. Nothing here writes a file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pgo_agent.agent.profile import in_flight
from pgo_agent.agent.profile.case_profile import CaseProfile, Profile
from pgo_agent.agent.profile.findings import Finding
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.views.profile import counters, format, timeline_terminal
from pgo_agent.agent.views.profile.timeline_terminal import fact
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.gate.coverage import PUBLIC
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing
from pgo_agent.sandbox.profile.static_profile import Line, MachineLoop, Problem, StaticProfile
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

LINES = 12  # source lines of a kernel that are shown
STATEMENT, SHORTEST = 48, 12  # columns of a source statement at most, and at least
KINDS = {  # of instructions -> heading
    "tensor": "mma",
    "special": "mufu",
    "float": "float",
    "convert": "cvt",
    "integer": "int",
    "move": "mov",
    "exchange": "shfl",
    "shared": "smem",
    "global": "gmem",
    "spill": "spill",
    "sync": "sync",
}


def show(
    profile: Profile, source: str, out: Console, code: bool = False, summaries: Mapping[str, Summary] | None = None
) -> None:
    """Print the profile. `source`: the target's text, whose lines it names. `summaries`: by case of the profile."""
    text = source.splitlines()
    for case in profile.cases:
        _case(case, profile, text, (summaries or {}).get(case.case), out, code)
    for failure in profile.failures:
        out.print(f"does not build: {failure}", style="yellow", markup=False, soft_wrap=True)
    out.print(basis(profile), style="dim")


def basis(profile: Profile) -> str:
    """Return the sentence on what a profile's figures are based."""
    kernels = [k for case in profile.cases for k in case.kernels]
    if not any(not isinstance(x, Missing) for k in kernels for x in (k.timeline, k.counters)):
        return "Counted from the code that the compiler made; nothing was run or timed."
    return (
        "Instructions are counted from the code that the compiler made. Cycles are of instrumented builds, counters of "
        "replayed launches: they say where time goes, not how fast the kernel is."
    )


def _case(
    case: CaseProfile, profile: Profile, text: Sequence[str], summary: Summary | None, out: Console, code: bool
) -> None:
    name = case.case.removeprefix(PUBLIC)
    at = f"{escape(case.configuration)}  [dim]({escape(case.chosen)})[/]"
    out.print(f"[bold]{escape(profile.target)}  {escape(name)}[/]  {at}", highlight=False)
    if summary:
        out.print(Text(summary.text), highlight=False)
    if isinstance(case.roofline, Missing):
        _absent([case.roofline], out)
    else:
        fact("roof", format.roof(case.roofline), out)
    if case.floor:
        fact("estimate", format.floor(case.floor), out)
    for k in case.kernels:
        _kernel(k, case, profile.device, text, out)
        if code and case.code.get(k.build):
            out.print()
            out.print(case.code[k.build], markup=False, highlight=False, soft_wrap=True)


def _kernel(k: KernelProfile, case: CaseProfile, device: str, text: Sequence[str], out: Console) -> None:
    s = k.static
    if isinstance(s, Problem):
        out.print(f"\n[bold cyan]{escape(k.kernel)}[/]", highlight=False)
        out.print(f"  no static profile: {s.reason}", style="yellow", markup=False, soft_wrap=True)
    else:
        _static(k, s, device, case.findings.get(k.build, ()), out)
    _absent(k.missing, out)
    if not isinstance(k.timeline, Missing):
        timeline_terminal.draw(k, k.timeline, out)
    if not isinstance(k.counters, Missing):
        counters.draw(k.counters, text, out)
    if isinstance(s, StaticProfile):
        _tables(s, text, out)


def _absent(missing: Iterable[Missing], out: Console) -> None:
    for line in format.gathered(missing):
        out.print(f"  {line}", style="dim", markup=False, highlight=False)


def _static(of: KernelProfile, k: StaticProfile, device: str, findings: Sequence[Finding], out: Console) -> None:
    out.print(f"\n[bold cyan]{escape(k.kernel)}[/]  {k.target}, {k.instructions} instructions", highlight=False)
    for label, text in facts(of, k, device):
        fact(label, text, out)
    for f in findings:
        where = f"line {f.line}: " if f.line else ""
        out.print(f"  [yellow]![/] {where}{escape(f.told)}", highlight=False)
    if not k.same_code:
        out.print("  with line information the compiler makes other code: lines are of that code", style="dim")


def facts(of: KernelProfile, k: StaticProfile, device: str) -> Iterator[format.Said]:
    """Yield what is known of a kernel without running it. `device`: the key of the one that it was compiled for."""
    r, o, p = k.resources, k.occupancy, k.pipeline
    peak = f"; most live {k.peak.live}, at line {k.peak.source}" if k.peak and k.peak.source else ""
    spills = f", spills {r.spill_store_bytes} B out and {r.spill_load_bytes} B in" if r.spill_store_bytes else ""
    asked = f" at launch; roles of specialized warps ask for {', '.join(map(str, p.requested))}" if p.requested else ""
    yield "registers", f"{r.registers} of a thread{asked}{peak}{spills}"
    yield "shared", f"{r.shared_bytes} B of a block of {r.warps} warps"
    limited = " and ".join(o.limiter)
    blocks = f"{o.blocks} block{'s' * (o.blocks != 1)}"
    unit = "a compute unit" if k.backend == "amd" else "an SM"
    yield "occupancy", f"{blocks}, {o.warps} of {o.most_warps} warps of {unit}; {limited} allow no more"
    if launched := in_flight.grid(of, devices.find(device)):
        yield "grid", launched
    if p.dots:
        left = Counter(p.pendings).items()
        waits = "".join(f"; {n} wait{'s leave' if n > 1 else ' leaves'} {few} in flight" for few, n in left)
        special = ", warps specialized" if p.warp_specialized else ""
        copies = f"{p.async_copies} async cop{'y' if p.async_copies == 1 else 'ies'}"
        yield "pipeline", f"{p.depth} deep, {copies}, {p.dots} dots{waits}{special}"
    if k.notes:
        yield "ptxas", ", ".join(k.notes)


# loops and lines ------------------------------------------------------------------------------------------------------

Row = tuple[str, str, int, Mapping[str, int], int]  # name, text, instructions, by kind, live registers


def _tables(k: StaticProfile, text: Sequence[str], out: Console) -> None:
    for title, rows in (("loops", loops(k)), ("instructions by source line, innermost loop first", lines(k, text))):
        if rows:
            out.print()
            out.print(_table(title, rows, out.width))


def loops(k: StaticProfile) -> list[Row]:
    return [(_of_loop(m), "", m.instructions, m.kinds, m.live) for m in k.loops if not m.waits]


def lines(k: StaticProfile, text: Sequence[str]) -> list[Row]:
    """Return the rows of the dearest source lines."""
    dearest = sorted((n for n in k.source if n.line), key=lambda n: (-_depth(n, k), -n.instructions))[:LINES]
    return [(str(n.line), _statement(n, text), n.instructions, n.kinds, n.live) for n in dearest]


def figures(rows: Sequence[Row]) -> list[list[str]]:
    """Return headings and cells of each row: all instructions, those of each kind present, and live registers."""
    shown = [kind for kind in KINDS if any(row[3].get(kind) for row in rows)]
    live = any(row[4] for row in rows)
    head = ["all", *(KINDS[kind] for kind in shown), *(["live"] if live else [])]
    return [head] + [
        [str(count), *(str(kinds.get(kind) or "") for kind in shown), *([str(most or "")] if live else [])]
        for _, _, count, kinds, most in rows
    ]


def _table(title: str, rows: Sequence[Row], width: int) -> Table:
    """Return the table, at most as wide as the terminal; without room the statement is cut, never a figure."""
    head, *body = figures(rows)
    names = max(len("line"), *(len(row[0]) for row in rows))
    left = width - names - sum(1 + max(len(row[i]) for row in (head, *body)) for i in range(len(head))) - 1
    with_text = any(row[1] for row in rows) and left >= SHORTEST
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), title_style="bold")
    table.add_column("line", justify="right", no_wrap=True)
    if with_text:
        table.add_column("", no_wrap=True, overflow="ellipsis", max_width=min(STATEMENT, left - 1))
    for name in head:
        table.add_column(name, justify="right", no_wrap=True)
    for row, cells in zip(rows, body, strict=True):
        table.add_row(row[0], *([Text(row[1])] if with_text else []), *cells)
    return table


def _of_loop(m: MachineLoop) -> str:
    first, last = m.source
    return "  " * m.depth + (f"{first}-{last}" if first else "not of the source")


def _depth(line: Line, k: StaticProfile) -> int:
    """Return the number of loops around a line."""
    return sum(m.source[0] <= line.line <= m.source[1] for m in k.loops if not m.waits)


def _statement(line: Line, text: Sequence[str]) -> str:
    return text[line.line - 1].strip() if 0 < line.line <= len(text) else ""
