"""Exit codes, and which fault ends with which. Faults themselves are in `sandbox/errors.py`."""

from enum import IntEnum

from pgo_agent.sandbox.errors import EnvironmentFault, Fault, UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict

FAULTY = frozenset(
    {
        Verdict.WRONG,
        Verdict.RACE,
        Verdict.DEADLOCK,
        Verdict.TIMEOUT,
        Verdict.CRASHED,
        Verdict.BUILD_ERROR,
        Verdict.REJECTED,
        Verdict.CHEATING,
    }
)  # verdicts that say that something is wrong with a candidate; a slow one is not wrong


class Exit(IntEnum):
    DONE = 0  # an accepted improvement; without a GPU, a completed ranking; of a check: its results were found right
    NONE_FOUND = 1  # the run completed and found no improvement; of a check: something is wrong with the candidate
    USAGE = 2  # the command line, the configuration or the target file is wrong
    ENVIRONMENT = 3  # the machine lacks something: a sandbox, disk space, a working GPU
    BUDGET = 4  # the budget was spent before anything was judged; of a check: its candidate could not be judged
    WAITING = 5  # --no-wait: a model's reply or a verdict is not there yet; the run can be resumed
    INTERRUPTED = 130  # Ctrl-C; the run can be resumed


def exit_code(fault: Fault) -> Exit:
    if isinstance(fault, UsageFault):
        return Exit.USAGE
    return Exit.ENVIRONMENT if isinstance(fault, EnvironmentFault) else Exit.NONE_FOUND


def check_code(verdict: str | None, against: str = "") -> Exit:
    """How a check ends, by the verdict on its candidate; None: there was no time to judge it.

    What was only built is not right: nobody compared its results. `against`: a kernel that it must not be slower than.
    """
    if against and verdict == Verdict.SLOWER:
        return Exit.NONE_FOUND
    if verdict in (None, Verdict.UNDECIDED, Verdict.BUILT):
        return Exit.BUDGET
    return Exit.NONE_FOUND if verdict in FAULTY else Exit.DONE
