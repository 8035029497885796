"""What a kernel could hide between launches, or know a check by: the judge sees each of it, here on CPU tensors.

A plan that launches nothing has a function in place of its kernels, which may do what a kernel's pointers can: read and
write anywhere near its buffers, and keep what it likes (a register of a device that nobody wipes).
"""

import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from pgo_agent.sandbox.bundle.schema import Op, Plan, Storage, Tensor
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.launches.plan_executor import Replay
from pgo_agent.sandbox.judge.results import checks, repeats
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession
from pgo_agent.sandbox.judge.timing import session
from pgo_agent.sandbox.judge.timing.measured_peaks import Peaks
from pgo_agent.sandbox.judge.timing.session import Inconsistent
from pgo_agent.sandbox.judge.timing.timer import TimedSide, Timer

CPU, CASE, ROUNDS = torch.device("cpu"), "CASES/a", 36
SIZE, BYTES = 100, 400
X, ONES, OUT, SCRATCH = (Tensor(i, "float32", (SIZE,), (1,), 0) for i in range(4))
PLAN = Plan(
    {"x": X, "ones": ONES},
    tuple(Storage(kind, BYTES) for kind in ("input", "input", "made", "made")),
    (Op("aten.zero_.default", (SCRATCH,), {}, (SCRATCH,)),),
    (OUT,),
)
Kernel = Callable[["Launched"], None]


class Launched(Replay):
    """A replay with a function for a kernel."""

    kernel: Kernel
    count = 0  # launches so far

    def __call__(self, without: int | None = None) -> None:
        self.count += 1
        type(self).kernel(self)

    @property
    def right(self) -> torch.Tensor:
        return self.view(X) * 3

    @property
    def out(self) -> torch.Tensor:
        return self.outputs[0]  # type: ignore[no-any-return]

    def near(self, t: Tensor, offset: int) -> torch.Tensor:
        """Elements so far from the beginning of a tensor, as many as it has."""
        return self.view(Tensor(t.storage, t.dtype, t.size, t.stride, offset))  # type: ignore[no-any-return]


class Event:
    """Stands for a CUDA event."""

    def __init__(self, **_: object) -> None: ...

    def record(self) -> None: ...

    def elapsed_time(self, _: "Event") -> float:
        return 1.0


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(session, "_places", lambda *_: 2)


def bench(kernel: Kernel, deterministic: bool = True) -> TargetSession:
    module = ModuleType("target")
    given = {"x": lambda g: torch.randn(SIZE, generator=g), "ones": lambda _: torch.ones(SIZE)}
    module.inputs = lambda case, generator: {n: f(generator) for n, f in given.items()}  # type: ignore[attr-defined]
    module.reference = lambda x, ones: x * 3  # type: ignore[attr-defined]
    module.flops = lambda case: 1  # type: ignore[attr-defined]
    module.NONDETERMINISTIC = not deterministic  # type: ignore[attr-defined]
    timer = Timer.__new__(Timer)
    timer._flush, timer._random = torch.zeros(4), random.SystemRandom()
    made = TargetSession(module, {CASE: {}}, CPU, timer, lambda stage, seconds: None, Peaks(1.0, 1.0))
    launched = type("Launched", (Launched,), {"kernel": staticmethod(kernel)})

    def replay(pick: Pick, case: str, seed: int, stress_input: Any = None) -> Replay:
        bundle, choice = pick[case]
        return launched(bundle, bundle.plans[case][choice], made.inputs(case, seed, stress_input), CPU)  # type: ignore[no-any-return]

    made.replay = replay  # type: ignore[method-assign]
    made.new_seeds()
    return made


def pick() -> Pick:
    return {CASE: (Bundle("hostile", {}, {}, {CASE: {"it": PLAN}}), "it")}


