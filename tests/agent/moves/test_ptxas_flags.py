"""The flag for ptxas: it stands at every launch of a kernel that spills, and its arithmetic stays what it is."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.moves import ptxas_flags
from pgo_agent.agent.moves.launch_sites import Config, sites, with_configs
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.compiler import ptxas as allowed
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

from tests.agent.composing import checked, compose, reason, swiglu, taken
from tests.conftest import ROOT

H200 = devices.find("h200")
SICK = {"registers": 255, "spill_store_bytes": 680}
PLAIN = """
import triton
@triton.jit
def k(x, n, BLOCK):
    pass
def kernel(x):
    k[(1,)](x, 1, 64)
"""
CALL = "k[(1,)](x, 1, 64)"
FLAG = 'ptx_options="--register-usage-level=0"'
ARITHMETIC = ("HGMMA", "HMMA", "FFMA", "FADD")  # FMUL and MUFU may be done again in place of kept
CONTRACT = """
def reference(x, gate, up):
    g, u = x @ gate.T, x @ up.T
    return [torch.nn.functional.silu(g) * u, g, u]


def inputs(case, generator):
    def matrix(*size):
        return torch.randn(size, generator=generator, device=generator.device, dtype=torch.float32).half()

    S, dim, wide = case["S"], case["dim"], case["wide"]
    return {"x": matrix(2, S, dim), "gate": matrix(wide, dim), "up": matrix(wide, dim)}


CASES = {"wide": dict(S=4096, dim=4096, wide=4096)}
SMALL = {"small": dict(S=64, dim=64, wide=128)}
HELD_OUT = {}


def flops(case):
    return 1


def bytes_moved(case):
    return 1
