"""`runs`, `show` and `lessons`: what the record holds, for a person or as JSON."""

import difflib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pgo_agent.agent import text
from pgo_agent.agent.evaluation import baseline_builds, coverage_text
from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.proposal import bottlenecks
from pgo_agent.agent.proposal import lessons as learned
from pgo_agent.agent.proposal.prompt.token_budget import left_out
from pgo_agent.agent.run import own_list, target_file
from pgo_agent.agent.run.record import history, pending, profiles
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import RankedRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views import model_usage
from pgo_agent.agent.views import summary as display
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.coverage import NOTHING
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
    candidates, hung = store.candidates(found.id), store.quarantined(found.id)
    if as_json:
        print(
            json.dumps(
                _outline(store, found)
                | {
                    "baseline": found.baseline and found.baseline.as_json(),
                    "summary": found.summary and found.summary.as_json(),
                    "verdicts": [_line(store, c) for c in candidates],
                }
                | {"left_out": [left_out(c.prompt) for c in store.calls(found.id)]}
                | {"quarantined": [{"uuid": u, "index": i, "why": w} for u, (i, w) in hung.items()]}
                | {"profiles": [_profile(k) for k in profiles.of(store, found.id)]}
                | model_usage.as_json(store, found)
            )
        )
        return
    out = display.output()
    out.print(
        f"[bold]{found.id}[/bold]  {escape(found.target)}  {found.device}  {found.state}  {found.seconds:.0f} s",
        highlight=False,
    )
    table = Table(title="candidates", title_justify="left")
    for column in ("candidate", "gen", "by", "move", "verdict", "stage", "speedup", "reason"):
        table.add_column(column, overflow="fold", ratio=1 if column == "reason" else None)
    waiting = pending.told(store, found.id)
    for c in candidates:
        far, ratio = waiting.get(c.id, ("not judged", None))
        speedup = f"{x:.3f}x" if (x := c.speedup or ratio) else ""
        table.add_row(
            c.id[:8],
            str(c.generation),
            escape(c.proposer or c.author),
            escape(c.move),
            c.verdict or far,
            c.stage or "",
            speedup,
            escape("\n".join(filter(None, (c.reason, _because(c))))),
        )
    out.print(table)
    for k in profiles.of(store, found.id):
        out.print(escape(bottlenecks.one_line(k)), highlight=False)
    for line in model_usage.told(store, found):
        out.print(escape(line), highlight=False)
    if unfit := list(own_list.lines(found.baseline.unfit if found.baseline else ())):
        out.print("configurations of the file's own list that no baseline is made of:", highlight=False)
        for line in unfit:
            out.print(escape(f"  {line}"), highlight=False, soft_wrap=True)
    for uuid, (index, why) in hung.items():
        out.print(f"quarantined: GPU {index} ({uuid}): {escape(why)}", highlight=False)
    if lacking := sorted({name for c in store.calls(found.id) for name in left_out(c.prompt)}):
        out.print(f"left out of prompts for want of --prompt-tokens: {', '.join(lacking)}", highlight=False)
    for parent, move, reason in store.skipped(found.id):
        out.print(f"not applied to {parent[:8]}: {move}: {escape(reason)}", highlight=False)
    if found.summary:
        outcome(store, found.id, out)
    elif found.state == "waiting":
        judge = found.settings.judge
        where = [*model_usage.folders(found), *([judge.partition(":")[2]] if judge.startswith("spool:") else [])]
        told = escape(" or ".join(where))
        out.print(f"waits for an answer in {told}; then pgo-agent resume {found.id}", highlight=False)
    elif found.state in ("running", "interrupted"):
        out.print(f"not complete: pgo-agent resume {found.id}", highlight=False)


def lessons(store: Store, file: Path) -> None:
    """What a new run of a target would be told of former ones."""
    found = target.read(target_file.locate(file))
    lines = learned.as_lines(history.tried(store, history.Subject(found.digest, found.asked)), ())
    for line in lines or [f"no run of {file} in this workspace has come to a verdict"]:
        display.output().print(escape(line), highlight=False)


def outcome(store: Store, name: str, console: Console | None = None) -> None:
    """What a run came to: a ranking or a table of times; of a check, what is to be said of its candidate."""
    found, out = store.run(name), console or display.output()
    summary = found.summary
    if found.facts.given:
        _checked(store, found, next(iter(store.candidates(found.id)), None), out)
    if summary is not None and not (found.facts.given and isinstance(summary, RankedRun)):
        display.result(summary, found.id, found.state, out)


