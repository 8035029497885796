"""sandbox/profile/counters/collect.py where there is nothing to count: each thing that is missing is told in one line.

Programs called ncu in here refuse in the real one's words, or run what they are given and profile nothing.
"""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.schema import Op
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge, visible_gpu
from pgo_agent.sandbox.profile.counters import ncu as tool
from pgo_agent.sandbox.profile.counters.collect import take
from pgo_agent.sandbox.profile.counters.launcher import first
from pgo_agent.sandbox.profile.kernel_profile import Missing
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef

from tests.sandbox.conftest import ADD
from tests.sandbox.ncu_samples import needs_reader
from tests.sandbox.profile.test_counters_ncu import BANNER, FORBIDDEN

Taken = Callable[..., Missing]
# As the launcher says that it waits.
WAITS = 'while [ "$1" != -m ]; do shift; done; folder=$(dirname "$3"); touch $folder/ready'
GPU = "GPU-00000000-1111-2222-3333-444444444444"


@pytest.fixture
def taken(add_contents: ContentStore, add_built: Built) -> Taken:
    """What the pass says of the addition, on the GPU "0" whether there is one or not; it must not say figures."""
    builder = Builder(target.read(ADD), devices.find("h200"), box.choose(), add_contents)
    ((case, (choice,)),) = add_built.choices.items()
    place = KernelRef(add_built.bundle, case, choice.label, choice.kernels[0])

    def ask(gpu: str | None = "0", seconds: float = 60.0) -> Missing:
        found = take(GpuJudge(builder.target, gpu=gpu), builder, place, seconds=seconds)
        assert isinstance(found, Missing) and found.name == "counters"
        assert found.why and "\n" not in found.why
        return found

    return ask


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a program called ncu on PATH that tells a version and otherwise does this; and one that lists a GPU."""
    version = BANNER.format("2025.3.1.0 (build 36398880) (public-release)")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def install(does: str) -> None:
        write("ncu", f"if [ \"$1\" = --version ]; then printf '{version}'; exit; fi\n{does}")
        write("nvidia-smi", f"echo 'GPU 0: NVIDIA H200 (UUID: {GPU})'")

    def write(name: str, does: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)

    return install


@pytest.mark.skipif(visible_gpu() is not None, reason="there is a GPU here")
def test_on_this_machine_it_says_what_is_missing_and_raises_nothing(taken: Taken) -> None:
    why = taken().why
    if shutil.which("ncu") is None:
        assert why.startswith("Nsight Compute is not installed")


def test_a_judge_without_a_gpu_has_no_counters(taken: Taken, ncu: Callable[[str], None]) -> None:
    ncu("exit 1")
    assert taken(gpu=None).why == "there is no GPU"


@needs_reader
def test_a_user_who_may_not_read_counters_is_told_what_to_do(taken: Taken, ncu: Callable[[str], None]) -> None:
    ncu(f"echo '==PROF== Connected to process 9012 (/usr/bin/python)'; echo '{FORBIDDEN}'; exit 1")
    assert taken().why == tool.PERMISSION
    assert "https://developer.nvidia.com/ERR_NVGPUCTRPERM" in tool.PERMISSION


@pytest.mark.long
@needs_reader
def test_a_profile_that_does_not_end_is_ended_at_its_deadline(taken: Taken, ncu: Callable[[str], None]) -> None:
    started = time.monotonic()
    ncu("sleep 600")
    assert taken(seconds=1.0).why == "the launcher was not ready in 1 s"
    ncu(f"{WAITS}; sleep 600")
    assert taken(seconds=2.0).why == "the launch was not profiled in 2 s"
    assert time.monotonic() - started < 30


@needs_reader
def test_the_gpu_is_held_for_the_launch_alone(
    taken: Taken, ncu: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock = f"{tmp_path}/pgo-agent/gpu-{GPU}.lock"
    free = f"if [ ! -e {lock} ] || flock -n {lock} true; then echo free; else echo held; fi"
    ncu(f'before=$({free}); {WAITS}; read gpu < $folder/gpu; echo "$before while it starts, $({free}) for $gpu"')
    assert taken().why == f"ncu profiled no kernel: free while it starts, held for {GPU}"


@needs_reader
def test_an_ncu_that_saw_no_kernel_is_told_as_that(taken: Taken, ncu: Callable[[str], None]) -> None:
    ncu("echo 'the last words of a program'; echo '==WARNING== No kernels were profiled.'")
    assert taken().why == "ncu profiled no kernel: the last words of a program"
    ncu("echo '==WARNING== No kernels were profiled.'")
    assert taken().why == "ncu profiled no kernel: it does not say why"


@needs_reader
def test_a_file_that_is_no_report_is_told(taken: Taken, ncu: Callable[[str], None]) -> None:
    ncu('while [ "$1" != --export ]; do shift; done; echo nonsense > "$2.ncu-rep"')
    assert "no launch in it that this ncu-report knows" in taken().why


@pytest.mark.long
@needs_reader
@pytest.mark.skipif(visible_gpu() is not None, reason="there is a GPU here")
def test_the_launcher_leaves_its_problem_where_the_pass_finds_it(taken: Taken, ncu: Callable[[str], None]) -> None:
    """ncu runs the real launcher, which imports torch and finds no GPU, and reports its exit status as the real one."""
    ncu(
        f'while [ "$1" != {sys.executable} ]; do shift; done; "$@"\n'
        'echo "==ERROR== The application returned an error code ($?)."; echo "==WARNING== No kernels were profiled."\n'
        "exit 1"
    )
    why = taken(seconds=300.0).why
    assert why.startswith("nothing was launched: ")
    assert "NVIDIA" in why or "CUDA" in why


def test_the_launch_that_is_looked_at_is_the_first_of_the_wanted_build(
    add_contents: ContentStore, add_built: Built, h200_limits: validate.Limits
) -> None:
    bundle = validate.load(add_contents.bundle(add_built.bundle), add_contents.artefacts, h200_limits)
    ((plans,), (key,)) = bundle.plans.values(), bundle.kernels
    plan = plans[next(iter(plans))]
    (launch,) = plan.launches
    other = replace(launch, kernel="0" * 64)  # another build of a function of the same name
    filling = Op("aten.zeros.default", ((4,),), {}, ())
    longer = replace(plan, steps=(other, filling, launch, launch))
    assert (first(longer, key), first(longer, other.kernel)) == (2, 0)
    with pytest.raises(BadBundle, match="launches no kernel 111111111111"):
        first(longer, "1" * 64)
