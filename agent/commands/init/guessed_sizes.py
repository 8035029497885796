"""Sizes for SMALL and HELD_OUT of a captured target: guessed ones that inputs(), reference(), the launcher and its
kernels take, else those that the program gave.

Whether they do is tried: on stand-in tensors, and in Triton's interpreter, where a kernel reads or writes outside of
its tensors, or leaves results unwritten, at sizes that its blocks do not divide. All of it runs in the box.
"""

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pgo_agent.agent.commands.init import captured_target, command, program
from pgo_agent.agent.commands.init.captured_calls import Captured
from pgo_agent.agent.commands.init.captured_target import Sizing
from pgo_agent.agent.commands.init.cases import Guess
from pgo_agent.sandbox import json_codec, target
from pgo_agent.sandbox.build.trace_and_compile import trace
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle, UsageFault
from pgo_agent.sandbox.interpreter.as_shipped import Tried
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.temporary_folders import temporary_folder

TRIED = """
for case in (*CASES.values(), *SMALL.values(), *HELD_OUT.values()):
    values = inputs(case, torch.Generator())
    try:
        reference(**values)
    except NotImplementedError:
        break
"""  # whether inputs and reference take all sizes, in stand-in tensors
GUESSED: Mapping[str, None] = {"SMALL": None, "HELD_OUT": None}  # sections whose sizes are guesses
SECONDS, ALL_SECONDS = 15.0, 60.0  # of Triton's interpreter, for one try and for all
STARTING = 60.0  # seconds until it begins
LEAST = 4  # by how much small cases are made smaller, where the interpreter does not end them
FIRST = Sizing()


WRONG, UNKNOWN, UNWRITTEN, SOUND = 3, 2, 1, 0  # what sizes lead to, the worst first
SMALLEST = (Guess.RAGGED, Guess.HALVES)  # which have the small case EVEN


@dataclass(frozen=True)
class Found:
    """What came of a try, and the words for it."""

    kind: int = SOUND
    words: str = ""
    late: bool = False  # a small case was not ended
    even: bool = False  # it came of the case EVEN


