"""Where the simulator's own numbers go wrong, a launcher that never passes them is right, and one that does is not."""

from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.variant_launches import Launcher
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.barriers import stage
from pgo_agent.sandbox.gate.evidence import Evidence, Side
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

ROUNDS = target.read(Path(__file__).parents[3] / "kernels" / "rounds.py")
LAUNCH = "    _rounds[(1,)](x, y, rows, num_warps=4)\n"


def examined(folder: Path, launch: str, case: str = "CASES/large", told: bool = True) -> Evidence:
    """What the stage says of the kernel when kernel() launches it so in one case, which its build may tell of. It is
    traced and not compiled."""
    source = ROUNDS.source.replace(LAUNCH, launch)
    assert source != ROUNDS.source or launch == LAUNCH
    contents = ContentStore(folder)
    section, name = case.split("/")
    builder = Builder(ROUNDS, devices.find("h100"), box.choose(), contents)
    traced = trace_and_compile.trace(
        builder.box, contents, ROUNDS, builder.device, source, {section: [name]}, 1, untrusted=True
    )
    names = builder.keys(traced)
    files = {names[n]: contents.put(text, "ttgir") for n, text in traced["texts"].items()}
    kernels = {k: {"name": "_rounds", "files": {"ttgir": digest}} for k, digest in files.items()}
    plan = traced["traced"][section][name][0]["plan"]
    for step in (s for s in plan["steps"] if "kernel" in s):
        step["kernel"] = names[step["kernel"]]
    launcher = Launcher(builder, source, {case: traced["described"]["sets"][section][name]} if told else {})
    manifest: dict[str, object] = {"schema": 1, "kernels": kernels, "plans": {case: {"as written": plan}}}
    ours = Side(contents, manifest, {case: [plan]}, {k: {} for k in kernels}, launcher=launcher)
    return stage.stage(ours, Side(contents, {**manifest, "kernels": {}}, {}, {}))


def guarded(condition: str, otherwise: str) -> str:
    return f"    if {condition}:\n    {LAUNCH}    else:\n        {otherwise}\n"


LONG = "_rounds[(1,)](x, y, 1 << 20, num_warps=4)"  # longer than is followed, and with many rows


@pytest.mark.parametrize("otherwise", ["torch.sum(x, 0, out=y)", "raise ValueError(rows)", LONG])
def test_numbers_that_kernel_guards_against_do_not_count(tmp_path: Path, otherwise: str) -> None:
    found = examined(tmp_path, guarded("rows >= 16", otherwise))
    assert found.verdict is None, found
    assert "kernel() does not launch it with these numbers" in found.reason


@pytest.mark.parametrize("launch", [LAUNCH, guarded("rows != 16", "y.zero_()")])
def test_a_launch_that_kernel_makes_with_such_numbers_is_a_race_and_named(tmp_path: Path, launch: str) -> None:
    found = examined(tmp_path, launch)
    assert found.verdict is Verdict.RACE, found
    assert "kernel() launches it so for CASES/large with rows = 0" in found.found["trace"]


def test_numbers_that_no_parameter_gives_stay_a_race(tmp_path: Path) -> None:
    found = examined(tmp_path, LAUNCH.replace("rows,", "len(str(rows)) * 1024,"))
    assert found.verdict is Verdict.RACE, found
    assert not any("kernel() launches" in line for line in found.found["trace"])


def test_a_case_that_the_build_of_a_candidate_does_not_tell_of_is_not_asked_about(tmp_path: Path) -> None:
    found = examined(tmp_path, guarded("rows >= 16", "y.zero_()"), told=False)
    assert found.verdict is Verdict.RACE, found


def test_a_kernel_that_a_held_out_case_alone_launches_is_asked_about_too_and_nothing_of_the_case_is_said(
    tmp_path: Path,
) -> None:
    right = examined(tmp_path, guarded("rows >= 16", "y.zero_()"), "HELD_OUT/some")
    assert right.verdict is None, right
    wrong = examined(tmp_path, LAUNCH, "HELD_OUT/some")
    assert wrong.verdict is Verdict.RACE
    assert wrong.found["trace"][-1] == "kernel() launches it so for a held-out case with other numbers"
    assert not any("some" in line or "rows" in line or "arg" in line for line in wrong.found["trace"])
