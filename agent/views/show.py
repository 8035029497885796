"""`runs`, `show` and `lessons`: print what the record holds, for a person or as JSON."""

import difflib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pgo_agent.agent import text
from pgo_agent.agent.evaluation import baseline_builds, coverage_text
from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.proposal import bottlenecks
from pgo_agent.agent.proposal import lessons as learned
from pgo_agent.agent.proposal.prompt.sections import left_out
from pgo_agent.agent.run import cost, shipped_configurations, target_file
from pgo_agent.agent.run.record import history, pending, profiles
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import RankedRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views import cost as cost_view
from pgo_agent.agent.views import model_usage, outline
from pgo_agent.agent.views import summary as display
from pgo_agent.agent.views.report.correctness import Comparison, comparisons
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.coverage import NOTHING, PUBLIC
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table


def runs(store: Store, as_json: bool) -> None:
    listed = store.runs()
    if as_json:
        print(json.dumps([asdict(outline.of_run(store, r)) for r in listed]))
        return
    table = Table()
    for column in ("run", "target", "device", "state", "candidates", "accepted", "created"):
        table.add_column(column, justify="right" if column in ("candidates", "accepted") else "left")
    for r in listed:
        o = outline.of_run(store, r)
        table.add_row(o.run, o.target, o.device, o.state, str(o.candidates), str(o.accepted), o.created)
    display.output().print(table)


def run(store: Store, name: str, as_json: bool) -> None:
    shown = store.run(name)
    candidates, hung = store.candidates(shown.id), store.quarantined(shown.id)
    if as_json:
        print(
            json.dumps(
                asdict(outline.of_run(store, shown))
                | {
                    "commit": shown.facts.pgo_agent.commit if shown.facts.pgo_agent else "",
                    "seed": shown.settings.seed,
                    "models": shown.facts.models,
                    "baseline": shown.baseline and shown.baseline.as_json(),
                    "summary": shown.summary and shown.summary.as_json(),
                    "verdicts": [asdict(outline.of_candidate(store, c)) for c in candidates],
                }
                | {"left_out": [left_out(c.prompt) for c in store.calls(shown.id)]}
                | {"quarantined": [{"uuid": u, "index": i, "why": w} for u, (i, w) in hung.items()]}
                | {"profiles": [_profile(k) for k in profiles.of(store, shown.id)]}
                | model_usage.as_json(store, shown)
            )
        )
        return
    out = display.output()
    out.print(
        f"[bold]{shown.id}[/bold]  {escape(shown.target)}  {shown.device}  {shown.state}  {shown.seconds:.0f} s",
        highlight=False,
    )
    table = Table(title="candidates", title_justify="left")
    for column in ("candidate", "gen", "by", "move", "verdict", "stage", "speedup", "reason"):
        table.add_column(column, overflow="fold", ratio=1 if column == "reason" else None)
    waiting = pending.progress(store, shown.id)
    for c in candidates:
        far, ratio = waiting.get(c.id, ("not judged", None))
        speedup = f"{x:.3f}x" if (x := c.speedup or ratio) else ""
        table.add_row(
            c.id[:8],
            str(c.generation),
            escape(c.by),
            escape(c.move),
            c.verdict or far,
            c.stage or "",
            speedup,
            escape("\n".join(filter(None, (c.reason, _because(c))))),
        )
    out.print(table)
    for k in profiles.of(store, shown.id):
        out.print(escape(bottlenecks.one_line(k)), highlight=False)
    for line in model_usage.as_lines(store, shown):
        out.print(escape(line), highlight=False)
    if unfit := list(shipped_configurations.lines(shown.baseline.unfit if shown.baseline else ())):
        out.print("configurations of the file's own list that no baseline is made of:", highlight=False)
        for line in unfit:
            out.print(escape(f"  {line}"), highlight=False, soft_wrap=True)
    for uuid, (index, why) in hung.items():
        out.print(f"quarantined: GPU {index} ({uuid}): {escape(why)}", highlight=False)
    if lacking := sorted({name for c in store.calls(shown.id) for name in left_out(c.prompt)}):
        out.print(f"left out of prompts for want of --prompt-tokens: {', '.join(lacking)}", highlight=False)
    for parent, move, reason in store.skipped(shown.id):
        out.print(f"not applied to {parent[:8]}: {move}: {escape(reason)}", highlight=False)
    if shown.summary:
        outcome(store, shown.id, out)
    elif shown.state == "waiting":
        judge = shown.settings.judge
        where = [*model_usage.folders(shown), *([judge.partition(":")[2]] if judge.startswith("spool:") else [])]
        places = escape(" or ".join(where))
        out.print(f"waits for an answer in {places}; then pgo-agent resume {shown.id}", highlight=False)
    elif shown.state in ("running", "interrupted"):
        out.print(f"not complete: pgo-agent resume {shown.id}", highlight=False)


