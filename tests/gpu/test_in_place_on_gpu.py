"""A kernel that changes its input on a real GPU: no copy is timed, and every launch begins with what inputs() gave.

The target doubles numbers near the end of their range: 28 launches without a restore would overflow.
"""

import statistics
from collections.abc import Iterator

import pytest
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.questions import Final, Idle, Numerics, Race, Sweep, SweepEntry
from pgo_agent.sandbox.judge.references import bundle_ref
from pgo_agent.sandbox.target import COMPILED

from tests.gpu.test_on_gpu import Gate, first_of

TARGET = '''"""Doubles X in place."""

import torch
import triton
import triton.language as tl


@triton.jit
def _double(X, G, Y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(X + at, mask=inside)
    g = tl.load(G)
    tl.store(Y + at, x * g, mask=inside)


def kernel(x, g):
    _double[(triton.cdiv(x.numel(), 1024),)](x, g, x, x.numel(), BLOCK=1024)
    return x


def reference(x, g):
    return x.mul_(g[0])


def inputs(case, generator):
    x = torch.rand(case["n"], generator=generator, device=generator.device) * 1e30
    return {"x": x, "g": torch.full((1024,), 2.0, device=generator.device)}


def doubled(x, g):
    if float(x.max()) > 1e30:
        raise ValueError("an earlier call was not undone")
    return x.mul_(g[0])


IN_PLACE = ("x",)
LIBRARIES = {"torch": doubled}
CASES = {"64m": dict(n=1 << 26)}
SMALL = {"even": dict(n=2048)}
HELD_OUT = {"odd": dict(n=99_991)}
flops = lambda case: case["n"]
bytes_moved = lambda case: 8 * case["n"]
'''
PUBLIC, HIDDEN = "CASES/64m", "HELD_OUT/odd"
LAUNCH = "    _double[(triton.cdiv(x.numel(), 1024),)](x, g, x, x.numel(), BLOCK=1024)\n"
STORE = "    tl.store(Y + at, x * g, mask=inside)\n"
OTHER = (LAUNCH, LAUNCH.replace("1024", "2048"))
COPIES = (LAUNCH, f"    x = x.clone()\n{LAUNCH}")
IDLE = (LAUNCH, LAUNCH.replace("x, g, x,", "x, g, torch.empty_like(x),") + LAUNCH)
# The copy that x is restored from lies before g, with a guard zone between: 4096 bytes.
RESTORED = "    tl.store(G - n - 1024 + at, x * g, mask=inside)\n"
CHEATS = {
    "changes another input": (STORE, STORE + "    tl.store(G + 8, 3.0)\n"),
    "changes the copy that its input is restored from": (STORE, STORE + RESTORED),
    "leaves a part as it was": (STORE, "    tl.store(Y + at, x * g, mask=at < n - 1024)\n"),
    "does it twice": (LAUNCH, LAUNCH * 2),
}
FINE = {Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ACCEPTED}


def edited(change: tuple[str, str]) -> str:
    assert TARGET.count(change[0]) == 1
    return TARGET.replace(*change)


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    folder = tmp_path_factory.mktemp("doubling")
    (folder / "doubling.py").write_text(TARGET)
    gate = Gate(folder / "doubling.py", folder / "shelf", PUBLIC, HIDDEN)
    yield gate
    gate.judge.close()


def test_every_edit_below_fits_the_target_as_it_stands() -> None:
    for change in (OTHER, COPIES, IDLE, *CHEATS.values()):
        assert compile(edited(change), "candidate", "exec")


@pytest.mark.gpu
def test_the_samples_do_not_contain_the_copy_that_a_clone_would_be(doubling: Gate) -> None:
    """A copy moves as many bytes as the kernel. Here the judge alone is asked: the gate refuses it before."""
    judged = doubling.verdict(edited(COPIES))
    assert judged.verdict == Verdict.SLOWER and judged.speedup is not None, judged.reason
    print(f"\na clone before the launch: {judged.speedup:.3f}x")
    assert judged.speedup < 0.65  # an H100 measured 0.337


@pytest.mark.gpu
def test_results_stay_right_in_all_launches_of_a_sweep_and_of_long_sessions(doubling: Gate) -> None:
    built, gate = doubling.build(TARGET, 1), doubling
    side = first_of(gate, built)
    entry = SweepEntry(bundle_ref(gate.contents, built.bundle), PUBLIC, side[PUBLIC].choice)
    (swept,) = gate.judge.ask(Sweep((entry,))).entries
    assert not swept.problem and swept.finalist, swept
    for found in (doubling.verdict(edited(OTHER)), doubling.confirmed(edited(OTHER))):
        assert found.verdict in FINE, found.reason


@pytest.mark.gpu
def test_results_stay_right_wherever_else_launches_are_repeated(doubling: Gate) -> None:
    gate, built = doubling, doubling.build(TARGET, 1)
    side = first_of(gate, built)
    raced = gate.judge.verdict(Race(bundle_ref(gate.contents, built.bundle), PUBLIC, side[PUBLIC].choice, stress=True))
    assert raced.verdict == Verdict.CHECKED and "200 launches" in raced.reason, raced.reason
    assert gate.judge.ask(Idle(PUBLIC, first_of(gate, gate.build(edited(IDLE), 1)), side)).idle == ("_double",)
    assert gate.judge.verdict(Numerics(side, "numerics")).verdict == Verdict.CHECKED


@pytest.mark.gpu
def test_libraries_and_the_compiled_reference_find_their_inputs_as_they_were_given_too(doubling: Gate) -> None:
    side = first_of(doubling, doubling.build(TARGET, 1))
    timed = doubling.judge.ask(Final({"shipped": side}, (PUBLIC,), compile_reference=True))
    times = {name: statistics.median(ms) for name, ms in timed.times[PUBLIC].items()}
    print(f"\nms: {times}")
    assert not timed.uncompiled and {"shipped", "A/A", "torch", COMPILED} == times.keys()
    assert 0.8 < times["shipped"] / times["A/A"] < 1.25 and 0.5 < times[COMPILED] / times["shipped"] < 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", CHEATS)
def test_it_is_refused_that_a_kernel(doubling: Gate, name: str) -> None:
    judged = doubling.verdict(edited(CHEATS[name]))
    assert judged.verdict in {Verdict.CHEATING, Verdict.WRONG}, (judged.verdict, judged.stage, judged.reason)