"""


def rewritten(source: str, static: Mapping[str, Any] = SICK, kernel: str = "k") -> str:
    return ptxas_flags.rewrite(RewriteInput(source, kernel, H200, {}, static))


# where it writes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "changed"),
    [
        ("k[(1,)](x, 1, 64)", f"k[(1,)](x, 1, 64, {FLAG})"),
        ("k[(1,)]()", f"k[(1,)]({FLAG})"),
        ("k[(1,)](x, 1, BLOCK=(64))", f"k[(1,)](x, 1, BLOCK=(64), {FLAG})"),
        ("k[(1,)](x, *n, num_warps=4,)", f"k[(1,)](x, *n, num_warps=4, {FLAG},)"),
        ("k[(1,)](\n        x,\n        1,  # n\n    )", f"k[(1,)](\n        x,\n        1, {FLAG},  # n\n    )"),
        ("k[(1,)](\n        x,\n        1  # n\n    )", f"k[(1,)](\n        x,\n        1, {FLAG}  # n\n    )"),
        ("k[(1,)](x, k2[(1,)](x))", f"k[(1,)](x, k2[(1,)](x), {FLAG})"),
        ("h = k[lambda meta: (meta['BLOCK'],)](x)", f"h = k[lambda meta: (meta['BLOCK'],)](x, {FLAG})"),
        ("k[(1,)](x, 1, 64); k[(2,)](x, 2, 64)", f"k[(1,)](x, 1, 64, {FLAG}); k[(2,)](x, 2, 64, {FLAG})"),
    ],
)
def test_the_flag_is_one_more_argument_and_nothing_else_changes(call: str, changed: str) -> None:
    found = rewritten(PLAIN.replace(CALL, call))
    assert found == PLAIN.replace(CALL, changed)
    ast.parse(found)


def test_another_kernel_of_the_file_keeps_its_launch() -> None:
    both = PLAIN + "    other[(1,)](x)\n"
    assert rewritten(both) == rewritten(PLAIN) + "    other[(1,)](x)\n"


@pytest.mark.parametrize("name", ["fa_fwd", "fa_bwd", "gemm"])
def test_an_autotuned_kernel_with_heuristics_gets_it_at_its_launch(name: str) -> None:
    source = (ROOT / "kernels" / f"{name}.py").read_text()
    changed = rewritten(source, kernel=f"_{name}")
    assert source.count("ptx_options") == 0 and changed.count("ptx_options") == 1
    assert target.same_contract(source, changed)
    assert [s.kernel for s in sites(changed)] == [s.kernel for s in sites(source)]


def test_the_flag_is_one_that_the_compiler_takes() -> None:
    (call,) = [n for n in ast.walk(ast.parse(rewritten(PLAIN))) if isinstance(n, ast.Call) and n.keywords]
    (flag,) = [ast.literal_eval(k.value) for k in call.keywords]
    assert allowed.flags(flag) == (flag,)


# where it does not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (CALL, "k[(1,)](x, 1, 64, ptx_options='--opt-level=2')", "says something of ptx_options"),
        (CALL, "k[(1,)](x, 1, 64, **{'ptx_options': ''})", "says something of ptx_options"),
        ("@triton.jit", '@triton.autotune([triton.Config({"ptx_options": ""})], [])\n@triton.jit', "says something"),
        ("def k(x, n, BLOCK)", "def k(x, n, BLOCK, ptx_options)", "says something of ptx_options"),
        (CALL, "k[(1,)](x, 1, **meta)", "takes **meta, which may hold ptx_options"),
        (CALL, "launch = k\n    launch[(1,)](x, 1, 64)", "no function of the file launches k[grid](...)"),
        (CALL, "k.run(x, 1, 64, grid=(1,))", "no function of the file launches k[grid](...)"),
    ],
)
def test_it_does_not_write_where_it_cannot_tell(old: str, new: str, why: str) -> None:
    assert old in PLAIN
    assert why in reason(rewritten, PLAIN.replace(old, new))


def test_it_does_not_fire_on_a_build_that_nothing_is_known_of() -> None:
    assert reason(rewritten, PLAIN, {}) == "nothing is known of its build"


def test_fewer_registers_are_for_a_kernel_that_spills() -> None:
    assert reason(rewritten, PLAIN, {"registers": 255, "spill_store_bytes": 0}) == "it spills nothing"


def test_a_configuration_that_carries_a_flag_is_written_back_as_text() -> None:
    tuned = PLAIN.replace("@triton.jit", "@triton.autotune(configs=[], key=[])\n@triton.jit")
    config: dict[str, Any] = {"BLOCK": 64, "ptx_options": "--opt-level=1", "num_warps": 8}
    changed = with_configs(tuned, sites(tuned)[0], [config])
    assert 'triton.Config({"BLOCK": 64, "ptx_options": \'--opt-level=1\'}, num_warps=8)' in changed


# what is built --------------------------------------------------------------------------------------------------------


def profile(built: Built) -> dict[str, Any]:
    assert built.ok and not built.failures, built.failures
    (static,) = built.statics.values()
    return static


def arithmetic(static: Mapping[str, Any]) -> dict[str, int]:
    return {op: static["sass"].get(op, 0) for op in ARITHMETIC}


def check_builds(builder: Builder, source: str, kernel: str, cases: list[str], config: Config) -> None:
    """The flag makes other code of a kernel that spills, with the same arithmetic in it."""
    text = with_configs(source, sites(source)[0], [config])
    plain = builder.build(text, {"CASES": cases}, 1)
    static = profile(plain)
    assert static["spill_store_bytes"]
    built = builder.build(ptxas_flags.rewrite(RewriteInput(text, kernel, H200, config, static)), {"CASES": cases}, 1)
    assert arithmetic(profile(built)) == arithmetic(static)
    assert set(built.codes.values()).isdisjoint(plain.codes.values())


@pytest.mark.slow
def test_a_product_that_spills_is_built_anew(tmp_path: Path) -> None:
    config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
    found = target.read(ROOT / "kernels" / "gemm.py")
    check_builds(Builder(found, H200, box.choose(), ContentStore(tmp_path)), found.source, "_gemm", ["ragged"], config)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> target.Target:
    """A kernel that no move was written for, with the configurations that it ships with."""
    return target.read(compose(tmp_path_factory.mktemp("swiglu"), swiglu(), CONTRACT))


@pytest.mark.slow
def test_a_kernel_of_a_package_that_it_has_never_seen_is_built_anew(gate: target.Target, tmp_path: Path) -> None:
    config = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
    builder = Builder(gate, H200, box.choose(), ContentStore(tmp_path))
    check_builds(builder, gate.source, "_swiglu_kernel_forward", ["wide"], config)


@pytest.mark.long
def test_with_the_flag_that_kernel_is_right_on_its_small_case(gate: target.Target) -> None:
    changed = rewritten(gate.source, kernel="_swiglu_kernel_forward")
    found = checked(gate.path, changed)
    assert found.verdict == Verdict.CHECKED, found.reason


@pytest.mark.parametrize("launcher", ["mhc_mm_norm_bwd", "mhc_pre_bwd", "mhc_post_res_bwd"])
def test_a_plain_launch_of_that_package_gets_it_once(launcher: str) -> None:
    kernel = {"mhc_mm_norm_bwd": "_mhc_mm_norm_bwd_fused_kernel"}.get(launcher, f"_{launcher}_kernel")
    source = taken("liger_kernel.ops.mhc", kernel, launcher)
    changed = rewritten(source, kernel=kernel)
    assert changed.count(FLAG) == 1
    assert changed.replace(f" {FLAG},", "") == source