def _checked(store: Store, found: Run, c: Candidate | None, out: Console) -> None:
    name = found.facts.given[0].name
    if c is None or c.verdict is None:
        out.print(f"{escape(name)} was not judged: no time was left; give it more --minutes", highlight=False)
        return
    display.verdict(name, found.target, c.verdict, c.stage or "", c.reason or "", out)
    _covered(out, store.evidence(found.id, c.id))
    _stages(out, store.evidence(found.id, c.id))
    _errors(out, store.evidence(found.id, c.id))
    _builds(out, c, "CASES/")
    _against(out, store.evidence(found.id, c.id))
    compare = f"   pgo-agent diff shipped {c.id[:8]} --run {found.id}" if c.has_bundle else ""
    out.print(f"more: pgo-agent show {found.id} {c.id[:8]}{compare}", highlight=False)
    if c.verdict == "accepted":
        out.print(f"next: pgo-agent apply {found.id}", highlight=False)


def candidate(store: Store, name: str, prefix: str, source: bool, as_json: bool) -> None:
    found = store.run(name)
    c = store.candidate(found.id, prefix)
    evidence = store.evidence(found.id, c.id)
    if as_json:
        print(json.dumps(c.as_json() | {"evidence": evidence}))
        return
    if source:
        print(c.source, end="")
        return
    out = display.output()
    out.print(
        f"[bold]{c.id}[/bold]  generation {c.generation}, {c.kind}, by {escape(c.author)}: {escape(c.rationale)}",
        highlight=False,
    )
    if c.cites:
        out.print(escape(_because(c)), highlight=False)
    far, ratio = pending.told(store, found.id).get(c.id, ("not judged", None))
    waits = f"{far} at {ratio:.3f}x, waits for more" if ratio else far
    said = f"{c.verdict} at {c.stage or '-'}: {escape(c.reason or '')}" if c.verdict else waits
    out.print(f"verdict: {said}", highlight=False)
    changes(store, found, c, out)
    findings(store, c, out)


def changes(store: Store, run: Run, c: Candidate, out: Console) -> None:
    """The diff against the kernel as shipped; of TTGIR against what it replaces."""
    before = replaced(store, run, c)
    diff = "".join(difflib.unified_diff(before.splitlines(True), c.source.splitlines(True), "as shipped", "candidate"))
    coloured = Syntax(text.visible(diff), "diff", background_color="default", word_wrap=True)
    out.print(coloured if out.is_terminal else escape(diff))


def findings(store: Store, c: Candidate, out: Console) -> None:
    """What the stages, the builds and the clock said of a candidate."""
    evidence = store.evidence(c.run, c.id)
    _covered(out, evidence)
    _stages(out, evidence)
    _builds(out, c)
    _errors(out, evidence)
    _against(out, evidence)


def replaced(store: Store, run: Run, c: Candidate) -> str:
    """The text that a candidate's own stands in for: the kernel as shipped; of TTGIR, that of a build, or none."""
    if c.kind != "ttgir":
        return run.source
    digest = c.built.replaced.get("ttgir") if c.built else None
    return store.contents.get(digest, "ttgir").decode() if digest else ""


def _covered(out: Console, evidence: dict[str, Any]) -> None:
    """What the verdict rests on."""
    found = coverage_text.of(evidence)
    if found != NOTHING:
        out.print(f"covered: {escape(found.said())}", highlight=False, soft_wrap=True)


def _stages(out: Console, evidence: dict[str, Any]) -> None:
    """What every stage of the gate said of a candidate, in the order in which it was asked."""
    table = Table(title="stages", title_justify="left")
    for column in ("stage", "said", "seconds", "because"):
        table.add_column(column, justify="right" if column == "seconds" else "left", overflow="fold")
    for s in next((b["stages"] for b in evidence.values() if isinstance(b, dict) and "stages" in b), []):
        table.add_row(s["stage"], s["verdict"], f"{s['seconds']:.2f}", escape(s["reason"]))
    if table.row_count:
        out.print(table)


