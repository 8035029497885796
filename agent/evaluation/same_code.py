"""Whether two revisions of a kernel are the same code, and where not: TTGIR, machine code, registers, launches.

The same statements need no look, the same trace no compiler (`fingerprint.py`); otherwise both are built and compared:
machine code without the names of kernels, TTGIR in its normal form. It launches nothing and needs no GPU.
"""

import contextlib
import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pgo_agent.agent.evaluation import given_file
from pgo_agent.agent.evaluation.baseline_builds import SAMPLE
from pgo_agent.agent.evaluation.duplicates import nameless
from pgo_agent.agent.run.regression import CodeCompared, KernelChange, Resources
from pgo_agent.sandbox.build import fingerprint
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built, Choice
from pgo_agent.sandbox.build.trace_and_compile import Cases
from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.coverage import PUBLIC
from pgo_agent.sandbox.threads import threads
from pgo_agent.sandbox.ttgir import normalize, reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable

TEXT, TRACE, CODE = (
    "the kernel parts hold the same statements",
    "as traced, TTGIR, options and launches are equal, and so is the machine code that a compiler makes of them",
    "TTGIR and machine code are equal, whatever the kernels are called",
)
Identity = tuple[str, str, tuple[str, ...]]  # case, plan and machine code, TTGIR of each kernel


@dataclass(frozen=True)
class Revision:
    """A revision of a kernel: what a person calls it, and its text with the contract."""

    name: str
    source: str


def compare(builder: Builder, base: Revision, new: Revision, public: tuple[str, ...]) -> CodeCompared | None:
    """Return how the code of two revisions compares; None where the new one does not build for every case.

    `public`: the public cases to compare, empty for all. Raises UsageFault where the base does not build.
    """
    if given_file.same(base.source, new.source):
        return CodeCompared(True, TEXT, 0, 0)
    cases: Cases = {"CASES": list(public) or None, "HELD_OUT": None}
    with threads(2) as pool:
        texts = (base.source, new.source)
        ours, theirs = pool.map(lambda text: fingerprint.taken(builder, text, cases, True), texts)
    if ours == theirs and ours.launches and all(f"{PUBLIC}{c}" in ours.launches for c in public):
        return CodeCompared(True, TRACE, len(ours.launches), ours.configurations)
    return _by_builds(builder, base, new, cases)


def _by_builds(builder: Builder, base: Revision, new: Revision, cases: Cases) -> CodeCompared | None:
    first = _built(builder, base, cases)
    _must_build(base, first, cases)
    second = _built(builder, new, cases)
    if not second.ok or first.choices.keys() - second.choices.keys():
        return None
    left_out = sum(max(0, n - len(b.choices.get(c, ()))) for b in (first, second) for c, n in b.listed.items())
    ours, theirs = (_identities(builder.contents, b) for b in (first, second))
    count = sum(map(len, first.choices.values()))
    lost = Counter(_failures(first)) != Counter(_failures(second))
    same, differing = Counter(ours.values()) == Counter(theirs.values()), _differing(ours, theirs)
    changes = tuple(_changes(builder.contents, first, second, ours, theirs)) if differing else ()
    told = same and not left_out and not lost
    return CodeCompared(told, CODE if told else "", len(first.choices), count, differing, left_out, changes)


def _built(builder: Builder, revision: Revision, cases: Cases) -> Built:
    return builder.build(revision.source, cases, SAMPLE, builder.cores, untrusted=True, sample=True)


def _must_build(base: Revision, built: Built, cases: Cases) -> None:
    sets = built.described.get("sets", {})
    wanted = [f"{s}/{n}" for s, asked in cases.items() for n in (asked or sets.get(s) or ())]
    missing = [c for c in wanted if c not in built.choices]
    if built.ok and not missing:
        return
    if unknown := [n for n in cases["CASES"] or () if built.ok and n not in sets.get("CASES", ())]:
        raise UsageFault(f"no public case is called {', '.join(unknown)}", f"the file has: {', '.join(sets['CASES'])}")
    failure = next((f for f in built.failures if not missing or f.case in missing or not f.case), None)
    why = " ".join((failure.message if failure else "nothing was built").split())[:500]
    at = f" (line {failure.line})" if failure and failure.line else ""
    raise UsageFault(
        f"{base.name} does not build, so nothing can be compared with it: {why}{at}",
        "compare with a revision that builds, or judge the new file alone: check FILE --target FILE",
    )


