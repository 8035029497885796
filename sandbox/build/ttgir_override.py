"""A TTGIR text in place of a kernel's own: which kernel of a traced launcher it replaces, and whether it may.

The launcher is traced as ever, then one of its texts is exchanged before anything is compiled: plans, grids and
arguments stay those of the launcher. Name, argument list, cluster size and the layouts of host descriptors must stay,
for the launch is made for them. Relies on Triton's parser (`sandbox/ttgir/triton_parser.py`) to read the text and to
print it anew.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.build.trace_and_compile import Traced
from pgo_agent.sandbox.gate.reason import shown
from pgo_agent.sandbox.ttgir import normalize, reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.triton_parser import Answer, bare

REPLACES = re.compile(r"^// replaces: ([0-9a-f]{6,64})\s*$", re.M)
OWN = "own"  # the tracer's names are hashes
LISTED = 6  # kernels that a message lists
Ask = Callable[[str], Answer]


class Refused(Exception):
    """Why a text cannot stand in for a kernel: `kind` is rejected or build_error, `line` one of the text."""

    def __init__(self, kind: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.line = kind, message, line


@dataclass(frozen=True)
class ReplaceableKernel:
    """A kernel of the launcher that a text could replace."""

    key: str  # of its build, as `show --ttgir` names it
    theirs: str  # the tracer's name for it
    text: str
    used: tuple[str, ...]  # "case: configuration" for each plan that launches it


def exchange(
    parts: list[Traced], text: str, key_of: Callable[[bytes, Mapping[str, Any]], str], ask: Ask, known: str = ""
) -> tuple[str, str] | None:
    """Put `text` into the traced parts in place of the kernel that it replaces; return the keys of both builds.

    A case that launches the kernel keeps no plan that does not. The kernel's own text stays in the parts, launched by
    nobody, so that it is compiled, too. `known`: the key of that kernel, by a build of other cases; then None where
    these do not launch it. Raises Refused.
    """
    places = list(_places(parts, key_of))
    if known and known not in {p.key for p in places}:
        return None
    answer = ask(text)
    if answer.error:
        raise Refused("build_error", str(answer.error), answer.error.line or None)
    place = next(p for p in places if p.key == known) if known else _place(places, text, answer)
    before = ask(place.text)
    for what, ours, theirs in _fixed(answer, before):
        if ours != theirs:
            message = f"{what} must stay as the launch has it: {theirs}, not {ours}"
            raise Refused("rejected", message[:600])
    own = next(p["kernels"][place.theirs] for p in parts if place.theirs in p["kernels"])
    options = own["options"]
    new = _same_lines(text, answer.printed).encode()
    for part in parts:
        _put(part, place.theirs, new)
    parts[0]["kernels"][OWN], parts[0]["texts"][OWN] = own, place.text.encode()
    return place.key, key_of(new, options)


def _same_lines(text: str, printed: str) -> str:
    """Return the text as it was given, where the reader understands it as MLIR does: then findings name its own
    lines."""
    plain = bare(text)
    try:
        same = normalize.digest(reader.parse(plain)) == normalize.digest(reader.parse(printed))
    except Unreadable:
        same = False
    return plain if same else printed


def named(text: str) -> str:
    """Return the key that a text says it replaces; empty when it says nothing."""
    match = REPLACES.search(text)
    return match[1] if match else ""


def _places(parts: list[Traced], key_of: Callable[[bytes, Mapping[str, Any]], str]) -> Iterator[ReplaceableKernel]:
    texts = {k: (p["texts"][k], p["kernels"][k]["options"]) for p in parts for k in p["kernels"]}
    used: dict[str, list[str]] = {}
    for part in parts:
        for kind, traced in part["traced"].items():
            for case, entries in traced.items():
                for entry in entries:
                    for theirs in _launched(entry):
                        used.setdefault(theirs, []).append(f"{kind}/{case}{_configured(entry)}")
    for theirs, (text, options) in texts.items():
        yield ReplaceableKernel(key_of(text, options), theirs, text.decode(), tuple(used.get(theirs, ())))


def _place(places: list[ReplaceableKernel], text: str, answer: Answer) -> ReplaceableKernel:
    key = named(text)
    if key:
        matching = [p for p in places if p.key.startswith(key)]
        if not matching:
            raise Refused("rejected", f"the launcher launches no kernel {key}; {_listed(places)}")
        return matching[0]
    same = [p for p in places if _header(p.text) == _header(answer.printed)]
    if len(same) == 1:
        return same[0]
    if not same:
        name = _header(answer.printed)[0]
        raise Refused("rejected", f"the launcher launches no kernel with the name and arguments of {name}")
    raise Refused("rejected", f"{len(same)} kernels have its name and arguments: {_listed(same)}")


def _listed(places: list[ReplaceableKernel]) -> str:
    listed = "; ".join(f"// replaces: {p.key[:12]} ({_launched_in(p)})" for p in places[:LISTED])
    more = f"; and {len(places) - LISTED} more" if len(places) > LISTED else ""
    return f"say which in a line of the text: {listed}{more}"


def _launched_in(place: ReplaceableKernel) -> str:
    """Return where a kernel is launched; proposers do not learn the names of held-out cases."""
    return shown(min(place.used, key=lambda u: u.startswith("HELD_OUT/"))) if place.used else "not launched"


def _fixed(answer: Answer, before: Answer) -> Iterator[tuple[str, object, object]]:
    """Yield what a launch depends on, in the new text and in the old one."""
    (name, arguments), (own_name, own_arguments) = _header(answer.printed), _header(before.printed)
    yield "the kernel's name", name, own_name
    yield "its arguments", arguments, own_arguments
    for what, field in (("the size of its clusters", "num_ctas"), ("the layout of its descriptors", "tensordesc_meta")):
        yield what, answer.facts.get(field), before.facts.get(field)


def _header(text: str) -> tuple[str, str]:
    """Name and argument list (types and attributes) of the public function."""
    try:
        module = reader.parse(text)
    except Unreadable as e:
        raise Refused("rejected", str(e), e.line) from None
    return module.name, normalize.arguments(module.kernel)


def _put(part: Traced, theirs: str, text: bytes) -> None:
    if theirs not in part["texts"]:
        return
    part["texts"][theirs] = text
    for traced in part["traced"].values():
        for case, entries in traced.items():
            changed = [e for e in entries if theirs in _launched(e)]
            traced[case] = changed or entries


def _launched(entry: Mapping[str, Any]) -> set[str]:
    return {s["kernel"] for s in entry["plan"]["steps"] if "kernel" in s} if "plan" in entry else set()


def _configured(entry: Mapping[str, Any]) -> str:
    words = [f"{k}={v}" for config in entry["configs"].values() for k, v in config.items()]
    return f" at {' '.join(words)}" if words else ""
