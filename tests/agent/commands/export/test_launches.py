"""`export --as launches`: a program's launches go to a proven kernel where they are the very ones that were judged.

The faster kernel of these tests adds 1, so that it shows which of the two ran. Triton's interpreter runs both.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from pgo_agent.agent.commands.export import command, given_results
from pgo_agent.agent.commands.export.patched_launches import Patched, Region
from pgo_agent.agent.run.dispatch import Proof, RegionProof
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent.command_line import Done, pgo
from tests.agent.commands.export.exported import RUN, added, apart

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
KERNEL = """

@triton.jit
def _scale(X, Y, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at, mask=at < n) * factor, mask=at < n)
"""
MODULE = f"""{HEAD}{KERNEL}

def scaled(x, y, n=None, factor=2.0, block=256):
    n = n or x.numel()
    _scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, factor, BLOCK=block, num_warps=8)
    return y
"""
TARGET = f"""{HEAD}{KERNEL}

def launch_scale(X):
    Y = torch.empty((X.shape[0],), device=X.device, dtype=X.dtype)
    _scale[(triton.cdiv(X.shape[0], 256),)](X, Y, X.shape[0], 2.0, BLOCK=256)
    return Y


def kernel(X):
    results = launch_scale(X)
    return results


# The contract.
# Taken from scales.py, sha256 {hashlib.sha256(MODULE.encode()).hexdigest()}


def reference(X):
    return 2 * X


def inputs(case, generator):
    return {{"X": torch.randn(case["n"], generator=generator, device=generator.device)}}


CASES = {{"1k": dict(n=1024)}}
SMALL = {{"odd": dict(n=61)}}
HELD_OUT = {{"other": dict(n=2000)}}


def flops(case):
    return case["n"]


def bytes_moved(case):
    return 8 * case["n"]
"""
WINNER = TARGET.replace("* factor", "* factor + 1").replace("BLOCK=256", "BLOCK=512")
PROGRAM = """
import warnings
warnings.simplefilter("always")
import scales
import {name}
x, other = torch.randn(2048), torch.randn(2048)
ran = lambda y, plain: ["original" if torch.equal(y, plain) else "faster" if torch.equal(y, plain + 1) else "wrong"]
def tried(x, y, n=None, factor=2.0, block=256):
    plain = x[:n] * factor
    return ran(scales.scaled(x, y, n, factor, block)[:n], plain)[0]
