"""Chooses the judge of a run and the device to compile for, by its settings and this machine.

Relies on the judges in `sandbox/judge/`. It starts no process and holds no GPU; the caller closes the judge.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from pgo_agent.agent.run.settings import DEFAULT_DEVICE, RAY, SPOOL, RunSettings
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.judge import gpus
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.spool.client import SpoolJudge
from pgo_agent.sandbox.target import Target

KINDS = ("auto", "gpu", "cpu")
NO_TARGET = Target(Path(), "", Path(), "")  # a judge gets its target when the run begins


def choose(asked: RunSettings) -> tuple[Judge | None, Device]:
    """Return the GPUs of this machine, or the judge elsewhere, and the device to compile for; None: no GPU is used.

    Raises UsageFault for settings that do not fit one another, EnvironmentFault where a GPU is asked for and none is
    here, or the one here is not in the device table.
    """
    if asked.judge.startswith(SPOOL):
        return _elsewhere(asked)
    if asked.judge.startswith(RAY):
        return _cluster(asked)
    if asked.judge not in KINDS:
        known = f"{', '.join(KINDS)}, {SPOOL}DIR, {RAY}ADDRESS"
        raise UsageFault(f"unknown judge '{asked.judge}'", f"choose one of: {known}")
    if asked.judge == "cpu" and asked.gpus is not None:
        raise UsageFault("--gpus names GPUs, and --judge cpu uses none", "leave one of them out")
    visible = gpus.usable(asked.gpus) if asked.judge != "cpu" else []
    if not visible:
        _refuse_without_gpu(asked)
        return None, _device(asked)
    return _here(visible, asked)


def gpus_of(judge: Judge | None) -> list[Gpu]:
    """Return the GPUs of this machine that a judge holds."""
    return [j.lock.gpu for j in judge.all if j.lock] if isinstance(judge, GpuPool) else []


def _device(asked: RunSettings) -> Device:
    return devices.find(asked.device or DEFAULT_DEVICE)


def _refuse_without_gpu(asked: RunSettings) -> None:
    if asked.judge == "gpu" or asked.gpus is not None:
        option = f"--gpus {asked.gpus}" if asked.gpus is not None else "--judge gpu"
        raise EnvironmentFault(f"{option}: no GPU is visible here", "check nvidia-smi and CUDA_VISIBLE_DEVICES")


def _here(visible: Sequence[Gpu], asked: RunSettings) -> tuple[Judge | None, Device]:
    """A run is for one model of GPU: the one that was asked for, or that of the first GPU."""
    model = devices.find(asked.device).name if asked.device is not None else visible[0].model
    fit = [g for g in visible if g.model == model]
    if not fit:
        if asked.judge == "gpu":
            there = ", ".join(dict.fromkeys(g.model for g in visible))
            raise UsageFault(f"--device {asked.device}, but this machine has {there}", "leave --device out")
        return None, _device(asked)
    return _pool(fit, asked.python), _in_the_table(model)


def _in_the_table(model: str) -> Device:
    device = devices.named(model)
    if device is None:
        names = ", ".join(d.name for d in devices.DEVICES.values())
        raise EnvironmentFault(
            f"the GPU '{model}' is not in the device table", f"known are: {names}; use --judge cpu to go on without it"
        )
    return device


def _pool(fit: Sequence[Gpu], python: str) -> GpuPool:
    spares = max(1, len(os.sched_getaffinity(0)) // (4 * len(fit)))
    return GpuPool([GpuJudge(NO_TARGET, python, g.uuid, spares=spares, lock=GpuLock(g)) for g in fit])


def _cluster(asked: RunSettings) -> tuple[Judge, Device]:
    from pgo_agent.sandbox.judge.cluster.cluster_pool import ClusterPool
    from pgo_agent.sandbox.judge.cluster.ray_cluster import Cluster

    if asked.gpus is not None and not (asked.gpus.isdigit() and int(asked.gpus)):
        raise UsageFault("--gpus is a number of GPUs where a cluster has them", "give it as --gpus 4, or leave it out")
    if asked.memcheck:
        raise UsageFault("--memcheck runs on the GPU's own machine alone", "leave it out, or check there")
    most = int(asked.gpus) if asked.gpus else None
    model = devices.find(asked.device).name if asked.device is not None else ""
    pool = ClusterPool(Cluster(asked.judge.removeprefix(RAY)), NO_TARGET, model, most=most)
    return pool, _in_the_table(pool.model)


def _elsewhere(asked: RunSettings) -> tuple[Judge, Device]:
    name = asked.judge.removeprefix(SPOOL)
    if not name:
        raise UsageFault("--judge spool: names no folder", "give it as --judge spool:DIR")
    if asked.gpus is not None:
        raise UsageFault("--gpus names GPUs of this machine", "give it to the side that answers")
    if asked.memcheck:
        raise UsageFault("--memcheck runs on the GPU's own machine alone", "leave it out, or check there")
    device = _device(asked)
    judge = SpoolJudge(Path(name).absolute(), device, NO_TARGET, asked.wait)
    judge.folder.make()
    return judge, device
