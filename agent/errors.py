"""Exit codes, and which fault ends with which. Faults themselves are in `sandbox/errors.py`."""

from enum import IntEnum

from pgo_agent.sandbox.errors import EnvironmentFault, Fault, UsageFault


class Exit(IntEnum):
    DONE = 0  # an accepted improvement; without a GPU, a completed ranking
    NONE_FOUND = 1  # the run completed and found no improvement
    USAGE = 2  # the command line, the configuration or the target file is wrong
    ENVIRONMENT = 3  # the machine lacks something: a sandbox, disk space, a working GPU
    BUDGET = 4  # the budget was spent before anything was judged
    INTERRUPTED = 130  # Ctrl-C; the run can be resumed


def exit_code(fault: Fault) -> Exit:
    if isinstance(fault, UsageFault):
        return Exit.USAGE
    return Exit.ENVIRONMENT if isinstance(fault, EnvironmentFault) else Exit.NONE_FOUND