def lessons(store: Store, file: Path, json_lines: bool) -> None:
    """Print the lessons of earlier runs that a new run of a target would get: a list of lines with `json_lines`."""
    subject = target.read(target_file.locate(file))
    lines = learned.as_lines(history.tried(store, history.Subject(subject.digest, subject.asked)), ())
    if json_lines:
        print(json.dumps(lines))
        return
    for line in lines or [f"no run of {file} in this workspace has come to a verdict"]:
        display.output().print(escape(line), highlight=False)


def outcome(store: Store, name: str, console: Console | None = None) -> None:
    """Print the result of a run: a ranking or a table of times; of a check, the verdict on its candidate."""
    ended, out = store.run(name), console or display.output()
    summary = ended.summary
    if ended.facts.given:
        _checked(store, ended, next(iter(store.candidates(ended.id)), None), out)
    if summary is not None and not (ended.facts.given and isinstance(summary, RankedRun)):
        display.result(summary, ended.id, ended.state, out)
    if ended.facts.expected is not None:
        out.print(cost_view.compared(ended.facts.expected, cost.of(store, ended)), highlight=False)


def _checked(store: Store, checked: Run, c: Candidate | None, out: Console) -> None:
    name = checked.facts.given[0].name
    if c is None or c.verdict is None:
        out.print(f"{escape(name)} was not judged: no time was left; give it more --minutes", highlight=False)
        return
    stage = c.stage or ""
    said = display.meaning(c.verdict, stage, checked.facts.against)
    display.verdict(name, said, c.verdict, stage, c.reason or "", out)
    _covered(out, store.evidence(checked.id, c.id))
    _stages(out, store.evidence(checked.id, c.id))
    _errors(out, store.evidence(checked.id, c.id))
    _builds(out, c, PUBLIC)
    _against(out, store.evidence(checked.id, c.id))
    compare = f"   pgo-agent diff shipped {c.id[:8]} --run {checked.id}" if c.has_bundle else ""
    out.print(f"more: pgo-agent show {checked.id} {c.id[:8]}{compare}", highlight=False)
    if c.verdict == "accepted":
        out.print(f"next: pgo-agent apply {checked.id}", highlight=False)


def candidate(store: Store, name: str, prefix: str, source: bool, as_json: bool) -> None:
    shown = store.run(name)
    c = store.candidate(shown.id, prefix)
    evidence = store.evidence(shown.id, c.id)
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
    far, ratio = pending.progress(store, shown.id).get(c.id, ("not judged", None))
    waits = f"{far} at {ratio:.3f}x, waits for more" if ratio else far
    verdict = f"{c.verdict} at {c.stage or '-'}: {escape(c.reason or '')}" if c.verdict else waits
    out.print(f"verdict: {verdict}", highlight=False)
    changes(store, shown, c, out)
    findings(store, c, out)


def changes(store: Store, run: Run, c: Candidate, out: Console) -> None:
    """Print the diff against the kernel as shipped; of TTGIR against what it replaces."""
    before = replaced(store, run, c)
    diff = "".join(difflib.unified_diff(before.splitlines(True), c.source.splitlines(True), "as shipped", "candidate"))
    coloured = Syntax(text.visible(diff), "diff", background_color="default", word_wrap=True)
    out.print(coloured if out.is_terminal else escape(diff))