def checked(kernel: Kernel, deterministic: bool = True) -> tuple[Verdict | None, str]:
    """What the numerics of a case say."""
    verdict, found = checks.check_case(bench(kernel, deterministic), pick(), CASE, "numerics")
    return verdict, found.problem


def timed(kernel: Kernel, deterministic: bool = True) -> tuple[Verdict | None, str]:
    """What a session of timing says of a kernel that was verified when it did nothing but what it should."""
    prepared = bench(honest, deterministic)
    checks.check_case(prepared, pick(), CASE, "numerics")
    other = bench(kernel, deterministic)
    for name in ("seeds", "expected", "verified", "allowed"):
        setattr(other, name, getattr(prepared, name))
    try:
        session.time_sides(other, {"candidate": pick()}, CASE, ROUNDS, "time")
    except Inconsistent as e:
        return e.verdict, str(e)
    return None, ""


def honest(k: Launched) -> None:
    k.out.copy_(k.right)


def test_an_honest_kernel_is_right_and_may_be_timed() -> None:
    for deterministic in (True, False):
        assert checked(honest, deterministic) == (None, "")
        assert timed(honest, deterministic) == (None, "")


# state between launches -----------------------------------------------------------------------------------------------

MARK = 123456.0


def test_a_mark_in_scratch_is_never_found_by_a_timed_launch() -> None:
    found = []

    def marking(k: Launched) -> None:
        found.append(bool((k.view(SCRATCH) == MARK).any()))
        k.view(SCRATCH).fill_(MARK)
        honest(k)

    assert timed(marking) == (None, "")
    assert len(found) > 2 * ROUNDS and not any(found)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_kernel_that_leaves_its_work_undone_where_it_finds_its_mark_is_wrong(deterministic: bool) -> None:
    """A caching allocator gives the next call the same memory."""

    def lazy(k: Launched) -> None:
        if not bool((k.view(SCRATCH) == MARK).any()):
            honest(k)
        k.view(SCRATCH).fill_(MARK)

    verdict, why = checked(lazy, deterministic)
    assert verdict == Verdict.WRONG and (not deterministic or why == repeats.LEFT), why


def test_results_that_are_parked_in_an_input_are_found_after_the_launch() -> None:
    def parking(k: Launched) -> None:
        parked, ones = k.view(ONES), k.view(ONES).clone()
        if bool((parked == 1).all()):
            honest(k)
            parked.copy_(k.out)
        else:
            k.out.copy_(ones)

    assert timed(parking)[0] == Verdict.CHEATING


def test_an_input_that_is_put_right_again_by_every_second_launch_is_found() -> None:
    def restoring(k: Launched) -> None:
        parked = k.view(ONES)
        if k.count <= 3 or bool((parked == 1).all()):
            honest(k)
            if k.count > 3:  # no longer a warm-up
                parked.copy_(k.out)
        else:
            k.out.copy_(parked)
            parked.fill_(1.0)

    verdict, said = timed(restoring)
    assert (verdict, "changed their inputs" in said) == (Verdict.CHEATING, True)


@pytest.mark.parametrize(("near", "offset"), [(X, -SIZE), (ONES, SIZE), (OUT, -SIZE), (SCRATCH, SIZE + 3)])
def test_results_that_are_parked_between_buffers_are_found(near: Tensor, offset: int) -> None:
    def parking(k: Launched) -> None:
        honest(k)
        k.near(near, offset).copy_(k.out)

    verdict, said = timed(parking)
    assert (verdict, "bytes outside of its output" in said) == (Verdict.WRONG, True)
    assert checked(parking)[0] == Verdict.WRONG


# what a check could be told by ----------------------------------------------------------------------------------------


def words(k: Launched) -> torch.Tensor:
    return k.view(SCRATCH).view(torch.int32)


