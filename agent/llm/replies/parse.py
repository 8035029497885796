"""Parses a whole reply: its candidates, each in its own form, and the faults of those that cannot be read.

The docstring of the package lists the forms. An unreadable candidate does not affect the others. Text is data here:
comments and strings in the code do not change how a reply is read.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.llm.replies import (
    fences,
    launch_configs,
    merge_contract,
    search_replace,
    split,
    ttgir,
    unified_diff,
    whole_kernel,
)
from pgo_agent.agent.llm.replies.errors import TOO_DEEP, BadReply, Nothing
from pgo_agent.agent.llm.replies.fences import SCRIPT, Fence
from pgo_agent.agent.llm.replies.split import Piece
from pgo_agent.agent.llm.replies.ttgir import Shown
from pgo_agent.sandbox.ttgir.edits.verify import Ask

_LAUNCH = ("launch", "json", "jsonc", "json5", "config", "configs")
_TTGIR, _DIFF = ("ttgir", "mlir"), ("diff", "patch", "udiff")
_KINDS = {
    "launch": "launch",
    "lines": "launch",
    "ttgir": "ttgir",
    "snippet": "ttgir",
    SCRIPT: "ttgir",
}  # of forms; others are source
_NOTHING = "no code found: put edits, or the whole kernel part in one fenced block"

Error = tuple[str, BadReply]  # kind of the candidate, and its fault


@dataclass(frozen=True)
class Proposed:
    source: str  # a whole file, or a whole TTGIR text with its head
    kind: str  # launch, source, gluon or ttgir
    rationale: str


@dataclass(frozen=True)
class Unread:
    """A candidate that could not be read."""

    text: str  # as the reply has it
    error: str
    form: str = "source"  # that it seems to be: launch, source or ttgir
    repairable: bool = False  # whether it proposes anything


@dataclass(frozen=True)
class Parsed:
    candidates: list[Proposed] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def sources(self) -> list[str]:
        return [c.source for c in self.candidates]

    @property
    def errors(self) -> list[str]:
        """One line each; if there are candidates, these are notes."""
        return [*(u.error for u in self.unread), *self.notes]


@dataclass(frozen=True)
class Base:
    """What a reply changes."""

    source: str  # the kernel file whose kernel part was shown
    shown: Shown | None  # the kernel whose TTGIR was shown
    ask: Ask | None  # Triton's parser; None: scripts are applied without it


def parse(text: str, source: str, shown: Shown | None = None, ask: Ask | None = None) -> Parsed:
    """Return what a reply proposes in place of the file `source`, or of the TTGIR that was shown.

    Never raises for the content of the reply; raises what `ask` raises.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model's odd escapes are no news for the person at the terminal
        try:
            text = fences.plain(text)
        except BadReply as e:
            return Parsed(unread=[Unread("", str(e))])
        reading = _Reading(Base(source, shown, ask))
        reading.reply(text)
    return reading.parsed


