"""Reads the corpora of the gate: one file an entry, as a whole kernel part or as an edit of a target's.

An entry opens with comments `# key: value`:
  does     one line: what it does, for cheats also why it might pay
  target   a file of corpus/targets/, or a shipped kernel with what that folder puts in place of its cases
  of       in place of a target: another entry, GROUP/NAME, of whose kernel part the edits of a `NAME.edit` are
  stage    of a bad one: what may refuse it: read, build, screen, inspect, deadlock, synchronisation, race, offsets,
           time, or results, which the interpreter compares without a GPU and smoke, numerics and confirm with one
  needs    gpu: nothing without a GPU can show that it is bad
  results  right: its results are what they should be, and it must not be called faster
  ideas    of a cheat: the numbers of the ideas that it tries, as in the table of impossible.toml
  vary     NAME: a | b | c: one entry for each, with NAME replaced in the text (the line may be repeated)
`NAME.py` holds a kernel part, `NAME.edit` SEARCH/REPLACE edits of the target's, `NAME.ttgir` one kernel's TTGIR as
`check` takes it (its comments begin with //, those of the head first), `NAME.ttgir-edit` edits of the TTGIR that the
target builds (see `ttgir_edits.py`). Nothing here is ever imported. An entry that does not fit its target any more
raises BrokenCorpus: it must not pass for a refused one.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.commands import check
from pgo_agent.agent.kernel_part import blocks
from pgo_agent.agent.llm.replies import parse, search_replace
from pgo_agent.agent.llm.replies.errors import BadReply
from pgo_agent.agent.run import target_file
from pgo_agent.agent.run.facts import GivenFile
from pgo_agent.evals.gate import ttgir_edits
from pgo_agent.evals.gate.ttgir_edits import BrokenCorpus
from pgo_agent.sandbox import target
from pgo_agent.sandbox.target import Target

CORPUS = Path(__file__).parents[1] / "corpus"
GROUPS = ("cheats", "wrong", "races", "honest")
STAGES = ("read", "build", "screen", "inspect", "deadlock", "synchronisation", "race", "offsets", "results", "time")
LONGEST = 24  # characters of varied values that make a name
_KEYS = {"does", "target", "stage", "needs", "results", "ideas"}
_SUFFIXES = (".py", ".edit", ".ttgir", ".ttgir-edit")
_HEADER = re.compile(r"(?:#|//) (\w+|vary \w+): (.+)")


@dataclass(frozen=True)
class Entry:
    """One candidate of the corpora, and what must become of it."""

    name: str  # group/file, and [varied values]
    does: str
    target: str
    text: str  # a kernel part, edits, or TTGIR
    suffix: str  # .py, .edit, .ttgir or .ttgir-edit, which says what the text is
    stages: tuple[str, ...]  # of a bad one: which may refuse it; empty: it is honest
    gpu: bool  # nothing without a GPU can decide it
    right: bool  # its results are right: it must not be called faster
    ideas: tuple[int, ...]

    @property
    def group(self) -> str:
        return self.name.split("/")[0]

    @property
    def honest(self) -> bool:
        return self.group == "honest"


# entries --------------------------------------------------------------------------------------------------------------


def load(corpus: Path = CORPUS) -> list[Entry]:
    """Return all entries, group by group. Raises BrokenCorpus."""
    files = [f for g in GROUPS for f in sorted((corpus / g).iterdir()) if f.suffix in _SUFFIXES]
    entries = [e for f in files for e in _read(f)]
    names = [e.name for e in entries]
    if len(set(names)) < len(names):
        raise BrokenCorpus(f"two entries of one name: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    return entries


def _read(file: Path) -> Iterator[Entry]:
    where = f"{file.parent.name}/{file.stem}"
    head, text = _cut(file.read_text(), file.suffix == ".ttgir")
    fields = {k: v for k, v in head if not k.startswith("vary ")}
    suffix = file.suffix
    if "of" in fields:
        fields["target"], text = _derived(file.parents[1], where, fields.pop("of"), text)
        suffix = ".py"
    vary = [(k.removeprefix("vary "), v) for k, v in head if k.startswith("vary ")]
    if fields.keys() - _KEYS or not {"does", "target"} <= fields.keys() or text.startswith("#"):
        raise BrokenCorpus(f"{where}: its head must have `does` and `target`, and nothing but {', '.join(_KEYS)}, vary")
    stages = tuple(s.strip() for s in fields.get("stage", "").split(",") if s.strip())
    if bool(stages) == (file.parent.name == "honest") or set(stages) - set(STAGES):
        raise BrokenCorpus(f"{where}: a bad entry names stages among {', '.join(STAGES)}, an honest one none")
    choices = list(itertools.product(*(v.split(" | ") for _, v in vary)))
    short = max(len(", ".join(c)) for c in choices) <= LONGEST
    for number, values in enumerate(choices, 1):
        variant = ", ".join(values) if short else str(number)
        yield Entry(
            f"{where}[{variant}]" if variant else where,
            fields["does"],
            fields["target"],
            _varied(where, text, {n: v.strip() for (n, _), v in zip(vary, values, strict=True)}),
            suffix,
            stages,
            fields.get("needs") == "gpu",
            fields.get("results") == "right",
            tuple(int(n) for n in fields.get("ideas", "").split(",") if n.strip()),
        )


def _derived(corpus: Path, where: str, of: str, edits: str) -> tuple[str, str]:
    """Return the target of another entry, and that entry's kernel part with these edits."""
    base = next((f for f in (corpus / f"{of}.py", corpus / f"{of}.edit") if f.is_file()), None)
    if base is None:
        raise BrokenCorpus(f"{where}: there is no entry {of}")
    head, text = _cut(base.read_text(), False)
    fields = dict(head)
    target, part = _derived(corpus, of, fields["of"], text) if "of" in fields else (fields["target"], text)
    try:
        return target, search_replace.apply_edits(part, search_replace.read(edits))
    except BadReply as e:
        raise BrokenCorpus(f"{where} does not fit {of} any more: {e}") from None