SNIFFED: dict[str, Callable[[Launched], bool]] = {
    "is 3 modulo 4": lambda k: bool((words(k) % 4 == 3).all()),
    "is not zero": lambda k: bool((words(k) != 0).all()),
    "is zero": lambda k: bool((words(k) == 0).all()),
    "is one word again and again": lambda k: bool((words(k) == words(k)[0]).all()),
    "is NaN": lambda k: bool(k.view(SCRATCH).isnan().all()),
}


@pytest.mark.parametrize("sign", SNIFFED)
@pytest.mark.parametrize("right", [True, False], ids=["right if", "wrong if"])
def test_a_kernel_that_is_right_by_what_its_scratch_holds_before_is_wrong(sign: str, right: bool) -> None:
    def sniffing(k: Launched) -> None:
        k.out.copy_(k.right if SNIFFED[sign](k) == right else k.right + 1)

    for deterministic in (True, False):
        assert checked(sniffing, deterministic)[0] == Verdict.WRONG


def test_what_hangs_on_the_buffers_is_said_to_and_no_race() -> None:
    def garbage(k: Launched) -> None:
        k.out.copy_(k.right + k.view(SCRATCH).nan_to_num(0.0, 0.0, 0.0).clamp(0, 1e-7))

    assert checked(garbage) == (Verdict.WRONG, "its outputs change with what its buffers held before it ran")


def test_a_read_outside_is_said_to_be_one_and_no_race() -> None:
    def reading(k: Launched) -> None:
        k.out.copy_(k.right + k.near(X, SIZE).nan_to_num(0.0, 0.0, 0.0).clamp(0, 1e-7))

    said = "reads outside of its tensors: its outputs change with what lies there"
    assert checked(reading) == (Verdict.WRONG, said)


def test_a_race_is_still_one() -> None:
    def racy(k: Launched) -> None:
        k.out.copy_(k.right + torch.rand(1) * 1e-7)

    assert checked(racy)[0] == Verdict.RACE


# targets whose outputs may differ -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lies", [0, 1, 2])
def test_of_outputs_that_may_differ_every_run_is_compared(lies: int) -> None:
    turn: Iterator[int] = iter(range(100))

    def lying(k: Launched) -> None:
        honest(k)
        if next(turn) == lies:
            k.out[7] += 1

    assert checked(lying, deterministic=False)[0] == Verdict.WRONG


def test_of_outputs_that_may_differ_every_timed_launch_is_compared() -> None:
    def lying(k: Launched) -> None:
        honest(k)
        if k.count == 20:
            k.out[7] += 1

    verdict, said = timed(lying, deterministic=False)
    assert (verdict, "a timed launch of candidate: output 0: error 1 >" in said) == (Verdict.WRONG, True)


def test_errors_at_places_of_chance_are_found_in_large_outputs() -> None:
    from pgo_agent.sandbox.judge.timing import timer as timing

    out = torch.zeros(1 << 20)
    ((at, values),) = timing.drawn([out])
    ((other, _),) = timing.drawn([out])
    assert at.numel() == values.numel() == timing.DRAWN and not torch.equal(at, other)


# checksums ------------------------------------------------------------------------------------------------------------


def test_a_checksum_cannot_be_kept_by_who_knows_only_how_it_is_made() -> None:
    """Two words changed so that the odd numbers 1, 3, 5, ... would cancel: what was done with fixed weights."""
    from pgo_agent.sandbox.judge.timing import timer as timing

    x = torch.arange(64)
    changed = x.clone()
    changed[0] += 3
    changed[1] -= 1
    assert int(timing.checksum([x])) != int(timing.checksum([changed]))
    assert int(timing.checksum([x])) == int(timing.checksum([x.clone()]))


def test_sides_keep_what_was_seen_of_each_launch() -> None:
    side = TimedSide("candidate", [])
    assert (side.meddled, side.stray) == (False, 0)
    side.changed += [torch.tensor(False), torch.tensor(True)]
    side.strays += [torch.tensor(0), torch.tensor(4)]
    assert (side.meddled, side.stray) == (True, 4)
