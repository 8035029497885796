"""`diff A B`: the differences between two candidates of a run: source, resources, SASS mix, and normalised TTGIR.

`side` returns what a candidate, or a baseline, launches in each case; reports compare sides as well.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.ttgir import normalize, reader
from rich.console import Console
from rich.markup import escape
from rich.table import Table

BASELINES = ("shipped", "tuned")
_RESOURCES = ("registers", "spill_store_bytes", "shared", "pipeline_depth", "dots", "notes")


@dataclass(frozen=True)
class Kernel:
    """A kernel that a case launches."""

    name: str  # of several builds of one function, all but the first with their number
    build: str  # key
    static: Static
    digest: str  # of its TTGIR

    def ttgir(self, contents: ContentStore) -> list[str]:
        """Return its normalised lines. Raises EnvironmentFault when the text is not in the content store."""
        return normalize.text(reader.parse(contents.get(self.digest, "ttgir").decode())).splitlines(True)


@dataclass(frozen=True)
class Launched:
    """What a case launches."""

    choice: str  # its configuration
    kernels: dict[str, Kernel]  # by name, in the order of their first launch


@dataclass(frozen=True)
class DiffSide:
    """One candidate, or a baseline."""

    name: str
    source: str
    cases: dict[str, Launched]


def side(store: Store, run: Run, name: str) -> DiffSide:
    """Return a baseline by its name, or a candidate by the beginning of its id, at the configurations that were judged.

    Raises UsageFault when it was not built, EnvironmentFault when its bundle is not in the content store.
    """
    if name in (*BASELINES, AUTOTUNED):
        if run.baseline is None:
            raise UsageFault(f"run {run.id} has no baseline yet", f"pgo-agent resume {run.id}")
        best = run.baseline.best(name).items()
        return DiffSide(name, run.source, {c: _launched(store.contents, p.bundle, p.choice, c) for c, p in best})
    candidate = store.candidate(run.id, name)
    if not candidate.has_bundle:
        raise UsageFault(f"candidate {candidate.id} was not built: {candidate.reason}", "choose another")
    built, labels = candidate.build, incumbent.chosen(store, candidate)
    cases = {c: _launched(store.contents, built.bundle, labels[c], c) for c in built.choices}
    return DiffSide(candidate.id[:8], candidate.source if candidate.kind != "ttgir" else run.source, cases)


def _launched(contents: ContentStore, bundle: str, label: str, case: str) -> Launched:
    manifest = contents.manifest(bundle)
    kernels: dict[str, Kernel] = {}
    for key in dict.fromkeys(s["kernel"] for s in manifest["plans"][case][label]["steps"] if "kernel" in s):
        kernel = manifest["kernels"][key]
        same = sum(k.static["name"] == kernel["name"] for k in kernels.values())
        name = f"{kernel['name']} ({same + 1})" if same else str(kernel["name"])
        build = contents.build(key)
        static: Static = {**(build["static"] if build else {}), "name": kernel["name"]}
        kernels[name] = Kernel(name, key, static, kernel["files"]["ttgir"])
    return Launched(label, kernels)


def pairs(left: Launched, right: Launched) -> Iterator[tuple[str, Kernel | None, Kernel | None]]:
    """Yield kernels by name from both sides, with None when only the other side launches it."""
    for name in dict.fromkeys([*left.kernels, *right.kernels]):
        yield name, left.kernels.get(name), right.kernels.get(name)


def ttgir(
    contents: ContentStore, a: Kernel | None, b: Kernel | None, names: tuple[str, str], around: int = 1
) -> list[str]:
    """Return a unified diff of normalised TTGIR; empty when both are the same program."""
    before, after = (k.ttgir(contents) if k else [] for k in (a, b))
    return list(difflib.unified_diff(before, after, *names, n=around))


def show(store: Store, run_name: str, a: str, b: str, whole: bool, out: Console) -> None:
    """Print the comparison of two candidates. `whole`: print the TTGIR diff itself, not only its length."""
    run = store.run(run_name)
    left, right = side(store, run, a), side(store, run, b)
    lines = difflib.unified_diff(left.source.splitlines(True), right.source.splitlines(True), left.name, right.name)
    out.print(escape("".join(lines)) or "the same source", highlight=False)
    for case in (c for c in left.cases if c in right.cases):
        for name, ours, theirs in pairs(left.cases[case], right.cases[case]):
            out.print(_resources(f"{case}  {name}", (left, right), case, ours, theirs))
            changed = ttgir(store.contents, ours, theirs, (left.name, right.name))
            if whole:
                out.print(escape("".join(changed)) or "the same TTGIR", highlight=False)
            else:
                out.print(_describe_length(changed), highlight=False)


def _describe_length(changed: Sequence[str]) -> str:
    """Return in words how long a TTGIR diff is."""
    count = sum(line[0] in "+-" for line in changed[2:])
    return f"TTGIR: {count} lines differ" if count else "TTGIR: the same"


def _resources(
    title: str, sides: tuple[DiffSide, DiffSide], case: str, left: Kernel | None, right: Kernel | None
) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for column in ("", *(s.name for s in sides)):
        table.add_column(column)
    table.add_row("configuration", *(escape(s.cases[case].choice) for s in sides))
    ours, theirs = (k.static if k else Static() for k in (left, right))
    for name in _RESOURCES:
        table.add_row(name, *(str(s.get(name, "-")) for s in (ours, theirs)))
    mixes: list[JsonObject] = [s.get("sass", {}) for s in (ours, theirs)]
    for op in sorted({*mixes[0], *mixes[1]} - {"loop"}):
        if mixes[0].get(op) != mixes[1].get(op):
            table.add_row(f"SASS {op}", *(str(mix.get(op, 0)) for mix in mixes))
    return table
