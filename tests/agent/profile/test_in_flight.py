"""What is said of kernels that wait for device memory, from the launch and the code alone: loads under way, the least
time of the contract's work, and no defect where a load is small or a broadcast."""

from dataclasses import replace
from typing import Any

import pytest
from pgo_agent.agent.profile import in_flight
from pgo_agent.agent.profile.findings import Defect, findings
from pgo_agent.agent.profile.summarize import summarize
from pgo_agent.agent.views.profile import format
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.profile import roofline, ttgir_cost
from pgo_agent.sandbox.profile.backend import Occupancy
from pgo_agent.sandbox.profile.kernel_profile import LaunchCount
from pgo_agent.sandbox.profile.roofline import Work
from pgo_agent.sandbox.profile.static_profile import Access, Pipeline, StaticProfile
from pgo_agent.sandbox.ttgir import reader

from tests.agent import profiles

H100 = devices.find("h100")


def access(bytes_: int, op: str = "tt.load", loop: int = 0, **changes: Any) -> Access:
    wide = Access(9, 14, loop, op, bytes_, 2, False, 16, 512, 16, 1, 16)
    return replace(wide, **changes)


def norm(*accesses: Access, fit: int = 5) -> StaticProfile:
    """A kernel without dots, of which so many blocks fit an SM."""
    plain = profiles.static(kinds={"float": 40, "global": 8})
    occupied = Occupancy(fit, 64, 64, {"warps": fit})
    return replace(plain, accesses=accesses, pipeline=Pipeline(1, (), 0, 0, False), occupancy=occupied)


def defects(k: StaticProfile, blocks: int) -> set[Defect]:
    return {f.defect for f in findings(k, LaunchCount(blocks, 1), H100)}


def test_a_grid_of_few_programs_limits_what_is_in_flight_whatever_fits() -> None:
    rows = norm(access(4096, loop=7), access(4096, loop=7), access(1024))
    few = in_flight.loads(rows, LaunchCount(132, 1), H100)
    assert few is not None and (few.each, few.most, few.in_loop) == (8192, 8192, True)
    assert few.needed == pytest.approx(17765, abs=1)  # 3350 GB/s for 0.7 us, over 132 SMs
    assert Defect.IN_FLIGHT in defects(rows, 132) and Defect.IN_FLIGHT not in defects(rows, 264)


def test_copies_that_run_ahead_are_in_flight_beside_one_another() -> None:
    copied = norm(access(4096, "ttg.async_copy_global_to_local", loop=7))
    deep = replace(copied, pipeline=Pipeline(4, (), 0, 2, False))
    found = in_flight.loads(deep, LaunchCount(132, 1), H100)
    assert found is not None and found.most == 3 * 4096


def test_the_launch_is_told_with_what_would_fit() -> None:
    said = in_flight.grid(profiles.kernel(norm(access(2048)), blocks=256), H100)
    assert said.startswith("256 programs, all at once: 1.9 an SM, where 5 would fit; a program loads 2.0 KB")
    assert "3.2 waves of 264" in in_flight.grid(profiles.kernel(norm(access(2048), fit=2), blocks=840), H100)
    assert in_flight.loads(profiles.static(), LaunchCount(256, 1), H100) is None, "dots are another matter"


def test_warps_that_do_not_fit_are_no_defect_of_a_grid_that_runs_at_once() -> None:
    few = replace(norm(access(65536)), occupancy=Occupancy(2, 8, 64, {"registers": 2}))
    assert Defect.OCCUPANCY in defects(few, 265) and Defect.OCCUPANCY not in defects(few, 264)


def test_a_store_that_is_small_beside_the_loads_is_not_little_for_a_thread() -> None:
    store = access(128, "tt.store", width=2, share=2, warp_run=64, element_bytes=2)
    assert Defect.LITTLE in defects(norm(store, access(256)), 4096)
    assert Defect.LITTLE not in defects(norm(store, access(2048)), 4096)


TTGIR = """
#a = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [1, 8], order = [1, 0]}>
#b = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [16, 2], warpsPerCTA = [1, 8], order = [1, 0]}>
module attributes {"ttg.num-warps" = 8 : i32} {
  tt.func public @k(%p: tensor<2x1x!tt.ptr<f32>, #a>, %q: tensor<64x4x!tt.ptr<f32>, #b>) attributes {noinline = false} {
    %x = tt.load %p : tensor<2x1x!tt.ptr<f32>, #a>
    %y = tt.load %q : tensor<64x4x!tt.ptr<f32>, #b>
    tt.return
  }
}
"""


def test_one_word_for_all_lanes_of_a_warp_is_not_uncoalesced_and_a_column_is() -> None:
    scalar, column = ttgir_cost.accesses(reader.parse(TTGIR))
    assert (scalar.thread_run, scalar.warp_run) == (4, None)
    assert (column.thread_run, column.warp_run) == (4, 8)


def test_what_was_not_timed_gets_the_least_time_of_its_work_and_is_called_an_estimate() -> None:
    memory = roofline.floor(Work(1e9, 67e6), H100)
    compute = roofline.floor(Work(1e12, 1e6), H100)
    assert memory is not None and memory.seconds == 67e6 / 3350e9 and memory.bound == "memory"
    assert compute is not None and compute.bound == "compute" and roofline.floor(Work(0, 0), H100) is None
    assert format.floor(memory).startswith("~20 us at least, bound by memory: 67 MB at 3.35 TB/s take 20 us")
    untimed = replace(profiles.case(profiles.kernel(norm(access(2048)))), floor=memory)
    assert "An estimate by the contract and the data sheet: 0.0200 ms at least" in summarize(untimed).bound
