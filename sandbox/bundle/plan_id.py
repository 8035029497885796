"""Names what was measured: the same code, launched by the same plan, has the same identity on every machine.

Evidence is keyed by it (and by the device's name). Nothing that differs between machines or source files but does not
reach the GPU is part of it: paths, line numbers, kernel keys, labels of configurations.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from pgo_agent.sandbox.bundle.store import canonical

_LAUNCHED = (
    "shared",
    "num_warps",
    "num_ctas",
    "global_scratch_size",
    "profile_scratch_size",
    "launch_pdl",
    "launch_cooperative_grid",
    "tensordesc_meta",
)


def plan_id(plan: Mapping[str, Any], kernels: Mapping[str, Mapping[str, Any]], codes: Mapping[str, str]) -> str:
    """Return the SHA-256 over a plan's JSON with each kernel replaced by its code id and launch metadata."""

    def step(s: dict[str, Any]) -> dict[str, Any]:
        if "kernel" not in s:
            return s
        launched = {f: kernels[s["kernel"]][f] for f in _LAUNCHED}
        return s | {"kernel": codes[s["kernel"]], "launched": launched}

    return hashlib.sha256(canonical({**plan, "steps": [step(s) for s in plan["steps"]]})).hexdigest()
