"""Kernels that are not as the moves would like them: each run goes through, or says what to do."""

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.moves import Best, Proposal, Skipped, catalogue, launch_config
from pgo_agent.agent.moves.launch_sites import Config, sites, with_configs
from pgo_agent.agent.moves.rewrites import guarded_loop
from pgo_agent.sandbox import devices

from tests.agent.command_line import ADD, Done, pgo
from tests.conftest import ROOT

H200 = devices.find("h200")
DECORATOR = ADD[ADD.index("@triton.autotune") : ADD.index("@triton.jit")]
LAUNCH = '_add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, z, x.numel())'
PLAIN = ADD.replace(DECORATOR, "")
LISTED = """_add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
        x,
        y,
        z,
        x.numel(),
        BLOCK=1024,  # elements of a block
    )"""  # as formatters write it, with a comma at the end
TWICE = """@triton.jit
def _twice(z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + at, 2.0 * tl.load(z_ptr + at, mask=at < n), mask=at < n)


"""
BOTH = LAUNCH + '\n    _twice[lambda meta: (triton.cdiv(z.numel(), meta["BLOCK"]),)](z, z.numel()'


def optimized(folder: Path, text: str, *more: str) -> tuple[Done, dict[str, Any]]:
    """A run on a target of this text, and what `show --json` says of it."""
    (folder / "it.py").write_text(text)
    done = pgo("optimize", "it.py", *more, cwd=folder)
    return done, json.loads(pgo("show", "--json", cwd=folder).out) if done.code == 0 else {}


def two(folder: Path, decorator: str, more: str, most: int) -> tuple[Done, dict[str, Any]]:
    text = ADD.replace("def kernel", decorator + TWICE + "def kernel").replace("return x + y", "return 2 * (x + y)")
    text = text.replace(LAUNCH, BOTH + more + ")")
    return optimized(folder, text, "--case", "1m", "--candidates", f"{most}", "--width", f"{most}", "--patience", "1")


# whole runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kernel_with_no_launch_parameter_is_its_own_tuned_baseline(tmp_path: Path) -> None:
    text = PLAIN.replace("n, BLOCK: tl.constexpr)", "n)").replace(
        "    at =", "    BLOCK: tl.constexpr = 1024\n    at ="
    )
    text = text.replace(LAUNCH, "_add[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel())")
    text = text.replace('LAUNCH_SPACE = {"BLOCK": [512, 1024], "num_warps": [4]}\n', "")
    done, shown = optimized(tmp_path, text, "--case", "1m", "--candidates", "4")
    assert done.code == 0 and "the launch names no parameter to vary" in done.err
    assert shown["baseline"]["shipped"] == shown["baseline"]["tuned"]
    assert "num_warps=8" in [v["move"] for v in shown["verdicts"]]  # an option can be added to any launch
    assert "not applied to shipped: load through tensor descriptors: " in pgo("show", cwd=tmp_path).out


@pytest.mark.slow
def test_a_plain_launch_has_its_grid_built_and_its_moves_tried(tmp_path: Path) -> None:
    done, shown = optimized(tmp_path, PLAIN.replace(LAUNCH, LISTED), "--case", "1m", "--candidates", "4")
    assert done.code == 0 and shown["baseline"]["failures"] == []
    points = {p["said"]: p["config"] for p in shown["baseline"]["points"]}
    assert points["BLOCK=512 num_warps=4"] == {"BLOCK": 512, "num_warps": 4} and points["BLOCK=1024"]
    assert {v["verdict"] for v in shown["verdicts"]} <= {"checked", "no_change"} and "BLOCK=512 num_warps=4" in done.out


@pytest.mark.slow
def test_each_kernel_of_a_launcher_has_its_moves_by_its_name(tmp_path: Path) -> None:
    done, shown = two(tmp_path, "", ", BLOCK=512, num_warps=4", 12)
    names = [v["move"] for v in shown["verdicts"]]
    assert {"best of the grid in _add", "num_warps=8 in _twice", "BLOCK=256 in _twice"} <= set(names), done.err
    assert {v["verdict"] for v in shown["verdicts"]} <= {"checked", "no_change"}


