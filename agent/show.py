"""`runs` and `show`: what the record holds, for a person or as JSON."""

import difflib
import json
from dataclasses import asdict
from typing import Any

from pgo_agent.agent import display, static_rank
from pgo_agent.agent.store import Candidate, Run, Store
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table


def runs(store: Store, as_json: bool) -> None:
    found = store.runs()
    if as_json:
        print(json.dumps([_outline(store, r) for r in found]))
        return
    table = Table()
    for column in ("run", "target", "device", "state", "candidates", "accepted", "created"):
        table.add_column(column, justify="right" if column in ("candidates", "accepted") else "left")
    for r in found:
        o = _outline(store, r)
        table.add_row(r.id, r.target, r.device, r.state, str(o["candidates"]), str(o["accepted"]), r.created)
    display.output().print(table)


def run(store: Store, name: str, as_json: bool) -> None:
    found = store.run(name)
    candidates = store.candidates(found.id)
    if as_json:
        print(
            json.dumps(
                _outline(store, found)
                | {"baseline": found.baseline, "summary": found.summary, "verdicts": [_line(c) for c in candidates]}
            )
        )
        return
    out = display.output()
    out.print(
        f"[bold]{found.id}[/bold]  {escape(found.target)}  {found.device}  {found.state}  {found.seconds:.0f} s",
        highlight=False,
    )
    table = Table(title="candidates", title_justify="left")
    for column in ("candidate", "gen", "move", "verdict", "stage", "speedup", "reason"):
        table.add_column(column, overflow="fold", ratio=1 if column == "reason" else None)
    for c in candidates:
        speedup = f"{c.speedup:.3f}x" if c.speedup else ""
        table.add_row(
            c.id[:8],
            str(c.generation),
            c.move,
            c.verdict or "not judged",
            c.stage or "",
            speedup,
            escape(c.reason or ""),
        )
    out.print(table)
    spent = store.spent(found.id)
    if spent["calls"]:
        tokens = f"{spent['prompt_tokens']:.0f} + {spent['completion_tokens']:.0f} tokens"
        out.print(f"model: {spent['calls']:.0f} calls, {tokens}, {spent['seconds']:.0f} s", highlight=False)
    for parent, move, reason in store.skipped(found.id):
        out.print(f"not applied to {parent[:8]}: {move}: {escape(reason)}", highlight=False)
    if found.summary:
        display.result(found.summary, found.id, found.state, out)
    elif found.state in ("running", "interrupted"):
        out.print(f"not complete: pgo-agent resume {found.id}", highlight=False)


def candidate(store: Store, name: str, prefix: str, source: bool, as_json: bool) -> None:
    found = store.run(name)
    c = store.candidate(found.id, prefix)
    evidence = store.evidence(found.id, c.id)
    if as_json:
        print(json.dumps(asdict(c) | {"evidence": evidence}))
        return
    if source:
        print(c.source, end="")
        return
    out = display.output()
    out.print(
        f"[bold]{c.id}[/bold]  generation {c.generation}, {c.kind}, by {c.author}: {escape(c.rationale)}",
        highlight=False,
    )
    out.print(f"verdict: {c.verdict or 'not judged'} at {c.stage or '-'}: {escape(c.reason or '')}", highlight=False)
    diff = "".join(
        difflib.unified_diff(found.source.splitlines(True), c.source.splitlines(True), "as shipped", "candidate")
    )
    out.print(Syntax(diff, "diff", background_color="default") if out.is_terminal else escape(diff))
    _builds(out, c)
    _numerics(out, evidence)


def _builds(out: Console, c: Candidate) -> None:
    if not c.built or not c.built["choices"]:
        for f in (c.built or {}).get("failures", []):
            out.print(f"{f['kind']}: {escape(f['message'][:2000])}", highlight=False)
        return
    table = Table(title="builds", title_justify="left")
    for column in ("case", "configuration", "registers", "spills", "shared", "depth", "symptoms", "code"):
        table.add_column(column)
    for case, options in c.built["choices"].items():
        for o in options:
            for key in o["kernels"]:
                s = c.built["statics"][key]
                table.add_row(
                    case,
                    o["label"],
                    str(s["registers"]),
                    str(s["spill_store_bytes"]),
                    str(s["shared"]),
                    str(s["pipeline_depth"]),
                    ", ".join(static_rank.symptoms(s)),
                    c.built["codes"][key][:12],
                )
    out.print(table)


def _numerics(out: Console, evidence: dict[str, Any]) -> None:
    for stage, body in evidence.items():
        for check in body.get("numerics", []) if isinstance(body, dict) else []:
            errors = ", ".join(
                f"{e['max']:.3g} of {b[0]:.3g}" for e, b in zip(check["errors"], check["bounds"], strict=False)
            )
            out.print(f"{stage}: {check['case']} seed {check['seed']}: max error {errors}", highlight=False)
        if isinstance(body, dict) and "against" in body:
            against = ", ".join(f"{n} {x[1]:.3f}x [{x[0]:.3f}, {x[2]:.3f}]" for n, x in body["against"].items())
            out.print(f"{stage}: {against}", highlight=False)


def _outline(store: Store, r: Run) -> dict[str, Any]:
    own = store.candidates(r.id)
    return {
        "run": r.id,
        "target": r.target,
        "device": r.device,
        "state": r.state,
        "created": r.created,
        "seconds": r.seconds,
        "candidates": len(own),
        "accepted": sum(c.verdict == "accepted" for c in own),
    }


def _line(c: Candidate) -> dict[str, Any]:
    return {
        k: getattr(c, k)
        for k in ("id", "generation", "move", "kind", "verdict", "stage", "reason", "speedup", "seconds")
    }
