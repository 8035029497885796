"""Tries a kernel's barriers under small numbers of loop iterations and says what was found.

With S slots in the largest barrier array, every loop with barriers runs 0, 1, S - 1, S + 1 and 2S + 1 times (from the
third independent loop on 2S + 1 times only): the ends of the pipeline, an end in the second turn and one in the third,
whose parities differ, and every slot around twice and more. Arguments are chosen so that this happens (`solve`); the
rest of a run follows from them. "No finding" says that these runs end, in whatever order the steps of their roles come,
and that of the slots which they are seen to use none is written while it is read; no more than that.
"""

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from pgo_agent.sandbox.gate.deadlock import machine, solve
from pgo_agent.sandbox.gate.deadlock.finding import Finding, Kind
from pgo_agent.sandbox.gate.deadlock.terms import Known
from pgo_agent.sandbox.gate.deadlock.unroll import Unroller
from pgo_agent.sandbox.gate.deadlock.values import Choose, Impossible, Undecided
from pgo_agent.sandbox.ttgir import reader, types
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module

PACKAGES = (Path(__file__).parent, Path(reader.__file__).parent)
MOST_OPS = 1_000_000  # executed in all runs of one kernel: some ten seconds
SEVERITY = list(Kind)  # as they are listed


@cache
def version() -> str:
    """Changes whenever a finding might: a hash of this package's source and of the reader's."""
    sources = [p.read_bytes() for package in PACKAGES for p in sorted(package.glob("*.py"))]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]


def read_and_simulate(text: str) -> Finding:
    """The same for the text of a kernel; one that cannot be read is undecided."""
    try:
        return simulate(reader.parse(text))
    except Unreadable as e:
        return Finding(Kind.UNDECIDED, f"the TTGIR cannot be read: {e}")


def simulate(module: Module) -> Finding:
    """The gravest finding of all runs; undecided when a run could not be followed and no other found anything."""
    slots = most_slots(module)
    wanted = sorted({0, 1, max(slots - 1, 0), slots + 1, 2 * slots + 1})
    found: list[Finding] = []
    todo: list[tuple[Known, int]] = [({}, 0)]  # what was chosen, and for how many loops
    executed = 0
    while todo and (not found or found[-1].kind is not Kind.DEADLOCK):
        known, loops = todo.pop()
        unroller = Unroller(module, known)
        try:
            found.append(_run(unroller))
        except Choose as e:
            choices = _choices(e, wanted if loops < 2 else wanted[-1:], known)
            if not choices:
                found.append(Finding(Kind.UNDECIDED, f"{e} is not known: no arguments were found that settle it"))
            todo += [(c, loops + (e.kind == "trips")) for c in reversed(choices)]
        except (Undecided, RecursionError) as e:
            found.append(Finding(Kind.UNDECIDED, str(e)))
        except Impossible:
            pass
        executed += unroller.executed
        if todo and executed > MOST_OPS:
            found.append(Finding(Kind.UNDECIDED, f"{len(found)} runs take {executed} operations, and more are left"))
            break
    bad = sorted((f for f in found if f.found), key=lambda f: SEVERITY.index(f.kind))
    unknown = [f for f in found if f.kind is Kind.UNDECIDED]
    return (bad or unknown or [_nothing(len(found), wanted)])[0]


def most_slots(module: Module) -> int:
    """The length of the largest array of barriers, without barriers that of the largest array of buffers; or 1."""
    allocated = [types.shaped(t) for op in module.walk() if op.name == "ttg.local_alloc" for t in op.result_types]
    arrays = [s for s in allocated if s and len(s.shape) > 1]
    barriers = [s.shape[0] for s in arrays if s.element == "i64"]
    return max(barriers or [s.shape[0] for s in arrays if len(s.shape) > 2], default=1)


def _run(unroller: Unroller) -> Finding:
    program = unroller.program()
    finding = machine.run(program)
    finding = min([finding, *unroller.findings[:1]], key=lambda f: SEVERITY.index(f.kind))
    if not finding.found:
        return finding
    when = [f"{n} iteration{'s' * (n != 1)} of the loop at {at}" for at, n in unroller.loops.items()]
    chosen = [f"{leaf.name} = {value}" for leaf, value in unroller.known.items()]
    trace = ("with " + ", ".join(when),) * bool(when) + ("for example with " + ", ".join(chosen),) * bool(chosen)
    return replace(finding, trace=finding.trace + trace)


def _choices(e: Choose, wanted: list[int], known: Known) -> list[solve.Choice]:
    if e.kind == "trips":
        return solve.trips(e.term, wanted, known)
    if e.kind == "flag":
        return solve.flags(e.term, [s * n for n in wanted for s in (1, -1)], known)
    return solve.values(e.term, wanted, known)


def _nothing(runs: int, wanted: list[int]) -> Finding:
    if not runs:
        return Finding(Kind.UNDECIDED, "the kernel's own assumptions exclude every run that was tried")
    times = ", ".join(map(str, wanted[:-1])) + f" and {wanted[-1]}"
    in_runs = f"{runs} run{'s' * (runs > 1)}"
    said = f"no hang and no mismatch in {in_runs}, loops {times} times where that could be chosen; not a proof"
    return Finding(Kind.NONE, said)
