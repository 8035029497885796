"""A case of a target, built for this machine's GPU with its first configuration, and a judge that holds the GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge, visible_gpu
from pgo_agent.sandbox.judge.questions import Hello
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef


@dataclass(frozen=True)
class Placed:
    judge: GpuJudge
    builder: Builder
    place: KernelRef  # of the first kernel


@contextmanager
def placed(path: Path, case: str, folder: Path) -> Iterator[Placed]:
    """Skips where `sandbox/devices.py` does not know the GPU. The judge is closed at the end."""
    subject, contents = target.read(path), ContentStore(folder / "shelf")
    judge = GpuJudge(subject, gpu=visible_gpu() or "0")
    try:
        judge.ask(Hello())  # starts the process, which says what GPU it has
        device = devices.named(judge.environment.gpu or "")
        if device is None:
            pytest.skip(f"sandbox/devices.py does not know {judge.environment.gpu}")
        builder = Builder(subject, device, box.choose(), contents)
        built = builder.build(subject.source, {"CASES": [case]}, 1)
        assert built.ok, built.failures
        ((name, (choice,)),) = built.choices.items()
        yield Placed(judge, builder, KernelRef(built.bundle, name, choice.label, choice.kernels[0]))
    finally:
        judge.close()
