"""What is timed together: scopes of a kernel, and the sets of them that one instrumented build records.

Triton's Proton dialect numbers scopes with eight bits, so a build has 256 at most. A record costs some six instructions
and a store, so a build should hold few: the classes below are kept apart as long as a build has no room for both.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.timeline import find_scopes
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind, Part
from pgo_agent.sandbox.ttgir.tree import Module

MOST = 256  # scopes of a build (Proton's Utility.cpp: 8 bits of an entry)
CLASSES = (
    frozenset({Kind.COPY_WAIT, Kind.BARRIER_WAIT, Kind.DOT_WAIT}),
    frozenset({Kind.DOT, Kind.COPY}),
    frozenset({Kind.BODY}),
    frozenset({Kind.LOAD, Kind.STORE}),
    frozenset({Kind.LOOP}),
)


class Why(StrEnum):
    CALLEE = "callee"  # a function that is not inlined: the passes take one function in a module
    CLUSTER = "cluster"  # blocks in clusters
    NOTHING = "nothing"  # a kernel without any part that is worth a time
    SCOPES = "scopes"  # more scopes than an entry can name
    PLACE = "place"  # the text has no such op: the scopes are of another module
    SHARED = "shared"  # no shared memory is left for the records
    SCRATCH = "scratch"  # more records than the device's scratch, or 32 bits, can address
    BUILD = "build"  # it does not compile
    LAUNCH = "launch"  # the judge does not accept it


@dataclass(frozen=True)
class Unsupported(Record):
    """Why something cannot be recorded."""

    why: Why
    told: str  # one line


@dataclass(frozen=True)
class Scope(Record):
    """A stretch of ops of one block, from the beginning of the first to the end of the last."""

    name: str  # unique in its module
    kind: Kind
    role: str  # kernel, default, partition0
    first: int  # line of the TTGIR where its first op begins, from 1
    last: int  # line where its last op begins
    source: str  # "kernel.py:20" where the TTGIR says so
    ops: tuple[str, ...]  # names of what it covers
    depth: int  # of loops


@dataclass(frozen=True)
class ScopeSet(Record):
    """What one instrumented build records."""

    scopes: tuple[Scope, ...]
    calibrates: bool = False  # holds empty scopes, of which the cost of a record is known

    @property
    def named(self) -> dict[str, Scope]:
        return {s.name: s for s in self.scopes}

    @property
    def inner(self) -> int:
        """How many it holds beside the roles."""
        return sum(s.kind is not Kind.ROLE for s in self.scopes)

    def halves(self) -> tuple["ScopeSet", ...]:
        """Return the same scopes in two builds, each with the roles; none where there is nothing to divide."""
        frames = tuple(s for s in self.scopes if s.kind is Kind.ROLE)
        inner = tuple(s for s in self.scopes if s.kind is not Kind.ROLE)
        middle = len(inner) // 2
        return tuple(replace(self, scopes=frames + h) for h in (inner[:middle], inner[middle:])) if middle else ()


def obstacle(module: Module) -> Unsupported | None:
    """Return why nothing of a module can be recorded; None when something can."""
    callee = next((f for f in module.functions if f is not module.kernel), None)
    if callee is not None:
        name = next((w for w in callee.words if w.startswith("@")), "a function")
        return Unsupported(Why.CALLEE, f"{name} (line {callee.line}) is not inlined")
    ctas = module.op.integer("ttg.num-ctas") or 1
    if ctas > 1:
        return Unsupported(Why.CLUSTER, f"clusters of {ctas} blocks are not recorded")
    empty = not find_scopes.parts(module)
    return Unsupported(Why.NOTHING, "the kernel waits for nothing and computes nothing") if empty else None


def plan_scopes(module: Module, per_pass: int) -> list[ScopeSet]:
    """Return the sets of scopes that time all parts of a kernel: `per_pass` in each, and one for every role.

    The first one calibrates: empty scopes where records are dense. [] where `obstacle` says why.
    """
    if obstacle(module):
        return []
    scopes = scopes_of(module)
    frames = tuple(s for s in scopes if s.kind is Kind.ROLE)
    empties = _empty(scopes)[: max(0, MOST - len(frames))]
    room = max(1, min(per_pass, MOST - len(frames)))
    inner = [[s for s in scopes if s.kind in kinds] for kinds in CLASSES]
    chunks = [c[i : i + room] for c in inner for i in range(0, len(c), room)]
    return [ScopeSet(frames + empties, True), *(ScopeSet(frames + tuple(p)) for p in _packed(chunks, room))]


def scopes_of(module: Module) -> tuple[Scope, ...]:
    """Return every scope that a kernel could be timed by, in the order of the text."""
    return tuple(_scope(p) for p in find_scopes.parts(module))


def _scope(p: Part) -> Scope:
    name = f"{p.role} {p.kind} {p.ops[0].line}"
    names = tuple(o.name for o in p.ops)
    return Scope(name, p.kind, p.role, p.ops[0].line, p.ops[-1].line, p.source, names, p.depth)


def _empty(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """For each role one before its deepest part that is no loop: there its records are as dense as it gets."""
    deepest: dict[str, Scope] = {}
    for s in scopes:
        if s.kind not in (Kind.ROLE, Kind.LOOP) and s.depth > deepest.get(s.role, replace(s, depth=-1)).depth:
            deepest[s.role] = s
    return tuple(
        replace(s, name=f"{s.role} {Kind.EMPTY} {s.first}", kind=Kind.EMPTY, last=s.first, ops=())
        for s in deepest.values()
    )


def _packed(chunks: Iterable[list[Scope]], room: int) -> list[list[Scope]]:
    """First fit, in order."""
    packed: list[list[Scope]] = []
    for chunk in chunks:
        fits = next((p for p in packed if len(p) + len(chunk) <= room), None)
        if fits is None:
            packed.append(list(chunk))
        else:
            fits += chunk
    return packed
