"""How many blocks of a kernel a GPU of its architecture holds at a time, from the table of devices."""

from collections.abc import Mapping
from typing import Any

from pgo_agent.sandbox.devices import DEVICES


def resident(kernel: Mapping[str, Any], static: Mapping[str, Any]) -> int:
    """Return the blocks on an empty GPU: the most of any device of that architecture; 1 for an unknown one.

    `kernel` is its entry in a bundle, `static` its static profile.
    """
    needs = (static.get("registers", 0), kernel["shared"], kernel["num_warps"])
    counts = [d.sms * min(d.resident_blocks(*needs).values()) for d in DEVICES.values() if d.arch == kernel["arch"]]
    return max(counts, default=1) // kernel["num_ctas"] or 1