def _builds(out: Console, c: Candidate, cases: str = "") -> None:
    """What failed to build, and what was built for the cases whose name begins with `cases`."""
    if c.built is None:
        return
    built, failures = c.built, dict[tuple[str, str], list[str]]()  # (kind, message) -> cases
    for f in built.failures:
        failures.setdefault((f.kind, f.message.strip()[:2000]), []).append(f.case.split("/", 1)[-1])
    for (kind, message), names in failures.items():
        where = f"{', '.join(names)}: " if any(names) else ""
        out.print(f"{kind}: {escape(where + message)}", highlight=False)
        if advice := baseline_builds.about_imports(message):
            out.print(f"  -> {advice}", highlight=False)
    chosen = {case: options for case, options in built.choices.items() if case.startswith(cases)}
    if not chosen:
        return
    table = Table(title="builds", title_justify="left")
    for column in ("case", "configuration", "registers", "spills", "shared", "depth", "symptoms", "code"):
        table.add_column(column, no_wrap=column in ("registers", "spills", "shared", "depth"), overflow="fold")
    for case, options in chosen.items():
        for o in options:
            for key, s in zip(o.kernels, built.statics_of(o), strict=True):
                table.add_row(
                    case,
                    o.label,
                    str(s["registers"]),
                    str(s["spill_store_bytes"]),
                    str(s["shared"]),
                    str(s["pipeline_depth"]),
                    ", ".join(cost_model.symptoms(s)),
                    built.codes[key][:12],
                )
    out.print(table)


def _errors(out: Console, evidence: dict[str, Any]) -> None:
    """Every output that was compared with the reference, and what its error may be."""
    table = Table(title="errors against the float64 reference", title_justify="left")
    for column in ("stage", "case", "output", "max error", "allowed", "mean error", "allowed"):
        words = column in ("stage", "case")
        table.add_column(column, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for stage, body in evidence.items():
        worst: dict[tuple[str, int], tuple[Any, ...]] = {}  # of the configurations of a case
        for i, e, (most, mean, *_), check in _compared(body):
            cells = (f"{e['max']:.3g}", f"{most:.3g}", f"{e['mean']:.3g}", f"{mean:.3g}")
            found = (bool(check["problem"]), e["max"] / max(most, 1e-300), cells)
            name = f"{check['case']} with {check['strain']}" if check.get("strain") else check["case"]
            worst[name, i] = max(worst.get((name, i), found), found)
        for (case, i), (wrong, _, cells) in worst.items():
            table.add_row(stage, case, str(i), *cells, style="red" if wrong else None)
    if table.row_count:
        out.print(table)
    for told in dict.fromkeys(
        c["yardstick"] for b in evidence.values() for *_, c in _compared(b) if c.get("yardstick")
    ):
        out.print(f"allowed by the reference's own errors in {escape(told)}", highlight=False)


def _compared(body: Any) -> Iterator[tuple[int, dict[str, float], list[float], dict[str, Any]]]:
    """(output, error, bounds, comparison) of every comparison that a stage's evidence holds."""
    body = body if isinstance(body, dict) else {}
    for check in (*body.get("numerics", ()), *([body["check"]] if body.get("check") else ())):
        for i, (error, bounds) in enumerate(zip(check["errors"], check["bounds"], strict=False)):
            yield i, error, bounds, check


def _against(out: Console, evidence: dict[str, Any]) -> None:
    for stage, body in evidence.items():
        for which, said in (("", body), (" again", body.get("again", {}))) if isinstance(body, dict) else ():
            if on := said.get("taken_on"):
                out.print(f"{stage}: measured{which} on GPU {on['index']} ({on['uuid']})", highlight=False)
        if isinstance(body, dict) and "against" in body:
            against = ", ".join(f"{n} {display.interval(x)}" for n, x in body["against"].items())
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


def _line(store: Store, c: Candidate) -> dict[str, Any]:
    told = ("id", "generation", "proposer", "author", "move", "kind")
    came_to = ("verdict", "stage", "reason", "speedup", "seconds")
    own: dict[str, Any] = {"coverage": coverage_text.of(store.evidence(c.run, c.id)).as_json()}
    own |= {"cites": c.cites and c.cites.as_json()}
    return {k: getattr(c, k) for k in (*told, *came_to)} | own


def _because(c: Candidate) -> str:
    """What in the profile led to a candidate; empty when nothing did."""
    return f"because: {bottlenecks.because(c.cites)}" if c.cites else ""


def _profile(k: StoredProfile) -> dict[str, Any]:
    return asdict(k) | {"summary": k.summary.as_json() if k.summary else None}
