"""Formats the numbers of a profile for a summary, so that `quoted_numbers.py` finds them again."""

import math

from pgo_agent.agent.profile.findings import Finding


def percent(share: float) -> str:
    return f"{share:.0%}"


def printed(x: float) -> str:
    """Return a whole number as it is, any other with about three digits."""
    if x == int(x):
        return str(int(x))
    return f"{x:.{min(6, max(0, 2 - math.floor(math.log10(abs(x)))))}f}"


def figure(f: Finding) -> str:
    """Return the number of a finding: a share in percent, any other as it is."""
    return percent(f.figure) if f.unit.startswith("of ") and 0 <= f.figure <= 1 else printed(f.figure)
