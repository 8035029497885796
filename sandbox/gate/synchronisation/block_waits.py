"""Rule: a block that waits for other blocks must not wait forever, with as many blocks as a GPU holds at a time.

Executes the numbers of all blocks of a launch (`scalar_machine.py`) in the order in which GPUs start blocks, as many at
a time as are resident, in turns. If no block can go on, the launch hangs. If it ends, but not with one block at a time,
it needs blocks that are resident together, which only a cooperative launch promises.

Tries one order of turns, not all. Memory that the plan does not fill before the launch is unknown.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.gate.barriers import launches
from pgo_agent.sandbox.gate.synchronisation.finding import Finding, at
from pgo_agent.sandbox.gate.synchronisation.scalar_machine import Address, KernelRun, Lost, Memory, Run, Value, Wait
from pgo_agent.sandbox.gate.synchronisation.spin_loops import Spin
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir.dataflow import Flow
from pgo_agent.sandbox.ttgir.tree import Module, Op

RULE = "waiting"
MOST_OPS = 300_000  # executed for one launch, twice: one to two seconds each


@dataclass(frozen=True)
class WaitingLaunch:
    """One launch of a kernel, and the state before it."""

    step: Mapping[str, Any]  # of a plan
    first: Mapping[int, int]  # storage -> the number that the plan filled it with
    resident: int  # blocks that a GPU holds at a time
    cooperative: bool
    secret: bool = False  # of a held-out case: its numbers are never shown

    @property
    def blocks(self) -> int:
        return math.prod(self.step["grid"])


@dataclass(frozen=True)
class Ended:
    """How the blocks of a launch ended."""

    finished: int
    waits: Mapping[int, Wait]  # number of a block -> where it waits forever


def rule(module: Module, values: Flow, waits: list[Spin], launch: WaitingLaunch) -> tuple[list[Finding], int]:
    """Return what breaks the rule in one launch of a kernel with waiting loops, and how many blocks were run."""
    loops = {s.loop.line: at(module, s.loop) for s in waits}
    try:
        together = _Blocks(module, values, waits, launch).run(min(launch.resident, launch.blocks))
        if together.waits:
            return [Finding(Verdict.DEADLOCK, _stuck(module, together, launch, loops), RULE)], launch.blocks
        alone = together if launch.cooperative else _Blocks(module, values, waits, launch).run(1)
    except Lost as e:
        sentence = f"whether the loop at {next(iter(loops.values()))} waits for good is not known: {e}"
        return [Finding(Verdict.UNDECIDED, sentence, RULE)], 0
    if not alone.waits:
        return [], launch.blocks
    number, wait = next(iter(alone.waits.items()))
    who = "a block of a held-out case" if launch.secret else f"block {number} of {launch.blocks}"
    sentence = (
        f"{who} waits at {loops.get(wait.line, '')} for blocks that start after it, and the launch is not cooperative: "
        f"nothing promises that they are resident together (an empty GPU holds {launch.resident})"
    )
    return [Finding(Verdict.UNDECIDED, sentence, RULE)], launch.blocks


def _stuck(module: Module, ended: Ended, launch: WaitingLaunch, loops: Mapping[int, str]) -> str:
    number, wait = next(iter(ended.waits.items()))
    where = f"at {loops.get(wait.line, '')}"
    if launch.secret:
        return f"in a held-out case all blocks that are resident wait for good {where}"
    held = f"of {launch.blocks} blocks {ended.finished} end, and {len(ended.waits)} that are resident wait for good"
    names = zip((a.name.removeprefix("%") for a in module.kernel.defined), _arguments(launch.step), strict=True)
    of = {v.storage: (name, v.offset or 0) for name, v in names if isinstance(v, Address)}
    flag = next((f" for {of[a.storage][0]}[{(a.offset or 0) - of[a.storage][1]}]" for a, _ in wait.seen), "")
    return f"{held}: block {number}{flag} {where}, which nobody is left to change"


class _Blocks:
    """All blocks of a launch, a limited number at a time."""

    def __init__(self, module: Module, values: Flow, waits: list[Spin], launch: WaitingLaunch) -> None:
        self.memory = Memory(launch.first)
        grid = launch.step["grid"]
        matter = matters(values, waits)
        self.kernel = KernelRun(module, self.memory, _arguments(launch.step), tuple(grid), matter, MOST_OPS)
        self.todo = _programs(grid)
        self.running: dict[int, Run] = {}
        self.ready: deque[int] = deque()
        self.asleep: dict[int, Wait] = {}
        self.waiting: dict[Address, deque[int]] = defaultdict(deque)  # blocks that read there, oldest first
        self.stood: dict[int, Wait] = {}
        self.finished = 0

    def run(self, places: int) -> Ended:
        """Run until all blocks ended, or none can go on. Raises Lost."""
        while True:
            while len(self.running) < places and (following := next(self.todo, None)):
                self.running[following[0]] = self.kernel.block(following[1])
                self.ready.append(following[0])
            if not self.ready:
                self.ready += [n for n, w in self.asleep.items() if w.over(self.memory)]
                for n in self.ready:
                    del self.asleep[n]
            if not self.ready:
                return Ended(self.finished, dict(self.asleep))
            self.turn(self.ready.popleft())

    def turn(self, number: int) -> None:
        """Run a block until it waits or ends; wake the blocks that wait for what it changed."""
        wait = next(self.running[number], None)
        if wait is None:
            del self.running[number]
            self.finished += 1
        elif wait == self.stood.get(number) and not wait.over(self.memory):
            self.asleep[number] = wait
            for address, _ in wait.seen:
                self.waiting[address].append(number)
        else:
            self.stood[number] = wait
            self.ready.append(number)
        for address in self.memory.changed:
            self.wake(self.waiting[address])
        self.memory.changed.clear()

    def wake(self, line: "deque[int]") -> None:
        """Wake the first block whose wait is over. If it takes a lock, the others stay asleep."""
        while line and (line[0] not in self.asleep or self.asleep[line[0]].over(self.memory)):
            number = line.popleft()
            if self.asleep.pop(number, None):
                self.ready.appendleft(number)
                return


def _programs(grid: list[int]) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Return the blocks in the order in which they start: x fastest."""
    x, y, z = grid
    return ((n, (n % x, n // x % y, n // (x * y))) for n in range(x * y * z))


def _arguments(step: Mapping[str, Any]) -> list[Value]:
    """Return the numbers and addresses of a launch; a tensor's address begins at its offset."""
    arguments: list[Value] = []
    for v in launches.values(step["signature"], step["args"]):
        if isinstance(v, dict) and "t" in v:
            arguments.append(Address(v["t"], v["offset"]))
        elif isinstance(v, dict) and "f" in v:
            arguments.append(float.fromhex(v["f"]))
        else:
            arguments.append(int(v) if isinstance(v, int) else None)
    return arguments


def matters(values: Flow, waits: list[Spin]) -> set[int]:
    """Return the operations that wait or touch what is waited for, those around them, and what they depend on."""
    touched = {id(t.op): t.roots for t in values.touches()}
    flags = frozenset[int]().union(*(touched.get(id(r), frozenset()) for s in waits for r in s.reads))
    relevant = [id(op) for op in values.order if touched.get(id(op), frozenset()) & flags or _waits(op, waits)]
    held = {*relevant, *(holder for op in relevant for holder, _ in values.paths[op])}
    inside = {id(op) for op in values.order if op.name in _ENDS and any(h in held for h, _ in values.paths[id(op)])}
    jumps = {id(op) for op in values.order if op.name.startswith("cf.")}
    return values.needed(held | inside | jumps)


_ENDS = frozenset({"scf.yield", "scf.condition"})


def _waits(op: Op, waits: list[Spin]) -> bool:
    return any(op is s.loop for s in waits)
