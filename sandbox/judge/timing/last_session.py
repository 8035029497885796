"""The last session of a run: times every side, library and, if asked, the compiled reference, case by case.

Relies on `session.py` for the timing and on `compiled_reference.py`. Libraries are timed where they can run; it is said
where one cannot, and where its results would not be accepted from a candidate.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch
from pgo_agent.sandbox.judge.questions import Timed
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession
from pgo_agent.sandbox.judge.timing import compiled_reference, timer
from pgo_agent.sandbox.judge.timing.session import Library, time_sides
from pgo_agent.sandbox.target import COMPILED

ROUNDS = 30
LONGEST = 200  # characters of what a library says


def run(bench: TargetSession, sides: Mapping[str, Pick], cases: Sequence[str], compiled: bool) -> Timed:
    """Return the times of all sides. `compiled`: also of the compiled reference, and the cases where there is none."""
    times, uncompiled = dict[str, dict[str, tuple[float, ...]]](), dict[str, str]()
    said = dict[str, dict[str, str]]()
    with compiled_reference.compiling() if compiled else nullcontext():
        for case in cases:
            beside, notes = libraries(bench, case)
            for name, note in notes.items():
                said.setdefault(name, {})[case] = note
            if compiled:
                function, why = compiled_reference.of(bench, case)
                beside |= {COMPILED: function} if function else {}
                uncompiled |= {case: why} if why else {}
            timed = timer.rounded(time_sides(bench, sides, case, ROUNDS, "final", beside))
            times[case] = {side: tuple(ms) for side, ms in timed.items()}
    return Timed(times, uncompiled if compiled else None, said or None)


def libraries(bench: TargetSession, case: str) -> tuple[dict[str, Library], dict[str, str]]:
    """Return the target's own libraries that are installed and can run a case on this device, and what is to be said of
    any: why it cannot, or why its results would not be accepted."""
    listed: Mapping[str, Library] = getattr(bench.target, "LIBRARIES", {})
    taken, notes = dict[str, Library](), dict[str, str]()
    for name, function in listed.items():
        outputs, why = _tried(bench, function, case)
        if why:
            notes[name] = f"not timed: {why}"
            continue
        taken[name] = function
        if problem := bench.problem(outputs, case):
            notes[name] = f"its results would not be accepted: {problem}"
    return taken, notes


def _tried(bench: TargetSession, function: Library, case: str) -> tuple[object, str]:
    """Return a library's results, or why there are none: it is not installed, not for this GPU, or not for this case,
    which each library says in its own way."""
    inputs = bench.inputs(case, bench.seeds[case])
    try:
        outputs = function(**inputs)
        if bench.device.type == "cuda":
            torch.cuda.synchronize()
    except Exception as e:
        return None, " ".join(f"{type(e).__name__}: {e}".split())[:LONGEST]
    return outputs, ""
