"""The last session of a run: times every side, library and, if asked, the compiled reference, case by case.

Relies on `session.py` for the timing and on `compiled_reference.py`. Libraries are timed where they can run.
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


def run(bench: TargetSession, sides: Mapping[str, Pick], cases: Sequence[str], compiled: bool) -> Timed:
    """Return the times of all sides. `compiled`: also of the compiled reference, and the cases where there is none."""
    times, uncompiled = dict[str, dict[str, tuple[float, ...]]](), dict[str, str]()
    with compiled_reference.compiling() if compiled else nullcontext():
        for case in cases:
            beside = libraries(bench, case)
            if compiled:
                function, why = compiled_reference.of(bench, case)
                beside |= {COMPILED: function} if function else {}
                uncompiled |= {case: why} if why else {}
            timed = timer.rounded(time_sides(bench, sides, case, ROUNDS, "final", beside))
            times[case] = {side: tuple(ms) for side, ms in timed.items()}
    return Timed(times, uncompiled if compiled else None)


def libraries(bench: TargetSession, case: str) -> dict[str, Library]:
    """Return the target's own libraries that are installed and can run a case on this device."""
    listed: Mapping[str, Library] = getattr(bench.target, "LIBRARIES", {})
    return {name: function for name, function in listed.items() if _works(bench, function, case)}


def _works(bench: TargetSession, function: Library, case: str) -> bool:
    try:
        function(**bench.inputs(case, 0))
        if bench.device.type == "cuda":
            torch.cuda.synchronize()
    except Exception:  # not installed, not for this GPU, or not for this case: each library says it in its own way
        return False
    return True
