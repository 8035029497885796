"""Compares the winner with the baselines: resources of every kernel, and diffs of source and TTGIR.

Relies on `diff.py`. Equal diffs of several cases are shown once.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pgo_agent.agent.run import shipped_configurations
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views import diff, show
from pgo_agent.agent.views.diff import DiffSide, Kernel
from pgo_agent.agent.views.report.timings import LABELS, short
from pgo_agent.sandbox import devices, json_codec
from pgo_agent.sandbox.profile import nvidia

AROUND = 3  # lines of context in a diff


@dataclass(frozen=True)
class Resources:
    """One kernel of one case, as one side launches it."""

    side: str
    choice: str  # configuration
    registers: int  # of a thread
    shared: int  # bytes of a block
    spills: int  # bytes
    depth: int  # buffers of its pipeline
    blocks: int | None  # that an SM holds at a time; None when unknown
    warps: int | None  # likewise
    most_warps: int | None
    limiter: str  # the resource that limits them
    notes: str  # of ptxas
    instructions: int | None


@dataclass(frozen=True)
class Kernels:
    """A kernel of a case, side by side."""

    case: str
    kernel: str
    sides: tuple[Resources, ...]  # baselines, then the winner; those that launch it


@dataclass(frozen=True)
class Changed:
    """A diff of TTGIR."""

    kernel: str
    cases: tuple[str, ...]
    lines: tuple[str, ...]  # unified; empty: the same program
    differ: int


@dataclass(frozen=True)
class Comparison:
    resources: tuple[Kernels, ...]
    source: tuple[str, ...]  # unified diff from as shipped to the winner; of TTGIR, from the text that it replaces
    ttgir: tuple[Changed, ...]  # from as shipped to the winner


def comparison(store: Store, run: Run, winner: Candidate) -> Comparison:
    """Compare the winner with the baselines. Raises UsageFault and EnvironmentFault when builds are missing, Unreadable
    for TTGIR that Triton did not print.
    """
    picked = [shipped_configurations.AUTOTUNED] if run.baseline and shipped_configurations.differ(run.baseline) else []
    sides = [diff.side(store, run, name) for name in (*diff.BASELINES, *picked, winner.id)]
    return Comparison(
        tuple(_kernels(store, run, sides)),
        tuple(source(store, run, winner)),
        tuple(_ttgir(store, sides[0], sides[-1])),
    )


def source(store: Store, run: Run, c: Candidate) -> list[str]:
    """Return a unified diff from the kernel as shipped; for TTGIR, from the text that it replaces."""
    before, after = show.replaced(store, run, c), c.source
    names = "as shipped", f"candidate {c.id[:8]}"
    return list(difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names, n=AROUND))


def _kernels(store: Store, run: Run, sides: list[DiffSide]) -> Iterator[Kernels]:
    labels = [*(LABELS.get(s.name, s.name) for s in sides[:-1]), "winner"]
    for case in (c for c in sides[-1].cases if all(c in s.cases for s in sides)):
        launched = [s.cases[case] for s in sides]
        for name in dict.fromkeys(n for side in launched for n in side.kernels):
            pairs = zip(labels, launched, strict=True)
            rows = (_resources(store, run, label, x.choice, x.kernels[name]) for label, x in pairs if name in x.kernels)
            yield Kernels(short(case), name, tuple(rows))


def _resources(store: Store, run: Run, label: str, choice: str, k: Kernel) -> Resources:
    s, build = k.static, store.contents.build(k.build)
    room = nvidia.occupancy_of(devices.find(run.device), nvidia.resources_of(build)) if build and s else None
    return Resources(
        label,
        choice,
        int(s["registers"]),
        int(s["shared"]),
        int(s["spill_store_bytes"]),
        int(s["pipeline_depth"]),
        room.blocks if room else None,
        room.warps if room else None,
        room.most_warps if room else None,
        " and ".join(room.limiter) if room else "",
        ", ".join(s["notes"]),
        json_codec.from_json(int | None, s["sass"].get("all")),
    )


def _ttgir(store: Store, before: DiffSide, after: DiffSide) -> Iterator[Changed]:
    changes: dict[tuple[str, tuple[str, ...]], Changed] = {}
    for case in (c for c in after.cases if c in before.cases):
        for name, a, b in diff.pairs(before.cases[case], after.cases[case]):
            lines = tuple(diff.ttgir(store.contents, a, b, ("as shipped", "winner"), AROUND))
            differ = sum(line[0] in "+-" for line in lines[2:])
            change = changes.setdefault((name, lines), Changed(name, (), lines, differ))
            changes[name, lines] = replace(change, cases=(*change.cases, short(case)))
    yield from changes.values()
