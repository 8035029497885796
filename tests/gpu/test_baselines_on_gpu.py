"""Baselines on a real GPU: what the autotuner picks is timed and told; fp8 is held to the tensor cores' arithmetic."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge, visible_gpu
from pgo_agent.sandbox.judge.questions import Hello, Sweep, SweepEntry, SweptEntry
from pgo_agent.sandbox.judge.references import bundle_ref

from tests.agent.command_line import Done, pgo
from tests.conftest import TARGETS

GEMM = TARGETS / "fp8_gemm.py"
CASE = "CASES/4k"
SMALLER = '\nCASES = {"4k": dict(M=4096, N=4096, K=2048)}\nHELD_OUT = {"ragged": dict(M=1000, N=576, K=7168)}\n'
NOISE = 1.02
STORE = "    tl.store(c_ptrs, acc, mask"
ROUGH = "    if BLOCK_M == 64 and BLOCK_N == 128:\n        acc = acc.to(tl.bfloat16).to(tl.float32)\n" + STORE


def sweep(folder: Path, text: str) -> tuple[SweptEntry, ...]:
    """What the judge says of every configuration of the file's own list."""
    path = folder / "fp8_gemm.py"
    path.write_text(text)
    subject, contents = target.read(path), ContentStore(folder / "shelf")
    judge = GpuJudge(subject, gpu=visible_gpu() or "0")
    with closing(judge):
        judge.ask(Hello())
        device = devices.named(judge.environment.gpu or "")
        if device is None or device.key not in ("h100", "h200"):
            pytest.skip("fp8 tensor cores of another kind")
        built = Builder(subject, device, box.choose(), contents).build(subject.source, {"CASES": None}, None, 8)
        assert built.ok and not built.failures, built.failures
        bundle = bundle_ref(contents, built.bundle)
        entries = tuple(SweepEntry(bundle, CASE, c.label, own=True) for c in built.choices[CASE])
        return judge.ask(Sweep(entries)).entries


@pytest.mark.gpu
def test_all_configurations_of_an_fp8_gemm_are_right_by_the_tensor_cores_own_errors(tmp_path: Path) -> None:
    found = sweep(tmp_path, GEMM.read_text() + SMALLER)
    assert len(found) == 36
    assert {e.choice: e.problem for e in found if e.problem} == {}
    checks: dict[str, Any] = {e.choice: e.check for e in found}
    told = {check["yardstick"] for check in checks.values()}
    assert told == {"fp8 tensor core accumulation (14 bits)"}, "by the hardware itself, not by the formula"
    errors = {choice: check["errors"][0]["mean"] for choice, check in checks.items()}
    by_warp_groups = [x for c, x in errors.items() if "BLOCK_M=64" in c]
    assert min(by_warp_groups) > 10 * max(x for c, x in errors.items() if "BLOCK_M=64" not in c)


@pytest.mark.gpu
def test_a_wrong_configuration_is_timed_too_and_only_named_wrong(tmp_path: Path) -> None:
    text = GEMM.read_text()
    assert STORE in text
    found = sweep(tmp_path, text.replace(STORE, ROUGH) + SMALLER)
    wrong = {e.choice for e in found if e.problem}
    assert wrong and all("BLOCK_M=64 BLOCK_N=128" in c for c in wrong)
    assert all(e.ms for e in found)


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Done, Baseline | None]]:
    """A run of the fp8 GEMM, and what its record keeps of the baselines."""
    folder = tmp_path_factory.mktemp("optimized")
    (folder / "fp8_gemm.py").write_text(GEMM.read_text() + SMALLER)
    done = pgo("optimize", "fp8_gemm.py", "--candidates", "1", "--profile", "none", cwd=folder, seconds=560)
    with closing(Store(folder / ".pgo-agent")) as store:
        yield done, store.run("last").baseline


@pytest.mark.gpu
@pytest.mark.slow
def test_as_shipped_is_what_the_autotuner_picks(optimized: tuple[Done, Baseline | None]) -> None:
    done, base = optimized
    assert base is not None, done.err
    shipped, picked = base.shipped[CASE], base.autotuned[CASE]
    assert base.unfit == ()
    assert picked.problem == "" and shipped.time / picked.time < NOISE
    assert "BLOCK_M=64" in picked.said


@pytest.mark.gpu
@pytest.mark.slow
def test_where_the_autotuner_picks_a_wrong_one_a_person_is_asked_and_a_run_that_goes_on_says_so_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "rough.py").write_text(GEMM.read_text().replace(STORE, ROUGH) + SMALLER)
    options = ("--candidates", "1", "--profile", "none")
    asked = pgo("optimize", "rough.py", *options, cwd=tmp_path, seconds=300)
    assert asked.code == 2, asked.err
    told = " ".join((asked.err + asked.out).split())
    assert "triton.autotune picks BLOCK_M=64 BLOCK_N=128" in told and "--drop-wrong" in told
    tolerance = re.search(r"TOLERANCE = dict\(max_ratio=[\d.]+, mean_ratio=[\d.]+\)", told)
    went_on = pgo("optimize", "rough.py", *options, "--drop-wrong", cwd=tmp_path, seconds=560)
    assert "Nothing was gained against what triton.autotune picks today" in went_on.out, went_on.err
    assert tolerance
    (tmp_path / "admitted.py").write_text((tmp_path / "rough.py").read_text() + f"\n{tolerance[0]}\n")
    admitted = pgo("init", "--check", "admitted.py", cwd=tmp_path, seconds=300)
    assert admitted.code == 0, admitted.out + admitted.err