def findings(store: Store, c: Candidate, out: Console) -> None:
    """Print a candidate's coverage, stages, builds, errors and times."""
    evidence = store.evidence(c.run, c.id)
    _covered(out, evidence)
    _stages(out, evidence)
    _builds(out, c)
    _errors(out, evidence)
    _against(out, evidence)


def replaced(store: Store, run: Run, c: Candidate) -> str:
    """Return the text that a candidate replaces: the kernel as shipped; for TTGIR that of a build, or empty."""
    if c.kind != "ttgir":
        return run.source
    digest = c.built.replaced.get("ttgir") if c.built else None
    return store.contents.get(digest, "ttgir").decode() if digest else ""


def _covered(out: Console, evidence: dict[str, Any]) -> None:
    """Print the verdict's coverage."""
    coverage = coverage_text.of(evidence)
    if coverage != NOTHING:
        out.print(f"covered: {escape(coverage.said())}", highlight=False, soft_wrap=True)


def _stages(out: Console, evidence: dict[str, Any]) -> None:
    """Print the verdict of every stage of the gate on a candidate, in order."""
    table = Table(title="stages", title_justify="left")
    for column in ("stage", "said", "seconds", "because"):
        table.add_column(column, justify="right" if column == "seconds" else "left", overflow="fold")
    for s in next((b["stages"] for b in evidence.values() if isinstance(b, dict) and "stages" in b), []):
        table.add_row(s["stage"], s["verdict"], f"{s['seconds']:.2f}", escape(s["reason"]))
    if table.row_count:
        out.print(table)


def _builds(out: Console, c: Candidate, cases: str = "") -> None:
    """Print what failed to build, and the builds of the cases whose names begin with `cases`."""
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
    """Print the error and its bound of every output that was compared with the reference."""
    table = Table(title="errors against the float64 reference", title_justify="left")
    for column in ("stage", "case", "output", "max error", "allowed", "mean error", "allowed"):
        words = column in ("stage", "case")
        table.add_column(column, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    bodies = {stage: body for stage, body in evidence.items() if isinstance(body, dict)}
    for stage, body in bodies.items():
        worst: dict[tuple[str, int], Comparison] = {}  # of the configurations of a case
        for c in comparisons(stage, body):
            place = (c.under, c.output)
            worst[place] = max(worst.get(place, c), c, key=lambda c: (bool(c.problem), c.share))
        for (case, i), c in worst.items():
            cells = (f"{x:.3g}" for x in (c.worst, c.worst_allowed, c.mean, c.mean_allowed))
            table.add_row(stage, case, str(i), *cells, style="red" if c.problem else None)
    if table.row_count:
        out.print(table)
    yardsticks = (c.yardstick for stage, body in bodies.items() for c in comparisons(stage, body))
    for yardstick in dict.fromkeys(filter(None, yardsticks)):
        out.print(f"allowed by the reference's own errors in {escape(yardstick)}", highlight=False)
    if cases := dict.fromkeys(c.case for stage, body in bodies.items() for c in comparisons(stage, body) if c.shipped):
        cases_said = escape(", ".join(cases))
        out.print(f"allowed, too: what the kernel as shipped errs on the same inputs: {cases_said}", highlight=False)


def _against(out: Console, evidence: dict[str, Any]) -> None:
    for stage, body in evidence.items():
        for which, look in (("", body), (" again", body.get("again", {}))) if isinstance(body, dict) else ():
            if on := look.get("taken_on"):
                out.print(f"{stage}: measured{which} on GPU {on['index']} ({on['uuid']})", highlight=False)
        if isinstance(body, dict) and "against" in body:
            against = ", ".join(f"{n} {display.interval(x)}" for n, x in body["against"].items())
            out.print(f"{stage}: {against}", highlight=False)


def _because(c: Candidate) -> str:
    """Return the bottleneck that led to a candidate; empty if none did."""
    return f"because: {bottlenecks.because(c.cites)}" if c.cites else ""


def _profile(k: StoredProfile) -> dict[str, Any]:
    return asdict(k) | {"summary": k.summary.as_json() if k.summary else None}
