"""`diff A B`: what differs between two candidates of a run: source, resources, SASS mix, and normalised TTGIR."""

import difflib
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.store import Run, Store
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.ttgir import normal, reader
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_RESOURCES = ("registers", "spill_store_bytes", "shared", "pipeline_depth", "dots", "notes")


@dataclass(frozen=True)
class Side:
    """One candidate, or the kernel as shipped."""

    name: str
    source: str
    builds: dict[str, tuple[str, dict[str, Any], str]]  # case -> configuration, static profile, TTGIR

    def ttgir(self, case: str) -> list[str]:
        return normal.text(reader.parse(self.builds[case][2])).splitlines(True)


def side(store: Store, run: Run, name: str) -> Side:
    """`shipped`, or a candidate by the beginning of its id. Raises UsageFault when it was not built."""
    if name == "shipped":
        if run.baseline is None:
            raise UsageFault(f"run {run.id} has no baseline yet", f"pgo-agent resume {run.id}")
        points = {p["plan_id"]: p for p in run.baseline["points"]}
        best = {c: points[p["plan_id"]] for c, p in run.baseline["shipped"].items()}
        builds = {
            c: (p["choice"], p["statics"][0], _ttgir(store, p["bundle"], c, p["choice"])) for c, p in best.items()
        }
        return Side("shipped", run.source, builds)
    candidate = store.candidate(run.id, name)
    built = candidate.built or {}
    if not built.get("bundle"):
        raise UsageFault(f"candidate {candidate.id} was not built: {candidate.reason}", "choose another")
    builds = {
        c: (o[0]["label"], built["statics"][o[0]["kernels"][0]], _ttgir(store, built["bundle"], c, o[0]["label"]))
        for c, o in built["choices"].items()
    }
    return Side(candidate.id[:8], candidate.source if candidate.kind != "ttgir" else run.source, builds)


def _ttgir(store: Store, bundle: str, case: str, choice: str) -> str:
    manifest = store.shelf.manifest(bundle)
    key = next(s["kernel"] for s in manifest["plans"][case][choice]["steps"] if "kernel" in s)
    return store.shelf.get(manifest["kernels"][key]["files"]["ttgir"], "ttgir").decode()


def show(store: Store, run_name: str, a: str, b: str, ttgir: bool, out: Console) -> None:
    run = store.run(run_name)
    left, right = side(store, run, a), side(store, run, b)
    lines = difflib.unified_diff(left.source.splitlines(True), right.source.splitlines(True), left.name, right.name)
    out.print(escape("".join(lines)) or "the same source", highlight=False)
    for case in (c for c in left.builds if c in right.builds):
        out.print(_resources(case, left, right))
        changed = list(difflib.unified_diff(left.ttgir(case), right.ttgir(case), left.name, right.name, n=1))
        if ttgir:
            out.print(escape("".join(changed)) or "the same TTGIR", highlight=False)
        else:
            count = sum(line[0] in "+-" for line in changed[2:])
            out.print(f"TTGIR: {count} lines differ" if count else "TTGIR: the same", highlight=False)


def _resources(case: str, left: Side, right: Side) -> Table:
    table = Table(title=case, title_justify="left")
    for column in ("", left.name, right.name):
        table.add_column(column)
    (one, ours, _), (two, theirs, _) = left.builds[case], right.builds[case]
    table.add_row("configuration", one, two)
    for name in _RESOURCES:
        table.add_row(name, str(ours[name]), str(theirs[name]))
    for op in sorted({*ours["sass"], *theirs["sass"]} - {"loop"}):
        if ours["sass"].get(op) != theirs["sass"].get(op):
            table.add_row(f"SASS {op}", str(ours["sass"].get(op, 0)), str(theirs["sass"].get(op, 0)))
    return table
