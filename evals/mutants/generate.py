"""Which mutants there are: every change of every base, made from the bases' texts whenever they are asked for.

A base is a target (of evals/corpus or of this folder: shipped kernels among them), an honest entry of the corpora, or
the TTGIR that a target builds. Nothing here runs a kernel; the TTGIR comes from the boxed tracer.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.gate import entries as corpora
from pgo_agent.evals.gate import run
from pgo_agent.evals.gate.entries import CORPUS, STAGES, Entry
from pgo_agent.evals.mutants import source, ttgir
from pgo_agent.evals.mutants.edits import Change
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.temporary_folders import temporary_folder

OWN = Path(__file__).parent  # its folder `targets` holds small targets
TTGIR = ("gemm", "fa_fwd", "attention_specialized")  # targets whose TTGIR is changed, too
Named = Callable[[str, str], bool]  # whether a base, by its name and its target, is meant
OPERATORS = sorted({*source.OPERATORS, *ttgir.OPERATORS})


@dataclass(frozen=True)
class Base:
    """A text that is right."""

    name: str  # rms_norm, honest/norm_double, ttgir/gemm
    target: str
    corpus: Path  # in whose folder `targets` the target is
    text: str
    suffix: str  # .py or .ttgir, as of an entry

    @property
    def mutants(self) -> list["Mutant"]:
        """All of them, in the order of the text."""
        changes = ttgir.mutants(self.text) if self.suffix == ".ttgir" else source.mutants(self.text)
        return [Mutant(self, change) for change in changes]


@dataclass(frozen=True)
class Mutant:
    """A base with one change; without one, the base itself: what its mutants are compared with."""

    base: Base
    change: Change | None

    @property
    def name(self) -> str:
        return f"{self.base.name}:{self.change.name if self.change else 'itself'}"

    @property
    def text(self) -> str:
        return self.change.text if self.change else self.base.text

    @cached_property
    def digest(self) -> str:
        """Of its text: a result holds for this very text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def entry(self) -> Entry:
        """As the gate takes it: whichever stage refuses it will do."""
        does = f"{self.change.before} -> {self.change.after}" if self.change else "nothing is changed"
        stages = () if self.change is None else STAGES
        return Entry(
            f"mutants/{self.name}", does, self.base.target, self.text, self.base.suffix, stages, False, False, ()
        )


def bases(part: str | None, settings: RunSettings) -> list[Base]:
    """Return the bases that a part of their name, or their target, names; all without one. NAME: is that base alone.

    Raises BrokenCorpus, UsageFault when there is none, and the faults of a sandbox for those of TTGIR.
    """
    name_part = part.partition(":")[0] if part else ""
    alone = part is not None and ":" in part

    def named(name: str, target: str) -> bool:
        return name == name_part if alone else name_part in name or name_part == target

    with temporary_folder("mutants") as place:
        result = [*targets(place, named), *honest(place, named)]
        result += [_ttgir(t, place, settings) for t in TTGIR if named(f"ttgir/{t}", t)]
    if not result:
        raise UsageFault(f"nothing that is mutated is called {part}", "give a part of a name, or a target")
    return result


def targets(place: Path, named: Named) -> Iterator[Base]:
    """Yield the targets of that name, put into a folder. Raises BrokenCorpus."""
    for corpus in (CORPUS, OWN):
        for name in sorted(f.stem for f in (corpus / "targets").glob("*.py")):
            if named(name, name):
                yield Base(name, name, corpus, corpora.place(name, place, corpus).source, ".py")


def honest(place: Path, named: Named) -> Iterator[Base]:
    """Yield the honest entries of that name, with their targets put into a folder. Raises BrokenCorpus."""
    for entry in corpora.load():
        if entry.honest and entry.suffix in (".py", ".edit") and named(entry.name, entry.target):
            text = corpora.given_file(entry, corpora.place(entry.target, place), place, str).source
            yield Base(entry.name, entry.target, CORPUS, text, ".py")


def _ttgir(name: str, place: Path, settings: RunSettings) -> Base:
    text = run.own_ttgir(corpora.place(name, place), settings, ContentStore(place / "contents"))
    return Base(f"ttgir/{name}", name, CORPUS, text, ".ttgir")


def chosen(
    listed: Sequence[Base], part: str | None, operators: Sequence[str], sample: int | None, seed: int
) -> list[Mutant]:
    """Return the mutants of these bases by these operators (any without one), or so many of them: as many of each base.

    Raises UsageFault when there is none, or no operator of that name.
    """
    unknown = set(operators) - set(OPERATORS)
    if unknown:
        raise UsageFault(f"no operator is called {', '.join(sorted(unknown))}", f"there are {', '.join(OPERATORS)}")
    place = part.partition(":")[2] if part else ""
    by_base = [
        [m for m in b.mutants if m.change and m.change.name.startswith(place) and _by(m.change, operators)]
        for b in listed
    ]
    if not any(by_base):
        raise UsageFault("nothing can be changed in that way", "name other operators, or another part")
    return [m for ms in by_base for m in ms] if sample is None else _sample(by_base, sample, seed)


def _by(change: Change, operators: Sequence[str]) -> bool:
    return not operators or change.operator in operators


def _sample(by_base: Sequence[Sequence[Mutant]], count: int, seed: int) -> list[Mutant]:
    """One of each base in turn, in an order that the seed and the names decide."""

    def drawn(m: Mutant) -> str:
        return hashlib.sha256(f"{seed} {m.name}".encode()).hexdigest()

    decks = sorted((sorted(ms, key=drawn) for ms in by_base if ms), key=lambda ms: drawn(ms[0]))
    dealt = [deck[n] for n in range(max(map(len, decks))) for deck in decks if n < len(deck)]
    return dealt[:count]
