"""`check` of kernels that work in place: what a caller would not get, or would get several times, is refused."""

from pathlib import Path

import pytest

from tests.agent.command_line import Done, pgo
from tests.conftest import TARGETS

MOMENTUM = (TARGETS / "momentum.py").read_text()
STEP = "    step(p, g, exp_avg, lr)\n"
CONFIGS = '[triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 1024})]'


def tuned(more: str = "") -> str:
    text = MOMENTUM.replace("@triton.jit", f'@triton.autotune(configs={CONFIGS}, key=["n"]{more})\n@triton.jit')
    grid = 'lambda meta: (triton.cdiv(p.numel(), meta["BLOCK"]),)'
    return text.replace(", BLOCK=1024)", ")").replace("(triton.cdiv(p.numel(), 1024),)", grid)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in place")
    (folder / "momentum.py").write_text(MOMENTUM)
    return folder


def checked(place: Path, text: str) -> Done:
    assert text != MOMENTUM
    (place / "new.py").write_text(text)
    return pgo("check", "new.py", "--target", "momentum.py", "--judge", "cpu", cwd=place)


def test_a_step_on_a_copy_that_is_returned_is_refused(place: Path) -> None:
    done = checked(place, MOMENTUM.replace(STEP, f"    p, exp_avg = p.clone(), exp_avg.clone()\n{STEP}"))
    assert done.code == 1 and "the kernel as shipped changes p in place; so must a candidate" in done.out, done.out


def test_an_autotuner_that_would_do_the_step_with_every_configuration_is_refused(place: Path) -> None:
    done = checked(place, tuned())
    assert done.code == 1 and "_momentum is autotuned and changes p in place" in " ".join(done.out.split()), done.out


@pytest.mark.slow
def test_an_autotuner_that_restores_what_the_kernel_reads_and_writes_is_checked(place: Path) -> None:
    done = checked(place, tuned(', restore_value=["P"]'))
    assert done.code == 1 and "_momentum is autotuned and changes exp_avg in place" in " ".join(done.out.split())
    done = checked(place, tuned(', restore_value=["P", "M"]'))
    assert done.code == 0 and done.out.startswith("checked: new.py is right"), done.out
