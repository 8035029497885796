"""Draws a profile in the terminal: what a kernel takes, its loops, its dearest source lines, and what stands out."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pgo_agent.agent import display
from pgo_agent.agent.findings import Finding
from pgo_agent.agent.profiling import CaseProfile, Profile
from pgo_agent.agent.session import locate
from pgo_agent.sandbox import target
from pgo_agent.sandbox.profile.report import Line, MachineLoop, Problem, StaticProfile
from rich.console import Console
from rich.markup import escape
from rich.table import Table

LINES = 12  # source lines of a kernel that are shown
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


def tell(found: Profile, file: Path, as_json: bool, code: bool) -> None:
    """Prints a profile of this target: as one JSON object, or drawn. `code`: with its pseudo-code."""
    if as_json:
        print(json.dumps(found.as_json(), sort_keys=True))
    else:
        show(found, target.read(locate(file)).source, display.output(), code)


def show(found: Profile, source: str, out: Console, code: bool = False) -> None:
    """`source`: the target's text, whose lines the profile names."""
    text = source.splitlines()
    for case in found.cases:
        _case(case, found, text, out, code)
    for failure in found.failures:
        out.print(f"does not build: {failure}", style="yellow", markup=False, soft_wrap=True)
    out.print("Counted from the code that the compiler made; nothing was run or timed.", style="dim")


def _case(case: CaseProfile, found: Profile, text: Sequence[str], out: Console, code: bool) -> None:
    name = case.case.removeprefix("CASES/")
    out.print(f"[bold]{escape(found.target)}  {escape(name)}[/]  {escape(case.configuration)}  [dim]({case.chosen})[/]")
    for kernel in (k.static for k in case.kernels):
        if isinstance(kernel, Problem):
            out.print(f"  no static profile: {kernel.reason}", style="yellow", markup=False, soft_wrap=True)
        else:
            _kernel(kernel, case.findings[kernel.build], text, out)
            if code and kernel.build in case.code:
                out.print(case.code[kernel.build], markup=False, highlight=False, soft_wrap=True)


def _kernel(k: StaticProfile, found: Sequence[Finding], text: Sequence[str], out: Console) -> None:
    out.print(f"\n[bold cyan]{escape(k.kernel)}[/]  {k.target}, {k.instructions} instructions", highlight=False)
    for label, said in _facts(k):
        out.print(f"  {label:<14}{escape(said)}", highlight=False)
    for f in found:
        where = f"line {f.line}: " if f.line else ""
        out.print(f"  [yellow]![/] {where}{escape(f.told)}", highlight=False, soft_wrap=True)
    if not k.same_code:
        out.print("  with line information the compiler makes other code: lines are of that code", style="dim")
    if loops := [(_of_loop(m), "", m.instructions, m.kinds, m.live) for m in k.loops if not m.waits]:
        out.print(_table("loops", loops))
    dearest = sorted((n for n in k.source if n.line), key=lambda n: (-_depth(n, k), -n.instructions))[:LINES]
    rows = [(str(n.line), _statement(n, text), n.instructions, n.kinds, n.live) for n in dearest]
    out.print(_table("instructions by source line, those of the innermost loop first", rows))


def _facts(k: StaticProfile) -> Iterator[tuple[str, str]]:
    r, o, p = k.resources, k.occupancy, k.pipeline
    peak = f"; most live {k.peak.live}, at line {k.peak.source}" if k.peak and k.peak.source else ""
    spills = f", spills {r.spill_store_bytes} B out and {r.spill_load_bytes} B in" if r.spill_store_bytes else ""
    yield "registers", f"{r.registers} of a thread{peak}{spills}"
    yield "shared", f"{r.shared_bytes} B of a block of {r.warps} warps"
    limited = " and ".join(o.limiter)
    blocks = f"{o.blocks} block{'s' * (o.blocks != 1)}"
    unit = "a compute unit" if k.backend == "amd" else "an SM"
    yield "occupancy", f"{blocks}, {o.warps} of {o.most_warps} warps of {unit}; {limited} allow no more"
    if p.dots:
        left = Counter(p.pendings).items()
        waits = "".join(f"; {n} wait{'s leave' if n > 1 else ' leaves'} {few} in flight" for few, n in left)
        special = ", warps specialized" if p.warp_specialized else ""
        copies = f"{p.async_copies} async cop{'y' if p.async_copies == 1 else 'ies'}"
        yield "pipeline", f"{p.depth} deep, {copies}, {p.dots} dots{waits}{special}"
    if k.notes:
        yield "ptxas", ", ".join(k.notes)


def _table(title: str, rows: Sequence[tuple[str, str, int, Mapping[str, int], int]]) -> Table:
    """Rows: name, text, instructions, by kind, live registers."""
    shown = [kind for kind in KINDS if any(row[3].get(kind) for row in rows)]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1), title_style="bold")
    table.add_column("line", justify="right")
    if any(row[1] for row in rows):
        table.add_column("", no_wrap=True, overflow="ellipsis", max_width=48)
    live = any(row[4] for row in rows)
    for name in ("all", *(KINDS[kind] for kind in shown), *(["live"] if live else [])):
        table.add_column(name, justify="right")
    for name, said, count, kinds, most in rows:
        texts = (escape(said),) if any(row[1] for row in rows) else ()
        by_kind = (str(kinds.get(kind) or "") for kind in shown)
        table.add_row(name, *texts, str(count), *by_kind, *([str(most or "")] if live else []))
    return table


def _of_loop(m: MachineLoop) -> str:
    first, last = m.source
    return "  " * m.depth + (f"{first}-{last}" if first else "not of the source")


def _depth(line: Line, k: StaticProfile) -> int:
    """Loops around a line."""
    return sum(m.source[0] <= line.line <= m.source[1] for m in k.loops if not m.waits)


def _statement(line: Line, text: Sequence[str]) -> str:
    return text[line.line - 1].strip() if 0 < line.line <= len(text) else ""
