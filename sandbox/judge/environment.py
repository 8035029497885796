"""The machine that judges: a test of its GPU, and the facts that every recorded result names."""

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox.judge.launches import cuda_driver


def healthy(device: Any) -> None:
    """Run a known computation. Raises RuntimeError when the GPU gives a wrong result."""
    a = torch.arange(4096, device=device, dtype=torch.float32).reshape(64, 64) % 7
    if not torch.equal((a @ a).cpu(), a.cpu() @ a.cpu()):
        raise RuntimeError("the GPU computes a small matrix product wrongly")


def environment(properties: Any) -> dict[str, Any]:
    """Return what every recorded result names: GPU, driver and versions."""
    version = cuda_driver.version()
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = None
    return {
        "gpu": properties.name,
        "cuda_uuid": str(properties.uuid),  # as CUDA reports it; `uuid` is what the process was given
        "arch": properties.major * 10 + properties.minor,
        "sms": properties.multi_processor_count,
        "memory": properties.total_memory,
        "driver": driver_release(),
        "cuda_driver": f"{version // 1000}.{version % 1000 // 10}",
        "torch": torch.__version__,
        "triton": triton,
        "python": sys.version.split()[0],
    }


def driver_release() -> str:
    """Return the driver's release as the kernel module reports it, or an empty string."""
    path = Path("/proc/driver/nvidia/version")
    words = path.read_text().split() if path.is_file() else []
    return next((w for w in words if w.count(".") >= 1 and w.replace(".", "").isdigit()), "")
