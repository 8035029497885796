"""Reports that Nsight Compute wrote: the samples that NVIDIA ships with it, or those in the folder NCU_SAMPLES.

Their licence does not let us bring them along, so what needs them is skipped where Nsight Compute is not installed.
Debian's package nsight-compute (non-free) holds them, too: `apt-get download nsight-compute; dpkg -x ...` will do.
"""

import importlib.util
import os
from pathlib import Path

import pytest

PLACES = (
    "opt/nvidia/nsight-compute/*/extras/samples/*/*.ncu-rep",
    "usr/local/cuda*/nsight-compute-*/extras/samples/*/*.ncu-rep",
    "usr/share/doc/nsight-compute/examples/*/*.ncu-rep",
)


def reports() -> list[Path]:
    """Each name once."""
    own = os.environ.get("NCU_SAMPLES")
    found = [p for place in PLACES for p in Path("/").glob(place)]
    found += Path(own).rglob("*.ncu-rep") if own else []
    return sorted({p.name: p for p in found}.values())


needs_reader = pytest.mark.skipif(
    importlib.util.find_spec("ncu_report") is None, reason="ncu-report is not installed (pip install '.[counters]')"
)
needs_reports = pytest.mark.skipif(not reports(), reason="no reports here: neither Nsight Compute nor NCU_SAMPLES")
