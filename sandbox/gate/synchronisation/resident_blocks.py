"""How many blocks of a kernel a GPU of its architecture holds at a time, by the table of devices."""

from collections.abc import Mapping
from typing import Any

from pgo_agent.sandbox.devices import DEVICES
from pgo_agent.sandbox.profile.backend import Resources
from pgo_agent.sandbox.profile.nvidia import occupancy_of


def resident(kernel: Mapping[str, Any], static: Mapping[str, Any]) -> int:
    """Blocks on an empty GPU: of the devices of that architecture, on the one that holds most; 1 where none is known.

    `kernel` is its entry in a bundle, `static` its static profile.
    """
    needs = Resources(
        registers=static.get("registers", 0),
        scalar_registers=0,
        stack_bytes=0,
        spill_store_bytes=0,
        spill_load_bytes=0,
        spilled_registers=0,
        shared_bytes=kernel["shared"],
        warps=kernel["num_warps"],
        lanes=32,
    )
    known = [d.sms * occupancy_of(d, needs).blocks for d in DEVICES.values() if d.arch == kernel["arch"]]
    return max(known, default=1) // kernel["num_ctas"] or 1
