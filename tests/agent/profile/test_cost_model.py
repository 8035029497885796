"""Occupancy by CUDA's rules, and what is pruned before GPU time. Estimates are only asked to put builds in order."""

from typing import Any

import pytest
from pgo_agent.agent.profile.cost_model import dominated, estimate, occupancy
from pgo_agent.sandbox import devices

H200 = devices.find("h200")
LOOP = {"all": 493, "tensor_flops": 4194304, "mufu": 66, "barriers": 2}


def build(**changes: Any) -> Any:
    base = {
        "name": "_fwd", "registers": 232, "shared": 229376, "spill_store_bytes": 0, "notes": [], "dots": 2,
        "pipeline_depth": 3, "loop_flops": 8388608, "sass": {"HGMMA": 16, "all": 1344, "loop": LOOP},
    }  # fmt: skip
    return base | changes


def spilling(stored: int, name: str = "_fwd") -> Any:
    return build(spill_store_bytes=stored, name=name)


def test_registers_limit_eight_warps_of_232_registers_to_one_block() -> None:
    assert occupancy(build(shared=1024), 8, H200).blocks == 1
    assert occupancy(build(shared=1024), 8, H200).limiter == "registers"


def test_registers_are_given_out_in_units_so_that_129_cost_as_much_as_136() -> None:
    assert occupancy(build(registers=129, shared=0), 4, H200) == occupancy(build(registers=136, shared=0), 4, H200)


def test_shared_memory_of_a_block_counts_the_kilobyte_that_the_system_takes() -> None:
    fits = build(registers=32, shared=H200.smem_sm // 2 - 1024)
    assert occupancy(fits, 4, H200).blocks == 2
    assert occupancy(fits | {"shared": fits["shared"] + 1}, 4, H200).blocks == 1


def test_a_build_that_spills_is_dominated_by_one_that_does_not() -> None:
    said = dominated([spilling(2652)], [build()])
    assert "spills 2652 bytes (_fwd 2652)" in said and "over 256 bytes more" in said
    assert dominated([build()], [spilling(2652)]) == ""
    assert dominated([spilling(35_000)], [spilling(33_946)]) == ""  # beside much, a little more says nothing


def test_spills_count_over_all_kernels_of_a_case_and_a_kernel_that_is_launched_again_counts_once() -> None:
    shipped = [spilling(12), spilling(308, "_scan"), spilling(7440, "_bwd")]
    assert dominated([spilling(368), build(name="_scan")], shipped) == ""
    assert "_fwd 12, _scan 7900" in dominated([spilling(12), spilling(7900, "_scan")], [*shipped[:2], shipped[0]])
    assert dominated([spilling(200)] * 3, [build()]) == ""


def test_serialized_tensor_instructions_alone_are_not_pruned() -> None:
    """On an H200 a serialized configuration of fa_fwd came within 3 % of the best: it is worth a measurement."""
    assert dominated([build(notes=["C7511"])], [build()]) == ""
    assert "C7511" in dominated([build(notes=["C7511"], spill_store_bytes=8)], [build()])


def test_a_shallow_pipeline_is_estimated_slower() -> None:
    def ms(**changes: Any) -> float:
        return estimate(build(**changes), 8, 4096, H200, 1.1e12, 5e8)

    assert ms(pipeline_depth=2) > ms(pipeline_depth=3)
    assert ms(spill_store_bytes=1000) > ms()


def test_no_estimate_is_below_the_devices_peak() -> None:
    assert estimate(build(loop_flops=0), 8, 132, H200, 989.4e9, 0) >= 1.0


def test_products_of_fp8_may_take_half_the_time_of_those_of_fp16_but_not_beside_them() -> None:
    def timed(*instructions: str) -> float:
        return estimate(
            build(loop_flops=0, sass={"loop": LOOP} | dict.fromkeys(instructions, 16)), 8, 132, H200, 989.4e9, 0
        )

    assert timed("QGMMA") == pytest.approx(timed("HGMMA") / 2)
    assert timed("QGMMA", "HMMA") == timed("HGMMA")
