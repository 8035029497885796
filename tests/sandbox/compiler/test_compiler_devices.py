"""Compiling for each device, and what a build says about itself: the static profile."""

from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.result import Built

from tests.sandbox.tracing import builder

ROOT = Path(__file__).parents[3]
ADD, FA_FWD = ROOT / "tests" / "kernels" / "add.py", ROOT / "kernels" / "fa_fwd.py"


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Built:
    fa_fwd = target.read(FA_FWD)
    built = builder(tmp_path_factory.mktemp("attention"), fa_fwd).build(fa_fwd.source, {"CASES": ["d64-4k"]}, 1)
    assert built.ok, built.failures
    return built


@pytest.mark.parametrize("device", ["a100", "h100", "b200", "rtx4090", "rtx5090"])
def test_a_kernel_compiles_for(device: str, tmp_path: Path) -> None:
    add = target.read(ADD)
    b = builder(tmp_path, add, device)
    built = b.build(add.source, {"SMALL": ["even"]}, 1)
    assert built.failures == ()
    (kernel,) = b.contents.manifest(built.bundle)["kernels"].values()
    (static,) = built.statics.values()
    assert kernel["arch"] == devices.find(device).arch
    assert static["registers"] > 0
    assert static["sass"]["LDG"] == 2 * static["sass"]["STG"]


def test_attention_uses_registers_and_spills_none(attention: Built) -> None:
    (static,) = attention.statics.values()
    assert 128 < static["registers"] <= 255
    assert (static["spill_store_bytes"], static["spill_load_bytes"], static["notes"]) == (0, 0, [])


def test_the_loop_of_attention_holds_two_dots(attention: Built) -> None:
    (static,) = attention.statics.values()
    ((choice,),) = attention.choices.values()
    blocks = choice.config["BLOCK_M"] * choice.config["BLOCK_N"]
    assert (static["dots"], static["loop_flops"]) == (2, 4 * blocks * 64)


def test_the_pipeline_is_as_deep_as_the_configuration_says(attention: Built) -> None:
    (static,) = attention.statics.values()
    ((choice,),) = attention.choices.values()
    assert static["pipeline_depth"] == choice.config["num_stages"]
    assert static["async_copies"] > 0


def test_the_hot_loop_does_the_loops_flops_shared_by_its_warpgroups(attention: Built) -> None:
    (static,) = attention.statics.values()
    ((choice,),) = attention.choices.values()
    loop = static["sass"]["loop"]
    assert static["sass"]["HGMMA"] > 0
    assert loop["tensor_flops"] == static["loop_flops"] // (choice.config["num_warps"] // 4)
    assert 0 < loop["mufu"] < loop["all"] < static["sass"]["all"]