@pytest.mark.slow
def test_two_autotuned_kernels_are_not_given_one_anothers_configurations(tmp_path: Path) -> None:
    configs = 'configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})]'
    done, shown = two(tmp_path, f'@triton.autotune({configs}, key=["n"])\n', "", 4)
    assert done.code == 0 and shown["baseline"]["failures"] == [], done.err
    assert shown["baseline"]["tuned"]["CASES/1m"]["config"].keys() > {"_add.BLOCK", "_twice.BLOCK"}
    assert "best of the grid in _add" in [v["move"] for v in shown["verdicts"]]
    assert {v["verdict"] for v in shown["verdicts"]} <= {"checked", "no_change"}


def test_a_kernel_of_another_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    cut, kernel = ADD.index("@triton.autotune"), ADD.index("def kernel")
    (tmp_path / "helper.py").write_text("import triton\nimport triton.language as tl\n\n" + ADD[cut:kernel])
    done, _ = optimized(tmp_path, ADD[:cut] + "from helper import _add\n\n\n" + ADD[kernel:])
    assert done.code == 2 and "No module named 'helper'" in done.err
    assert "put what it needs of helper into the file, or install that as a package" in done.err


@pytest.mark.slow
def test_a_kernel_of_an_installed_package_is_judged_and_no_move_can_rewrite_it(tmp_path: Path) -> None:
    pytest.importorskip("liger_kernel")
    cut, kernel = ADD.index("@triton.autotune"), ADD.index("def kernel")
    text = ADD[:cut] + "from liger_kernel.ops.swiglu import _swiglu_forward_kernel\n\n\n" + ADD[kernel:]
    launch = "_swiglu_forward_kernel[(x.numel() // 64,)](x, y, z, 64, 1.0, n_cols=64, BLOCK_SIZE=64)"
    text = text.replace(LAUNCH, launch).replace("return x + y", "return torch.nn.functional.silu(x) * y")
    text = text.replace("n=1000", "n=640").replace("n=9_991", "n=9_984")
    done, _ = optimized(tmp_path, text.replace('LAUNCH_SPACE = {"BLOCK": [512, 1024], "num_warps": [4]}\n', ""))
    assert done.code == 0, done.err
    reason = "the launcher launches no kernel that is defined in this file"
    assert reason in done.err and f"every move: {reason}" in pgo("show", cwd=tmp_path).out


# moves ----------------------------------------------------------------------------------------------------------------


def static(name: str, flops: int, **more: Any) -> dict[str, Any]:
    base = {"registers": 200, "shared": 65536, "pipeline_depth": 2, "sass": {"all": 100 + flops}}
    return base | {"name": name, "loop_flops": flops} | more


def proposed(source: str, best: Sequence[Best], measured: Sequence[Config] = ()) -> list[Proposal | Skipped]:
    return list(catalogue.propose(source, {f"CASES/{i}": b for i, b in enumerate(best)}, measured, H200))


def test_the_kernel_that_does_the_work_comes_first_and_its_steps_are_all_there() -> None:
    main, small = static("_fa_bwd", 8), static("_delta", 0, registers=40, shared=0)
    best = Best({"BLOCK": 128, "STEP": 64, "num_warps": 8, "num_stages": 2}, main, {"_fa_bwd": main, "_delta": small})
    found = proposed((ROOT / "kernels" / "fa_bwd.py").read_text(), [best])
    names = [p.move for p in found if isinstance(p, Proposal) and p.kind == "launch"]
    assert names[0] == "best of the grid in _fa_bwd" and len(names) == len(set(names))
    first = next(i for i, n in enumerate(names) if n.endswith(" in _delta"))
    assert all(n.endswith(" in _fa_bwd") for n in names[:first]) and names[first:] == [
        "num_warps=8 in _delta", "num_warps=2 in _delta",
    ]  # fmt: skip
    levers = ("num_stages=3", "BLOCK=256", "BLOCK=64", "STEP=128", "STEP=32", "num_warps=16", "num_warps=4")
    assert {f"{n} in _fa_bwd" for n in levers} <= set(names[:first])
    for p in found:
        ast.parse(p.source if isinstance(p, Proposal) else "")


