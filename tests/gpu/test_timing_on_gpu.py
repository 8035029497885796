"""What the clock says of a launch hangs neither on how busy the host is that queues it, nor on its place in a round."""

import itertools
import statistics
import time
from functools import partial

import pytest
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.judge.timing.timer import BufferSet, TimedSide, Timer

pytestmark = pytest.mark.gpu
LATE = 60e-6  # seconds, between the start of the clock and the launch


def test_a_host_that_is_slow_to_launch_does_not_show_in_the_time() -> None:
    import torch

    a = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)

    def slowly() -> object:
        until = time.perf_counter() + LATE
        while time.perf_counter() < until:
            pass
        return torch.mm(a, a)

    prompt, slow = TimedSide("prompt", [BufferSet(lambda: torch.mm(a, a))]), TimedSide("slow", [BufferSet(slowly)])
    Timer("cuda").run([prompt, slow], rounds=50)
    assert statistics.median(slow.samples) < 1.1 * statistics.median(prompt.samples)


@pytest.mark.parametrize(("size", "launches", "pause"), [(1024, 3, 2e-3), (64, 20, 1e-4)], ids=["few", "many"])
def test_a_host_that_works_between_launches_does_not_show_in_the_time(size: int, launches: int, pause: float) -> None:
    import torch

    a = torch.randn(size, size, device="cuda", dtype=torch.float16)

    def library(seconds: float) -> None:
        for _ in range(launches):
            torch.mm(a, a)
            time.sleep(seconds)

    prompt, slow = (TimedSide(str(s), [BufferSet(partial(library, s))]) for s in (0.0, pause))
    Timer("cuda").run([prompt, slow], rounds=50)
    assert statistics.median(slow.samples) < 1.1 * statistics.median(prompt.samples)


def test_intervals_of_a_kernel_against_itself_hold_one() -> None:
    """In one order for all rounds half of them did on an H200, in orders of chance 19 of 20."""
    import torch

    timer, held = Timer("cuda"), []
    for _ in range(20):
        inputs = [[torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(3)] for _ in range(4)]
        sides = [
            TimedSide(str(i), [BufferSet(lambda a=a: torch.mm(a, a)) for a in own]) for i, own in enumerate(inputs)
        ]
        timer.run(sides, rounds=30)
        for one, other in itertools.combinations(sides, 2):
            found = bootstrap.ratio(one.samples, other.samples)
            held.append(found.low <= 1 <= found.high)
    assert statistics.mean(held) > 0.85