print(*[
    tried(x[:1024], torch.empty(1024)),
    tried(x[:1024], torch.empty(1024)),
    tried(x[:1000], torch.empty(1000)),
    tried(x[:1024], torch.empty(1024), factor=3.0),
    tried(x[:1024], torch.empty(1024), block=128),
    tried(x, torch.empty(2048), n=1024),
    tried(x[:1024].double(), torch.empty(1024, dtype=torch.float64)),
    tried(x[:1024].clone(), other[:1024]),
], {name}.patched and {name}.patched.launches)
same = x[:1024].clone()
print(torch.equal(scales.scaled(same, same), 2 * x[:1024]))
shared = torch.zeros(1536)
scales.scaled(shared[:1024], shared[512:])
print(shared.sum().item())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a run whose dispatch was proven, for 1024 numbers."""
    (tmp_path / "scales.py").write_text(MODULE)
    (tmp_path / "scale_target.py").write_text(TARGET)
    store = Store(tmp_path / ".pgo-agent")
    added(store, tmp_path / "scale_target.py", WINNER, Verdict.ACCEPTED)
    region = RegionProof("c1", "larger blocks", "X.dtype == torch.float32 and X.shape == (1024,)", {"1k": None})
    said = "is right, and nowhere slower than the original"
    proof = Proof(RUN, str(tmp_path / "scale_target.py"), "", "cpu", "not_slower", said, (region,), (), {}, {})
    kept = tmp_path / ".pgo-agent" / "dispatch" / RUN
    kept.mkdir(parents=True)
    (kept / "proof.json").write_text(json.dumps(proof.as_json()))
    (kept / "kernel.py").write_text(WINNER)
    command.write(store, RUN, "launches", tmp_path / "faster_scale", dispatch=True)
    return tmp_path


def test_the_very_launches_that_were_judged_go_to_the_faster_kernel_and_no_others(folder: Path) -> None:
    first, in_place, overlapping = apart(PROGRAM.format(name="faster_scale"), folder, folder).splitlines()
    others = ["original"] * 5  # another size, factor, block size, number of elements, type
    assert first.split() == ["faster", "faster", *others, "faster", "3"]
    assert (in_place, float(overlapping)) == ("True", 0.0)  # where the result lies over the input, the original runs


def test_where_the_module_is_another_one_the_original_runs_and_that_is_said(folder: Path) -> None:
    (folder / "scales.py").write_text(MODULE + "# a newer version\n")
    told = apart(
        "import warnings\nwarnings.showwarning = lambda m, *a, **k: print(m)\n" + PROGRAM.format(name="faster_scale"),
        folder,
        folder,
    )
    said, first, *_ = told.splitlines()
    assert said == "scales is not as it was when a faster _scale was proven: the original runs"
    assert "faster" not in first and first.endswith("None")


def test_results_take_the_callers_tensors_where_they_are_allocated_and_are_copied_where_they_are_made() -> None:
    text, copied = given_results.rewritten(WINNER.partition("# The contract")[0])
    assert copied == 0 and "Y = into[0]" in text and "launch_scale(X, into=into)" in text
    zeroed, copied = given_results.rewritten("import torch\ndef kernel(x):\n    z = torch.zeros(4)\n    return x, z\n")
    assert copied == 0 and "z = into[1].zero_()" in zeroed
    made, copied = given_results.rewritten("def kernel(x):\n    return x + 1\n")
    assert copied == 1 and "given.copy_(result)" in made
    with pytest.raises(UsageFault, match="does not return its results at one place"):
        given_results.rewritten("def kernel(x):\n    if x:\n        return 1\n    return 2\n")


INFER = """
import torch, scales
x = torch.arange({n}, dtype=torch.float32)
outputs = {{"scaled": scales.scaled(x, torch.empty({n}))}}
"""


def proved(folder: Path, n: int) -> Done:
    """What `prove` says of a program that scales n numbers."""
    (folder / "infer.py").write_text(INFER.format(n=n))
    words = ("prove", "--patched", "faster_scale", "--turns", "1", "--", sys.executable, "infer.py")
    return pgo(*words, cwd=folder, TRITON_INTERPRET="1")


@pytest.mark.slow
def test_prove_sees_what_a_patch_changes(folder: Path) -> None:
    done = proved(folder, 1024)
    assert done.code == 1 and "scaled" in done.out and "it differs by" in done.out, done.out + done.err


@pytest.mark.long
def test_prove_refuses_a_patch_that_takes_over_no_launch_of_the_program(folder: Path) -> None:
    done = proved(folder, 1000)
    assert done.code == 2 and "took over no launch of the program: none of its launches" in done.err


@triton.jit
def _copied(X, Y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at, mask=at < n), mask=at < n)


def test_what_heuristics_choose_is_not_compared_and_the_rest_is() -> None:
    kernel, taken = triton.heuristics({"BLOCK": lambda _: 64})(_copied), list[tuple[object, ...]]()

    def shipped(launched: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def judged(X: torch.Tensor) -> torch.Tensor:
            Y = torch.empty((X.shape[0],), device=X.device, dtype=X.dtype)
            launched[(triton.cdiv(X.shape[0], 64),)](X, Y, X.shape[0], BLOCK=64, num_warps=4)
            return Y

        return judged

    kernel.run = Patched(kernel, shipped, ("X",), [Region(lambda X: True, lambda *given: taken.append(given))], "cpu")
    x, y = torch.randn(128), torch.empty(128)
    kernel[lambda meta: (triton.cdiv(128, meta["BLOCK"]),)](x, y, 128)
    assert len(taken) == 1 and taken[0][0][0] is y and taken[0][1] is x  # type: ignore[index]
    with pytest.raises((RuntimeError, ValueError)):  # the original cannot run on tensors of the CPU
        kernel[lambda meta: (triton.cdiv(127, meta["BLOCK"]),)](x, y, 127)