def test_a_number_that_stands_in_the_grid_as_well_is_not_varied_by_itself() -> None:
    source = PLAIN.replace(LAUNCH, "grid = (triton.cdiv(x.numel(), 1024),)\n    _add[grid](x, y, z, 0, BLOCK=1024)")
    profile = static("_add", 0)
    found = proposed(source, [Best({}, profile, {"_add": profile})])
    assert not any("BLOCK" in p.move for p in found if isinstance(p, Proposal))
    (why,) = (s.reason for s in found if isinstance(s, Skipped) and "BLOCK" in s.move)
    assert "written with 1024, too: give both one name" in why
    named = source.replace("    grid", "    size = 1024\n    grid").replace("BLOCK=1024", "BLOCK=size")
    assert "BLOCK" in sites(named.replace("(), 1024)", "(), size)"))[0].values


def test_a_configuration_goes_to_the_launch_that_it_is_of() -> None:
    source = ADD.replace("def kernel", DECORATOR + TWICE + "def kernel")
    add, twice = found = sites(source)
    told = {"_add.BLOCK": 512, "_add.num_warps": 4, "_twice.BLOCK": 64}
    assert launch_config.config_of(add, found, told) == {"BLOCK": 512, "num_warps": 4}
    assert launch_config.config_of(twice, found, told) == {"BLOCK": 64}
    assert launch_config.config_of(twice, found, {"_add.BLOCK": 512}) is None


def test_a_move_that_writes_no_python_is_listed_and_reaches_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(guarded_loop.MOVE, name="broken", rewrite=lambda subject: subject.source + "def (:\n")
    monkeypatch.setattr(catalogue, "SOURCE_MOVES", (broken,))
    found = proposed(ADD, [Best({"BLOCK": 1024, "num_warps": 4}, static("_add", 0))])
    (skipped,) = (s for s in found if s.move == "broken")
    assert isinstance(skipped, Skipped) and "a fault of this move: it wrote what is not Python" in skipped.reason
    assert f"line {len(ADD.splitlines()) + 1}" in skipped.reason
    assert all(p.kind == "launch" for p in found if isinstance(p, Proposal))


@pytest.mark.parametrize(
    "call",
    [
        "k[(1,)](x, 5)",
        "k[(1,)]()",
        "k[(1,)](x, (5))",
        "k[(1,)](\n        x,\n        5,\n    )",
        "k[(1,)](x, 5,  # the end, with a (\n    )",
        "k[(1,)](\n        x,\n        *(5, 6),  # more )\n    )",
        "k[(1,)](x, n=')', )",
        "k[(1,)](x, 5); y = 'ü'",
    ],
)
def test_an_option_is_added_to_a_call_however_it_is_written(call: str) -> None:
    source = f"import triton\n\x0c\n@triton.jit\ndef k(x, n): pass\ndef kernel(x):\n    'ü\u2028'\n    {call}\n"
    (site,) = sites(source)
    changed = with_configs(source, site, [{"num_warps": 8, "num_stages": 2}])
    (found,) = sites(changed)
    assert found.values == {"num_warps": 8, "num_stages": 2}

    def spoken(text: str) -> str:
        return ast.unparse(ast.parse(text)).replace(", num_warps=8, num_stages=2", "")

    assert spoken(changed).replace("num_warps=8, num_stages=2", "") == spoken(source)
