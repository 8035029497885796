"""The machine that judges: a test of its GPU, and the facts that every recorded result names."""

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox.judge.launches import cuda_driver
from pgo_agent.sandbox.judge.machine import Environment


def healthy(device: Any) -> None:
    """Run a known computation. Raises RuntimeError when the GPU gives a wrong result."""
    a = torch.arange(4096, device=device, dtype=torch.float32).reshape(64, 64) % 7
    if not torch.equal((a @ a).cpu(), a.cpu() @ a.cpu()):
        raise RuntimeError("the GPU computes a small matrix product wrongly")


def environment(properties: Any, flops: float, moved: float) -> Environment:
    """Return what every recorded result names: GPU, driver, versions and its measured peaks."""
    version = cuda_driver.version()
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = None
    return Environment(
        gpu=properties.name,
        cuda_uuid=str(properties.uuid),
        arch=properties.major * 10 + properties.minor,
        sms=properties.multi_processor_count,
        memory=properties.total_memory,
        driver=driver_release(),
        cuda_driver=f"{version // 1000}.{version % 1000 // 10}",
        torch=str(torch.__version__),
        triton=triton,
        python=sys.version.split()[0],
        tflops=round(flops / 1e12, 1),
        gbps=round(moved / 1e9, 1),
    )


def driver_release() -> str:
    """Return the driver's release as the kernel module reports it, or an empty string."""
    path = Path("/proc/driver/nvidia/version")
    words = path.read_text().split() if path.is_file() else []
    return next((w for w in words if w.count(".") >= 1 and w.replace(".", "").isdigit()), "")
