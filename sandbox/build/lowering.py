"""TTIR -> TTGIR again, in a box that no code of a candidate ever enters: whether one was made from the other.

A tracer's answer has both, and a candidate's Python ran in that tracer.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation.box import ATTEMPTS, COMPILER, Box, killed

SECONDS = 120.0  # for all kernels of a candidate


def lower(
    box: Box, contents: ContentStore, arch: int, kernels: Mapping[str, tuple[bytes, Mapping[str, Any]]]
) -> dict[str, bytes]:
    """Return the TTGIR of kernels, given by TTIR and the options that shape TTGIR; without those that Triton refuses.

    Raises Killed when somebody kills the process again and again, EnvironmentFault when the disk is full.
    """
    listed = [{"key": k, "only": "lowered", "options": dict(shape)} for k, (_, shape) in kernels.items()]
    for _ in range(ATTEMPTS):
        with contents.scratch() as name:
            folder = Path(name)
            (folder / "in").mkdir()
            for key, (text, _) in kernels.items():
                (folder / "in" / f"{key}.ttir").write_bytes(text)
            (folder / "request.json").write_text(json.dumps({"arch": arch, "jobs": 1, "kernels": listed}))
            ran = box.run(COMPILER, folder, SECONDS)
            if not ran.killed:
                return {k: text for k in kernels if (text := _read(folder / "out", k))}
    raise killed("lowering TTIR")


def _read(out: Path, key: str) -> bytes:
    try:
        refused = "error" in validate.answer(out / f"{key}.json")
        return b"" if refused else validate.read(out / f"{key}.ttgir", validate.ARTEFACT_LIMIT)
    except (BadBundle, ValueError, TypeError):
        return b""