def _cut(text: str, ttgir: bool) -> tuple[list[tuple[str, str]], str]:
    """Head and text. TTGIR may go on with comments of its own kind."""
    lines = text.split("\n")
    matches = itertools.takewhile(lambda m: m is not None, map(_HEADER.fullmatch, lines))
    head = [m for m in matches if m and not (ttgir and m[1] in ("replaces", "at"))]
    return [(m[1], m[2].strip()) for m in head], "\n".join(lines[len(head) :])


def _varied(where: str, text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text, times = re.subn(rf"\b{name}\b", lambda _, v=value: v, text)  # type: ignore[misc]
        if not times:
            raise BrokenCorpus(f"{where}: nothing in it is called {name}")
    return text


# targets and candidates -----------------------------------------------------------------------------------------------


def place(name: str, folder: Path, corpus: Path = CORPUS) -> Target:
    """Return the target of that name, written into `folder`. Raises BrokenCorpus when there is none."""
    file = corpus / "targets" / f"{name}.py"
    if not file.is_file():
        raise BrokenCorpus(f"no target is called {name}")
    text = file.read_text()
    path = folder / f"{name}.py"
    path.write_text(text if "def kernel" in text else _with(target_file.locate(Path(name)), text))
    return target.read(path)


def _with(shipped: Path, instead: str) -> str:
    """Return a shipped kernel's text, with other statements for the names that `instead` defines."""
    new = {n: b.text for b in blocks(instead) for n in b.names if not b.imports}
    old = blocks(shipped.read_text())
    missing = new.keys() - {n for b in old for n in b.names}
    if missing:
        raise BrokenCorpus(f"{shipped} does not define {', '.join(sorted(missing))} any more")
    return "".join("\n\n" + new[n].strip("\n") + "\n" if (n := _only(b.names)) in new else b.text for b in old)


def _only(names: frozenset[str]) -> str:
    return next(iter(names)) if len(names) == 1 else ""


def given_file(entry: Entry, of: Target, folder: Path, own_text: Callable[[], str]) -> GivenFile:
    """Return the candidate as a run keeps it, read as `pgo-agent check` reads a file.

    `own_text` gives the TTGIR that the target builds, for edits of it. Raises BrokenCorpus when an edit does not
    fit, and UsageFault when the kernel part says something of the contract.
    """
    if entry.suffix != ".edit":
        of_ttgir = entry.suffix == ".ttgir-edit"
        file = folder / ("given.ttgir" if of_ttgir else f"given{entry.suffix}")
        file.write_text(ttgir_edits.edited(entry.name, entry.text, own_text()) if of_ttgir else entry.text)
        return replace(check.read(file, of), name=entry.name)
    parsed = parse(entry.text, of.source)
    if parsed.errors or len(parsed.sources) != 1:
        raise BrokenCorpus(f"{entry.name} does not fit {entry.target} any more: {'; '.join(parsed.errors)}")
    return GivenFile(entry.name, "source", parsed.sources[0])
