"""`python theirs.py JOBS`: launches the pickled jobs by Triton's own launcher; prints a JSON null for each."""

import dataclasses
import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from pgo_agent.sandbox.judge.launches.cuda_driver import TensorMap
from triton.backends.nvidia.driver import CudaDriver


def launch(driver: CudaDriver, job: dict[str, Any]) -> None:
    k = job["kernel"]
    _, function, *_ = driver.utils.load_binary(k.name, job["image"], k.shared, 0)
    source = SimpleNamespace(signature=dict(enumerate(job["signature"])), constants={})
    metas = tuple(dataclasses.asdict(m) for m in k.tensordesc_meta)
    launcher = driver.launcher_cls(source, dataclasses.replace(k, tensordesc_meta=metas))
    packed = (k.num_warps, k.num_ctas, k.shared)
    for _ in range(job["times"]):
        launcher(*job["grid"], job["stream"], function, packed, None, None, None, *map(argument, job["args"]))


def argument(a: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(map(argument, a))
    if not isinstance(a, TensorMap):
        return a
    base = SimpleNamespace(data_ptr=lambda: a.pointer)
    padding = "nan" if a.nan_fill else "zero"
    return SimpleNamespace(base=base, shape=list(a.shape), strides=list(a.strides), padding=padding)


if __name__ == "__main__":
    driver = CudaDriver()
    triton.runtime.driver.set_active(driver)
    print(json.dumps([launch(driver, job) for job in pickle.loads(Path(sys.argv[1]).read_bytes())]))
