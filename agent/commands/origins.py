"""Where the functions of a target came from: `init` writes it down, and `apply --to-source` writes changes back there.

A function that a run changed is looked for in the files that the target names, by its text as `init` took it. A file
that changed since is refused, and so is what stands in the target alone. It reads text and runs nothing.
"""

import builtins
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.kernel_part import Block, blocks, kernel_part
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import TargetMoved, UsageFault

_LINE = re.compile(r"^# Taken from (.+), sha256 ([0-9a-f]{64})$", re.M)
BY_HAND = "`pgo-agent diff` shows the change: make it by hand"


@dataclass(frozen=True)
class Origin:
    path: Path
    digest: str  # of its text when `init` read it


def lines(part: str, files: Iterable[Path], to: Path, repository: Path) -> list[str]:
    """Return what a target at `to` says of the files that hold its functions. `part`: the kernel part."""
    texts = {b.text.strip() for b in blocks(part) if not b.imports}
    result = list[str]()
    for path in sorted({f.resolve() for f in files}):
        text = target.text(path)
        if any(b.text.strip() in texts for b in blocks(text)):
            near = path.is_relative_to(repository) and to.resolve().is_relative_to(repository)
            name = os.path.relpath(path, to.resolve().parent) if near else path
            result.append(f"# Taken from {name}, sha256 {_digest(text)}")
    return result


def recorded(text: str, of: Path) -> list[Origin]:
    """Return what the text of a target at `of` says."""
    return [Origin((of.resolve().parent / name).resolve(), digest) for name, digest in _LINE.findall(text)]


def changed(subject: target.Target, winner: str) -> tuple[Path, str, str]:
    """Return the file that a winner's changes belong in, its text, and its text with them.

    Raises UsageFault for what belongs in no file or in several, TargetMoved for a file that changed since.
    """
    origins = recorded(subject.contract, subject.contract_path)
    if not origins:
        raise UsageFault(
            f"{subject.path} does not say what it was taken from", "`init FILE -- PROGRAM` writes that down"
        )
    before = [b for b in blocks(kernel_part(subject.source)) if not b.imports]
    after = blocks(kernel_part(winner))
    old, new = _by_names(before), _by_names([b for b in after if not b.imports])
    edits = {text: block for names in old.keys() & new.keys() for text, block in _exchanged(old[names], new[names])}
    added = [b for names, several in new.items() if names not in old for b in several]
    if not edits:
        raise UsageFault("the candidate changes no function of the target", BY_HAND)
    texts = {o: target.text(o.path) for o in origins}
    found = [o for o, text in texts.items() if set(edits) & {b.text.strip() for b in blocks(text)}]
    if moved := next((o.path for o in found or origins if _digest(texts[o]) != o.digest), None):
        raise TargetMoved(f"{moved} changed since `init` read it", "restore it, or write the target again")
    if len(found) != 1:
        raise UsageFault(f"its changes belong in {len(found)} of the files that the target was taken from", BY_HAND)
    (origin,) = found
    text = texts[origin]
    return origin.path, text, _edited(origin.path, text, edits, added, [b for b in after if b.imports])


def _by_names(listed: Iterable[Block]) -> dict[frozenset[str], list[Block]]:
    """Return blocks that define the same names together: a function, and the assignments that make a kernel of it."""
    found = dict[frozenset[str], list[Block]]()
    for block in (b for b in listed if b.names):
        found.setdefault(block.names, []).append(block)
    return found


def _exchanged(old: Sequence[Block], new: Sequence[Block]) -> Iterator[tuple[str, Block]]:
    """Yield the texts that are to be exchanged, each with what takes its place. Where there are more or fewer new ones,
    these take the place of the first, and nothing that of the others."""
    if len(old) == len(new):
        yield from ((o.text.strip(), n) for o, n in zip(old, new, strict=True) if o.text.strip() != n.text.strip())
        return
    loads = frozenset[str]().union(*(b.loads for b in new))
    whole = replace(new[0], text="\n".join(b.text.strip("\n") for b in new), loads=loads)
    yield old[0].text.strip(), whole
    yield from ((b.text.strip(), replace(b, text="", loads=frozenset())) for b in old[1:])


def _edited(path: Path, text: str, edits: Mapping[str, Block], added: Sequence[Block], imports: Sequence[Block]) -> str:
    """Return the text with functions replaced, and with what they need before the first of them."""
    parts = blocks(text)
    places = {i: edits[b.text.strip()] for i, b in enumerate(parts) if b.text.strip() in edits}
    if missing := [", ".join(sorted(b.names)) for b in edits.values() if b not in places.values()]:
        raise UsageFault(f"{path.name} does not hold {', '.join(missing)}, which the candidate changes", BY_HAND)
    names = set[str]().union(*(b.names for b in parts))
    if clash := {n for b in added for n in b.names & names}:
        raise UsageFault(f"{path.name} has another {', '.join(sorted(clash))}", BY_HAND)
    new = [*places.values(), *added]
    wanted = set[str]().union(*(b.loads for b in new)) - names.union(*(b.names for b in new)) - set(dir(builtins))
    brought = [b for b in imports if b.names & wanted]
    if lost := wanted - set[str]().union(*(b.names for b in brought)):
        raise UsageFault(f"{path.name} has no {', '.join(sorted(lost))}, which the candidate uses", BY_HAND)
    first = min(places)
    result = [_replaced(b.text, places[i].text) if i in places else b.text for i, b in enumerate(parts)]
    head = "".join(b.text.strip("\n") + "\n" for b in brought)
    helpers = "".join(f"\n\n{b.text.strip(chr(10))}\n" for b in added)
    above = "".join(result[:first])
    if head or helpers:
        above = above.rstrip("\n") + "\n" + head + helpers
    whole = above + "".join(result[first:])
    return whole.rstrip("\n") + text[len(text.rstrip("\n")) :]  # blocks end with a line of their own


def _replaced(old: str, new: str) -> str:
    """Return the new text with the empty lines that the old one had around it; nothing for none."""
    if not new:
        return ""
    before, after = len(old) - len(old.lstrip("\n")), len(old) - len(old.rstrip("\n"))
    return "\n" * before + new.strip("\n") + "\n" * after


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