class _Reading:
    """Reads a reply; `parsed` is the result so far."""

    def __init__(self, base: Base) -> None:
        self.base, self.parsed = base, Parsed()
        self._sources = dict[int, str]()  # candidates that are one source each, by their numbers

    def reply(self, text: str) -> None:
        pieces = [Piece(0, "", text)] if whole_kernel.is_whole(text) else split.cut(text) or [Piece(0, "", text)]
        headed = sum(p.number > 0 for p in pieces)
        for piece in pieces[: split.MOST + (headed < len(pieces))]:
            if piece.number or not headed:
                self._piece(piece)
            elif (result := self._read_piece(piece))[0]:  # above the first heading: mostly prose
                self._take(piece, *result)
        if headed > split.MOST:
            self.parsed.notes.append(f"the reply has {headed} candidates: the first {split.MOST} are read")

    def _piece(self, piece: Piece) -> None:
        proposed, errors, notes = self._read_piece(piece)
        inner = split.again(piece) if errors and not proposed else []
        for p in inner[: split.MOST]:
            self._take(p, *self._read_piece(p))
        if not inner:
            self._take(piece, proposed, errors, notes)

    def _take(self, piece: Piece, proposed: list[Proposed], errors: list[Error], notes: list[str]) -> None:
        sources = set(self.parsed.sources)
        if len(proposed) == 1 and proposed[0].kind in ("source", "gluon"):
            self._sources[piece.number] = proposed[0].source
        self.parsed.candidates.extend(c for c in proposed[: split.MOST - len(sources)] if c.source not in sources)
        where = f"candidate {piece.number}: " if piece.number else ""
        if proposed:
            notes = [*(f"{where}{e}" for _, e in errors), *notes]
        elif errors:
            form, error = next(((f, e) for f, e in errors if not isinstance(e, Nothing)), errors[0])
            repairable = not isinstance(error, Nothing)
            self.parsed.unread.append(Unread(piece.text.strip("\n"), f"{where}{error}", form, repairable))
        self.parsed.notes.extend(n for n in notes if n not in self.parsed.notes)

    def _read_piece(self, piece: Piece) -> tuple[list[Proposed], list[Error], list[str]]:
        """The candidates of a piece, the faults of others in it, and notes."""
        proposed: dict[str, Proposed] = {}
        errors, notes = list[Error](), list[str]()
        for form in _forms(piece.text):
            try:
                for source, kind, more in self._read(*form, of=piece.of):
                    proposed.setdefault(source, Proposed(source, kind, piece.rationale))
                    notes += more
            except BadReply as e:
                errors.append((_KINDS.get(form[0], "source"), e))
            except RecursionError:
                errors.append((_KINDS.get(form[0], "source"), BadReply(TOO_DEEP)))
            if len(proposed) >= split.MOST or len(errors) > split.MOST:
                break
        errors = [] if proposed and all(isinstance(e, Nothing) for _, e in errors) else errors
        return list(proposed.values()), errors, notes

    def _read(self, form: str, text: str, closed: bool, of: int) -> Iterator[tuple[str, str, list[str]]]:
        """The candidates of one form: text, kind and notes of each. `of`: the candidate that edits change; 0: the
        kernel. Raises BadReply."""
        if form in ("launch", "lines"):
            text = text if form == "launch" else launch_configs.within(text)
            for source in launch_configs.sources(self.base.source, launch_configs.read(text)):
                yield source, "launch", []
        elif form in ("ttgir", "snippet"):
            yield ttgir.from_text(text, self.base.shown), "ttgir", []
        elif form == SCRIPT:
            yield ttgir.from_script(text, self.base.shown, self.base.ask), "ttgir", []
        else:
            source, notes = merge_contract.candidate(self._part(form, text, closed, of), self.base.source)
            yield source, whole_kernel.kind(kernel_part(source)), notes

    def _part(self, form: str, text: str, closed: bool, of: int) -> str:
        """The new kernel part."""
        if form == "whole":
            return text
        if form == "code":
            raise whole_kernel.refused(text, closed)
        if form == "nothing":
            raise Nothing(_NOTHING)
        edits = search_replace.read(text) if form == "blocks" else unified_diff.read(text)
        if of and of not in self._sources:
            raise BadReply(f"it edits candidate {of}, of which the reply has no source that can be read")
        return search_replace.apply_edits(kernel_part(self._sources.get(of, self.base.source)), edits)


# forms ----------------------------------------------------------------------------------------------------------------


def _forms(text: str) -> list[tuple[str, str, bool]]:
    """The forms in a piece, each with its text and whether its fence is closed. Snippets beside them do not count."""
    if any(search_replace.begins(line) for line in text.split("\n")):
        return [("blocks", text, True)]
    fenced = fences.fences(text)
    forms = [(_form(f), f.code, f.closed) for f in fenced] if fenced else [(_bare(text), text, True)]
    sure = [f for f in forms if f[0] not in ("code", "snippet")]
    return sure or [max(forms, key=lambda f: (whole_kernel.KERNEL.search(f[1]) is not None, len(f[1])))]


def _form(fence: Fence) -> str:
    code = fence.code
    if fence.info == SCRIPT:
        return SCRIPT
    if fence.info in _TTGIR or ttgir.is_text(code):
        return "ttgir" if ttgir.is_text(code) else "snippet"
    if fence.info in _DIFF or (unified_diff.is_diff(code) and merge_contract.problem(code)):
        return "diff"
    if whole_kernel.is_whole(code):
        return "whole"
    if fence.info in _LAUNCH or launch_configs.is_launch(code):
        return "launch"
    return SCRIPT if not fence.info and ttgir.is_script(code) else "code"


def _bare(text: str) -> str:
    """The form of a piece without fences."""
    if whole_kernel.is_whole(text):
        return "whole"
    if ttgir.is_text(text):
        return "ttgir"
    if unified_diff.is_diff(text):
        return "diff"
    if ttgir.is_script(text):
        return SCRIPT
    return "lines" if launch_configs.within(text) else "nothing"
