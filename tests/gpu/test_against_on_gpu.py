"""`check --against` on a real GPU: the truth is known, and a second time it is the same."""

from pathlib import Path
from typing import Any

import pytest

from tests.agent.command_line import Done, pgo
from tests.conftest import FA_FWD

CASES = """
CASES = {"d64-2k": dict(B=4, H=32, HK=32, S=2048, D=64, causal=False, dtype="float16")}
HELD_OUT = {"d64-ragged": dict(B=1, H=4, HK=2, S=333, D=64, causal=False, dtype="float16")}  # masks hide no tail
"""  # after the file's own: cases that take little time
EDITS = {  # what a pull request changes
    "a worse list": (
        "CONFIGS = [\n",
        'CONFIGS = [\n    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4, num_stages=1),\n][:1] or [\n',
    ),
    "a sum that is multiplied out": (
        "lse = (m_i + tl.math.log2(l_i)) * 0.6931471805599453",
        "lse = m_i * 0.6931471805599453 + tl.math.log2(l_i) * 0.6931471805599453",
    ),
    "a broken tail": (
        "qk = tl.where(cols[None, :] < S, qk, -1.0e30)",
        "qk = tl.where(cols[None, :] <= S, qk, -1.0e30)",
    ),
}


def edited(name: str) -> tuple[str, str]:
    """The kernel as it was, and with one of EDITS in it."""
    text, (old, new) = FA_FWD.read_text(), EDITS[name]
    assert text.count(old) == 1, name
    return text + CASES, text.replace(old, new) + CASES


def compared(folder: Path, name: str) -> tuple[Done, dict[str, Any]]:
    old, new = edited(name)
    (folder / "old.py").write_text(old)
    (folder / "new.py").write_text(new)
    done = pgo("check", "new.py", "--against", "old.py", "--judge", "gpu", "--json", cwd=folder, seconds=560)
    told = [e["result"] for e in done.events if e["type"] == "check.against"]
    assert told, done.err
    return done, dict(told[0])


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_fits_the_kernel_as_it_stands(name: str) -> None:
    old, new = edited(name)
    compile(new, name, "exec")
    assert old != new


@pytest.mark.gpu
def test_a_slower_kernel_is_slower_by_more_than_its_own_noise_and_a_second_time_too(tmp_path: Path) -> None:
    for _ in range(2):
        done, told = compared(tmp_path, "a worse list")
        assert (done.code, told["outcome"]) == (1, "slower"), told
        assert told["speedup"][2] < told["noise"][0] and told["again"][2] < 1
        assert told["reason"].startswith("slower by "), told["reason"]


@pytest.mark.gpu
def test_a_kernel_that_is_as_fast_passes_and_a_second_time_too(tmp_path: Path) -> None:
    for _ in range(2):
        done, told = compared(tmp_path, "a sum that is multiplied out")
        assert (done.code, told["outcome"]) == (0, "not_slower"), told
        assert abs(told["speedup"][1] - 1) < 0.02 and told["code"]["differing"]


@pytest.mark.gpu
def test_a_broken_tail_fails_by_its_results(tmp_path: Path) -> None:
    done, told = compared(tmp_path, "a broken tail")
    assert (done.code, told["outcome"]) == (1, "wrong"), told
