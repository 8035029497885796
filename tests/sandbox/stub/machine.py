"""A machine whose CUDA driver is the stub: compiles it, and runs launches there in a process of their own."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder, limits_of
from pgo_agent.sandbox.bundle import schema, validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.launches.cuda_driver import TensorMap

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
DEVICE = devices.find("h200")
SOURCES = (
    (HERE / "launches.py", {"CASES": None}),
    (ROOT / "tests" / "kernels" / "add.py", {"HELD_OUT": None}),
    (ROOT / "kernels" / "fa_fwd.py", {"SMALL": ["d64-ragged-causal"]}),
)
BASE, STEP = 0x7F00_0000_0000, 1 << 32  # made-up addresses of a plan's storages


@dataclass(frozen=True)
class Ran:
    errors: list[str | None]  # what each job raised
    records: list[dict[str, Any]]  # the driver calls, as the stub wrote them down

    def calls(self, name: str) -> list[dict[str, Any]]:
        return [r for r in self.records if r["call"] == name]

    def of_each_job(self, *names: str) -> list[list[dict[str, Any]]]:
        """The calls of these names, job by job: each begins by loading its kernel."""
        starts = [i for i, r in enumerate(self.records) if r["call"] == "load"]
        spans = zip(starts, [*starts[1:], len(self.records)], strict=True)
        return [[r for r in self.records[a:b] if r["call"] in names] for a, b in spans]


@dataclass
class Machine:
    """Holds the folder of the compiled stub."""

    folder: Path
    runs: int = field(default=0)

    @classmethod
    def build(cls, folder: Path) -> "Machine":
        command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        library = folder / "libcuda.so.1"
        subprocess.run([*command, "-o", library, HERE / "stub.c"], check=True, timeout=60)
        return cls(folder)

    def run(self, script: str, jobs: Sequence[dict[str, Any]], **env: str) -> Ran:
        """Launches the jobs by `ours.py` or `theirs.py`. `env`: STUB_FAIL, STUB_VERSION."""
        self.runs += 1
        work, log = self.folder / f"{self.runs}.jobs", self.folder / f"{self.runs}.log"
        work.write_bytes(pickle.dumps(list(jobs)))
        log.touch()
        places = {n: str(self.folder) for n in ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH")}
        cache = {"TRITON_CACHE_DIR": str(self.folder / "cache")}
        done = subprocess.run(
            [sys.executable, "-B", HERE / script, work],
            env=os.environ | places | cache | {"STUB_LOG": str(log)} | env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Ran(json.loads(done.stdout.splitlines()[-1]), [json.loads(r) for r in log.read_text().splitlines()])


def build(folder: Path) -> dict[str, dict[str, Any]]:
    """Builds SOURCES and gives the launch of each case."""
    contents, boxed = ContentStore(folder), box.choose()

    def bundle(path: Path, cases: Any) -> validate.Bundle:
        subject = target.read(path)
        built = Builder(subject, DEVICE, boxed, contents).build(subject.source, cases, 1)
        assert built.ok, built.failures
        return validate.load(contents.bundle(built.bundle), contents.artefacts, limits_of(DEVICE))

    with ThreadPoolExecutor(2) as pool:
        bundles = list(pool.map(lambda s: bundle(*s), SOURCES))
    return {case: job for b in bundles for case in b.plans for job in jobs_of(b, case)}


def jobs_of(bundle: validate.Bundle, case: str) -> list[dict[str, Any]]:
    """The launches of a case's first configuration, with tensors at made-up addresses."""
    plan = next(iter(bundle.plans[case].values()))
    return [_job(bundle, launch) for launch in plan.launches]


def address(t: schema.Tensor) -> int:
    return BASE + t.storage * STEP + t.offset * schema.ITEMSIZE[t.dtype]


def _job(bundle: validate.Bundle, launch: schema.Launch) -> dict[str, Any]:
    kernel = bundle.kernels[launch.kernel]
    metas = iter(kernel.tensordesc_meta)

    def plain(a: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(map(plain, a))
        if isinstance(a, schema.Descriptor):
            return TensorMap(address(a.base), a.shape, a.strides, a.padding == "nan", a.tf32, next(metas))
        return address(a) if isinstance(a, schema.Tensor) else a

    return {
        "image": bundle.images[launch.kernel],
        "kernel": kernel,
        "grid": launch.grid,
        "signature": launch.signature,
        "args": tuple(map(plain, launch.args)),
        "scratch": (0, 0),
        "stream": 0,
        "times": 1,
    }
