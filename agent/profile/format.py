"""Numbers of a profile as a summary prints them, so that `quoted_numbers.py` finds them again."""

import math

from pgo_agent.agent.profile.findings import Finding


def percent(share: float) -> str:
    return f"{share:.0%}"


def printed(x: float) -> str:
    """Whole numbers as they are, others with about three digits."""
    if x == int(x):
        return str(int(x))
    return f"{x:.{min(6, max(0, 2 - math.floor(math.log10(abs(x)))))}f}"


def figure(f: Finding) -> str:
    """A finding's number: a share in percent, all else as it is."""
    return percent(f.figure) if f.unit.startswith("of ") and 0 <= f.figure <= 1 else printed(f.figure)