def _failures(built: Built) -> Iterator[tuple[str, str, str]]:
    return ((f.case, f.kind, f.message) for f in built.failures)


# what is the same -----------------------------------------------------------------------------------------------------


def _identities(contents: ContentStore, built: Built) -> dict[tuple[str, str], Identity]:
    """Return (case, configuration) -> what is launched there, without the names of kernels."""
    manifest, plans = contents.manifest(built.bundle), nameless(contents, built.bundle)
    texts = {k: _unnamed(contents, d["files"]["ttgir"], d["name"]) for k, d in manifest["kernels"].items()}
    return {
        (case, o.label): (case, plans[case, o.label], tuple(texts[k] for k in o.kernels))
        for case, options in built.choices.items()
        for o in options
    }


@lru_cache(maxsize=512)
def _unnamed(contents: ContentStore, digest: str, name: str) -> str:
    """Return the normal form of a kernel's TTGIR without its name."""
    text = contents.get(digest, "ttgir").decode(errors="replace")
    with contextlib.suppress(Unreadable):  # then it is compared as it stands
        text = normalize.text(reader.parse(text))
    return text.replace(f"@{name}", "@kernel")


def _differing(ours: dict[tuple[str, str], Identity], theirs: dict[tuple[str, str], Identity]) -> int:
    """Return how many configurations of one side the other does not have; of the side with more of them."""
    mine, others = Counter(ours.values()), Counter(theirs.values())
    return max((mine - others).total(), (others - mine).total())


# what is not ----------------------------------------------------------------------------------------------------------


def _changes(
    contents: ContentStore,
    first: Built,
    second: Built,
    ours: dict[tuple[str, str], Identity],
    theirs: dict[tuple[str, str], Identity],
) -> Iterator[KernelChange]:
    """Yield the kernels that differ, by public case and configuration; the same configuration is one of its name."""
    for place in sorted(dict.fromkeys((*ours, *theirs)), key=lambda p: list(first.choices).index(p[0])):
        if place[0].startswith(PUBLIC) and ours.get(place) != theirs.get(place):
            before, after = (_launched(contents, b, place) for b in (first, second))
            for n in range(max(len(before), len(after))):
                one, other = (side[n] if n < len(side) else None for side in (before, after))
                if one is None or other is None or one != other:
                    yield _change(place, one, other)


Launched = tuple[str, str, str, Static]  # name, TTGIR, code, static profile


def _launched(contents: ContentStore, built: Built, place: tuple[str, str]) -> list[Launched]:
    choice = next((o for o in built.choices.get(place[0], ()) if o.label == place[1]), Choice("", {}, (), ""))
    kernels = contents.manifest(built.bundle)["kernels"]
    named = [(k, kernels[k]) for k in dict.fromkeys(choice.kernels)]
    return [(d["name"], _unnamed(contents, d["files"]["ttgir"], d["name"]), built.codes[k], built.statics[k])
            for k, d in named]  # fmt: skip


def _change(place: tuple[str, str], one: Launched | None, other: Launched | None) -> KernelChange:
    before, after = (side[1].splitlines() if side else [] for side in (one, other))
    lines = sum(line[0] in "+-" for line in list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:])
    name = (other or one or ("",))[0]
    case = place[0].removeprefix(PUBLIC)
    return KernelChange(case, place[1], name, _resources(one), _resources(other), lines)


def _resources(side: Launched | None) -> Resources | None:
    if side is None:
        return None
    static = side[3]
    return Resources(static.get("registers", 0), static.get("spill_store_bytes", 0), static.get("shared", 0))