@dataclass
class Trying:
    """The tries of one target."""

    captured: Captured
    to: Path
    box: Box
    device: Device
    notes: list[str] = field(default_factory=list)
    left: float = ALL_SECONDS  # seconds of the interpreter
    kept: "Found" = field(default_factory=lambda: Found(UNKNOWN))  # what the sizes that were written lead to
    _known: dict[str, str] = field(default_factory=dict)  # text -> why it is refused
    _unheld: set[str] = field(default_factory=set)  # texts whose launcher asks for what no plan can hold

    def write(self) -> list[str]:
        """Write the target with the first sizes that do; return notes where others were taken back, or none do.

        Raises UsageFault where the launcher does at all sizes what no plan can hold; then there is no target.
        """
        why = self._refused(self._text(FIRST))
        seen = [replace(FIRST, own=own, follow=f, how=Guess.SAME) for own in (True, False) for f in (True, False)]
        taken = [s for s in seen if not self._refused(self._text(s))] if why else seen
        if not taken:
            why = self._refused(as_seen := self._text(seen[0]))
            if as_seen in self._unheld:
                self.to.unlink()
                raise UsageFault(f"no plan can hold what {self.captured.name} does: {why}", "name another --launcher")
            command.save(self._text(FIRST), self.to)
            self.kept = Found(WRONG, why)
            return [f"the target fails even at the sizes that the program had: {why}"]
        tried = self._tried([FIRST, *_ladder(taken)])
        best = min(tried, key=lambda text: tried[text].kind)
        command.save(best, self.to)
        self.kept = kept = tried[best]
        return list(_said(kept, next((f for f in tried.values() if f.words and f.kind > kept.kind), None)))

    def _text(self, sizing: Sizing) -> str:
        return captured_target.write(self.captured, sizing, self._origins)

    @cached_property
    def _origins(self) -> list[str]:
        """What all of its texts say: whole files of a library are read for that."""
        return captured_target.origins_of(self.captured, self.to)

    def _tried(self, sizings: Sequence[Sizing]) -> dict[str, Found]:
        """Return texts with what they lead to, until one is sound or no time is left; at least one."""
        found, waiting = dict[str, Found](), deque(sizings)
        while waiting and (self.left > 0 or not found):
            sizing = waiting.popleft()
            text = self._text(sizing)
            if text in found or self._refused(text):
                continue
            one = found[text] = self._interpreted(text)
            if one.late and one.kind == SOUND and sizing.part < LEAST:
                found[text] = replace(one, kind=UNWRITTEN)  # smaller ones are better
                waiting.appendleft(replace(sizing, part=sizing.part * 2))
            elif one.kind == SOUND:
                break
            elif one.even:  # which others have, too
                same = (sizing.own, sizing.follow)
                waiting = deque(s for s in waiting if (s.own, s.follow) != same or s.how not in SMALLEST)
        return found

    def _refused(self, text: str) -> str:
        """Return why inputs(), reference() or the launcher raise for the sizes of a text, which is written for that."""
        if text not in self._known:
            target.parse(text, str(self.to))
            command.save(text, self.to)
            why, unheld = program.error_of(self.box, self.device.key, TRIED, self.to), False
            if not why:
                why, unheld = self._traced()
            self._known[text] = why
            self._unheld |= {text} if unheld else set()
        return self._known[text]

    def _traced(self) -> tuple[str, bool]:
        """Return why the launcher raises for a guessed size, such as one that 16 does not divide.

        And whether that is something which no plan can hold.
        """
        subject = target.read(self.to)
        with temporary_folder("init") as folder:
            traced = trace(self.box, ContentStore(folder), subject, self.device, subject.source, GUESSED, 1)
        cases = traced.get("traced", {})
        errors = [e[0]["error"] for by_name in cases.values() for e in by_name.values() if e and "error" in e[0]]
        if not errors:
            return "", False
        said, line, unheld = str(errors[0]["message"]).strip(), errors[0]["line"], errors[0]["kind"] == "refused"
        return self._in_their_file(said, line, subject.source) if unheld else said, unheld

    def _in_their_file(self, said: str, line: int | None, text: str) -> str:
        """Return what was refused with the line of the user's file in place of the target's, which is not kept."""
        if not line:
            return said
        wanted = text.splitlines()[line - 1].strip()
        alike = [n for n, own in enumerate(self.captured.text.splitlines(), 1) if own.strip() == wanted]
        where = f"{self.captured.path.name}, line {alike[0]}" if len(alike) == 1 else f"`{wanted}`"
        return f"{where}: {said.removeprefix(f'line {line}: ')}"

    def _interpreted(self, text: str) -> Found:
        """Return what the kernel as shipped does with the sizes of a text."""
        seconds, began = min(SECONDS, max(self.left, 1.0)), time.monotonic()
        with temporary_folder("init") as folder:
            (folder / "out").mkdir()
            (folder / "target.py").write_text(text, encoding="utf-8")
            request = {"device": self.device.key, "target": "target.py", "seconds": seconds}
            (folder / "request.json").write_text(json.dumps(request))
            self.box.run(box.AS_SHIPPED, folder, seconds + STARTING)
            try:
                cases = json_codec.from_json(dict[str, Tried], validate.answer(folder / "out" / "result.json"))
            except (BadBundle, OSError, ValueError, TypeError, KeyError):
                cases = {}  # nothing is known
        self.left -= time.monotonic() - began
        return _found(cases)


def _ladder(taken: Sequence[Sizing]) -> Iterator[Sizing]:
    """Yield sizes, the most telling first, with inputs and numbers as in those that are taken as they were seen."""
    for own in (True, False):
        alike = [s for s in taken if s.own == own]
        yield from (replace(s, less=less, how=Guess.RAGGED) for less in captured_target.RAGGED for s in alike)
    for how in (Guess.HALVES, Guess.MULTIPLES, Guess.ROWS, Guess.SAME):
        yield from (replace(sizing, how=how) for sizing in taken)


def _found(cases: Mapping[str, Tried]) -> Found:
    late = any(c.late for n, c in cases.items() if n != captured_target.HIDDEN)
    for name, case in cases.items():
        if case.error:
            return Found(WRONG, f"case {name}: {case.error}", late, name == captured_target.EVEN)
    for name, case in cases.items():
        if case.unwritten:
            words = f"case {name}: {case.unwritten} of {case.of} elements of the results are not written"
            return Found(UNWRITTEN, words, late, name == captured_target.EVEN)
    return Found(SOUND if cases else UNKNOWN, late=late)


def _said(kept: Found, worse: Found | None) -> Iterator[str]:
    if kept.kind == WRONG:
        yield f"the kernel as shipped fails on all sizes that were tried ({kept.words}): name others"
    elif worse is not None:
        yield f"guessed sizes were taken back, for the kernel as shipped does not take them ({worse.words})"
    if kept.kind == UNWRITTEN and kept.words:
        yield f"{kept.words}: let kernel() return what is written alone, or mask the rest there and in reference()"
