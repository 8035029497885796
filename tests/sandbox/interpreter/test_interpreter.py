"""The judge for machines without a GPU: Triton's interpreter tells right candidates from wrong ones."""

import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from pgo_agent.sandbox import target
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.errors import Killed
from pgo_agent.sandbox.gate.coverage import Count
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.interpreter.schedule import Schedule
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Ran
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interpreted import cases as interpreter_cases
from pgo_agent.sandbox.judge.questions import Check
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.deviation import Error
from pgo_agent.sandbox.judge.results.stress_inputs import SCALED, STRESS_INPUTS

from tests.judges import judge_of, judged
from tests.marks import first_of
from tests.sandbox.tracing import once_looping

ROOT = Path(__file__).parents[3]
ADD, FA_FWD = ROOT / "tests" / "kernels" / "add.py", ROOT / "kernels" / "fa_fwd.py"
BUGS = {
    "a causal mask that hides the diagonal": ("offs_m[:, None] >= cols[None, :]", "offs_m[:, None] > cols[None, :]"),
    "a causal mask that shows one key too many": (
        "offs_m[:, None] >= cols[None, :]",
        "offs_m[:, None] + 1 >= cols[None, :]",
    ),
    "a sum that is not rescaled": ("l_i = l_i * alpha + tl.sum(p, 1)", "l_i = l_i + tl.sum(p, 1)"),
    "a log-sum-exp in base 2": ("(m_i + tl.math.log2(l_i)) * 0.6931471805599453", "m_i + tl.math.log2(l_i)"),
    "a ragged tail without its mask": ("        if not EVEN:\n            qk =", "        if False:\n            qk ="),
}
LAUNCH = '    _add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, z, x.numel())\n'
SUM_X = "tl.load(x_ptr + at, mask=inside) +"
SUICIDE = "    import os\n    os.kill(os.getpid(), 9)\n"  # looks as if somebody else had done it


@pytest.fixture(scope="module")
def attention() -> GpuJudge:
    return judge_of(FA_FWD)


@pytest.fixture(scope="module")
def addition() -> GpuJudge:
    return judge_of(ADD)


def line_of(source: str, text: str) -> int:
    (line,) = [i for i, x in enumerate(source.splitlines(), 1) if text in x]
    return line


@pytest.mark.long
def test_attention_as_shipped_is_checked_in_all_configurations_of_its_list(attention: GpuJudge) -> None:
    found = judged(attention)
    assert (found.verdict, found.stage) == (Verdict.CHECKED, "interpreter"), found.reason
    tried = Counter(c["case"] for c in found.evidence["numerics"] if not c["strain"])
    small = {c: n for c, n in tried.items() if not c.startswith("HELD_OUT")}
    assert small.keys() == {"d64-even", "d64-ragged-causal", "d128-ragged"} and min(small.values()) >= 3
    counts = found.coverage.counts
    assert counts["configurations"] == Count(6, 6) and counts["small cases"] == Count(3, 3)


@pytest.mark.long
@pytest.mark.parametrize("bug", first_of(BUGS))
def test_attention_is_wrong_with(bug: str, attention: GpuJudge) -> None:
    found = judged(attention, *BUGS[bug])
    assert found.verdict == Verdict.WRONG, found.reason
    assert "max error" in found.reason


def test_an_addition_as_shipped_is_checked(addition: GpuJudge) -> None:
    found = judged(addition)
    assert found.verdict == Verdict.CHECKED, found.reason
    tried = Counter(c["case"] for c in found.evidence["numerics"] if not c["strain"])
    assert tried == {"even": 2, "ragged": 2, "HELD_OUT/odd": 1}
    assert found.coverage.counts["held-out cases"] == Count(1, 1) and "odd" not in found.reason


def test_a_mistake_in_the_second_configuration_alone_is_found(addition: GpuJudge) -> None:
    found = judged(
        addition, "+ tl.load(y_ptr + at, mask=inside)", "+ tl.load(y_ptr + at, mask=inside) * (BLOCK == 1024)"
    )
    assert found.verdict == Verdict.WRONG
    assert len(found.evidence["numerics"]) == 2


def test_a_nan_in_one_element_is_wrong(addition: GpuJudge) -> None:
    found = judged(addition, "    return z\n", "    z[7] = float('nan')\n    return z\n")
    assert found.verdict == Verdict.WRONG
    assert "1 elements are NaN or infinite" in found.reason


def test_an_output_of_another_shape_is_wrong_and_both_shapes_are_named(addition: GpuJudge) -> None:
    found = judged(addition, "    return z\n", "    return z[:-1]\n")
    assert found.verdict == Verdict.WRONG
    assert "float32[2047]" in found.reason
    assert "float32[2048]" in found.reason


def test_an_output_of_another_type_is_wrong(addition: GpuJudge) -> None:
    found = judged(addition, "    return z\n", "    return z.half()\n")
    assert (found.verdict, "float16[2048]" in found.reason) == (Verdict.WRONG, True)


def test_a_launcher_that_raises_is_a_build_error_with_its_line(addition: GpuJudge) -> None:
    raising = LAUNCH + "    raise ValueError('no such size')\n"
    found = judged(addition, LAUNCH, raising)
    assert found.verdict == Verdict.BUILD_ERROR
    line = line_of(addition.target.source.replace(LAUNCH, raising), "no such size")
    assert found.reason == f"even: line {line}: ValueError: no such size"


def test_a_kernel_that_raises_is_a_build_error_with_its_line(addition: GpuJudge) -> None:
    found = judged(addition, "    inside = at < n\n", "    inside = at < nowhere\n")
    assert found.verdict == Verdict.BUILD_ERROR
    assert f"line {line_of(addition.target.source, 'inside = at < n')}: " in found.reason
    assert "nowhere" in found.reason


def test_results_that_are_right_do_not_excuse_a_changed_input(addition: GpuJudge) -> None:
    found = judged(
        addition,
        "    tl.store(z_ptr + at,",
        "    tl.store(y_ptr + at, 0.0 * at, mask=at < 1)\n    tl.store(z_ptr + at,",
    )
    assert found.verdict == Verdict.WRONG, "the sum was computed of the changed input"
    late = "    return z\n", "    y.neg_()\n    return z\n"
    found = judged(addition, *late)
    assert (found.verdict, found.reason) == (Verdict.CHEATING, "even: the inputs were changed: y")


@pytest.mark.long
def test_a_softmax_without_its_maximum_breaks_down_where_the_inputs_are_stress_inputs(attention: GpuJudge) -> None:
    found = judged(attention, "m_new = tl.maximum(m_i, tl.max(qk, 1) * scale)", "m_new = tl.zeros_like(m_i)")
    assert found.verdict == Verdict.WRONG
    assert "inputs times 8: " in found.reason and "NaN or infinite" in found.reason


CUT = ("    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=inside)",
       "    tl.store(z_ptr + at, tl.clamp(tl.load(x_ptr + at, mask=inside), -9.0, 9.0)")  # fmt: skip


def test_a_result_fitted_to_the_usual_inputs_is_wrong_where_they_are_not(addition: GpuJudge) -> None:
    found = judged(addition, *CUT)
    assert found.verdict == Verdict.WRONG and "inputs times 8: output 0: max error" in found.reason


@pytest.mark.parametrize(
    ("old", "new"), [CUT, ("    return x + y\n", "    assert x.abs().max() < 9\n    return x + y\n")]
)
def test_stress_inputs_do_not_count_where_the_target_itself_breaks_down(old: str, new: str, tmp_path: Path) -> None:
    text = ADD.read_text()
    assert text.count(old) == 1
    (tmp_path / "add.py").write_text(text.replace(old, new))
    judge = GpuJudge(target.read(tmp_path / "add.py"), gpu=None)
    try:
        assert judged(judge, "    return z\n", "    return z  # the candidate\n").verdict == Verdict.CHECKED
    finally:
        judge.close()


STORE = "    tl.store(z_ptr + at,"
SUM = "tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)"
FITTED = {  # stress input -> a sum that is right of the usual inputs
    "outliers": f"tl.clamp({SUM}, -60.0, 60.0)",
    "equal rows": f"tl.where(tl.max({SUM}) - tl.min({SUM}) < 1.0e-9, 0.0, {SUM})",
    "small integers": f"({SUM}) + tl.where(at % 16 == 0, 2.3841858e-07, 0.0)",
    "a NaN": f"tl.where(({SUM}) == ({SUM}), {SUM}, 0.0)",
    "an infinity": f"tl.where(tl.abs({SUM}) > 1.0e30, 1.0e30, {SUM})",
}


@pytest.mark.parametrize("stress_input", first_of(FITTED))
def test_a_sum_that_is_right_of_the_usual_inputs_alone_is_wrong_with(stress_input: str, addition: GpuJudge) -> None:
    found = judged(addition, SUM, FITTED[stress_input])
    assert found.verdict == Verdict.WRONG, found.reason
    assert f" with {stress_input}: output 0: " in found.reason
    assert found.evidence["numerics"][-1]["strain"] == stress_input


def test_a_maximum_that_drops_a_nan_is_wrong_where_the_target_keeps_it(tmp_path: Path) -> None:
    keeping = f"tl.maximum({SUM}, 0.0, propagate_nan=tl.PropagateNan.ALL)"
    path = tmp_path / "add.py"
    path.write_text(ADD.read_text().replace(SUM, keeping).replace("return x + y", "return torch.relu(x + y)"))
    judge = GpuJudge(target.read(path), gpu=None)
    found = judged(judge, ", propagate_nan=tl.PropagateNan.ALL", "")
    judge.close()
    assert found.verdict == Verdict.WRONG and "with a NaN: output 0: 1 elements are NaN" in found.reason, found.reason


def test_evidence_holds_every_stress_input_that_was_tried_and_which_did_not_count(addition: GpuJudge) -> None:
    found = judged(addition, "    return z\n", "    return z  # the candidate\n")
    tried = Counter(c["strain"] for c in found.evidence["numerics"] if c["strain"])
    assert tried == {s.name: 2 if s is SCALED else 1 for s in STRESS_INPUTS if not s.masks}
    assert all(c["errors"] and c["bounds"] and c["seed"] for c in found.evidence["numerics"])
    assert {d["strain"]: d["why"] for d in found.evidence["dropped"]} == {
        name: f"inputs() holds nothing for {name}" for name in ("wholly masked rows", "rows apart")
    }


FIRST = "mask=tl.program_id(0) == 0"
OUTSIDE = {
    "writes 4 bytes before z_ptr": f"    tl.store(z_ptr - 1, 0.0, {FIRST})\n{STORE}",
    "writes 4 bytes past the end of z_ptr": f"    tl.store(z_ptr + n, 0.0, {FIRST})\n{STORE}",
    "writes 4 bytes past the end of y_ptr": f"    tl.store(y_ptr + n, 0.0, {FIRST})\n{STORE}",
    "reads 8 bytes past the end of x_ptr": f"    tl.load(x_ptr + n + 1, {FIRST})\n{STORE}",
    "updates 4 bytes past the end of z_ptr": f"    tl.atomic_add(z_ptr + n, 0.0, {FIRST})\n{STORE}",
}


@pytest.mark.parametrize("what", first_of(OUTSIDE))
def test_a_kernel_that_leaves_its_tensors_is_wrong_with_line_and_distance(what: str, addition: GpuJudge) -> None:
    found = judged(addition, STORE, OUTSIDE[what])
    line = line_of(addition.target.source, STORE)
    assert (found.verdict, found.reason) == (Verdict.WRONG, f"even: line {line}: {what}")


def test_what_was_read_behind_an_input_is_seen_where_it_is_written_behind_the_output(addition: GpuJudge) -> None:
    copied = f"    tl.store(z_ptr + n, tl.load(x_ptr + n), mask=tl.program_id(0) == 0)\n{STORE}"
    found = judged(addition, STORE, copied)
    assert (found.verdict, "past the end of x_ptr" in found.reason) == (Verdict.WRONG, True)


def test_an_output_that_was_made_of_zeros_is_guarded_as_well(addition: GpuJudge) -> None:
    zeros = addition.target.source.replace("torch.empty_like(x)", "torch.zeros_like(x)")
    assert zeros != addition.target.source
    found = addition.verdict(Check(source=zeros.replace(STORE, OUTSIDE["writes 4 bytes past the end of z_ptr"])))
    assert (found.verdict, "past the end of z_ptr" in found.reason) == (Verdict.WRONG, True)
    assert addition.verdict(Check(source=zeros)).verdict == Verdict.CHECKED


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _add(x, y, z, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(z + at, gl.load(x + at, mask=at < n) + gl.load(y + at, mask=at < n), mask=at < n)


def kernel(x, y):
    z = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
    return z


def reference"""
LACKING = {
    "inline assembly": (SUM_X, 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [X], tl.float32, True, 1) +'),
    "a function of libdevice": (SUM_X, "tl.extra.libdevice.j0(X) +"),
    "a Gluon kernel": ("\ndef reference", GLUON),
    "a Gluon kernel that calls Triton's library": (
        "\ndef reference",
        GLUON.replace("    gl.store(z + at, ", "    gl.store(z + at, 0.0 * gl.max(gl.load(x + at, mask=at < n)) + "),
    ),
}


@pytest.mark.parametrize("what", first_of(LACKING))
def test_what_the_interpreter_lacks_is_no_fault_of_the_candidate(what: str, addition: GpuJudge) -> None:
    old, new = LACKING[what]
    found = judged(addition, old, new.replace("X", SUM_X.removesuffix(" +")))
    assert found.verdict == Verdict.BUILT, found.reason
    assert "not supported in interpreter mode" in found.reason


def test_a_candidate_that_ends_its_process_is_crashed_and_the_next_is_judged(addition: GpuJudge) -> None:
    found = judged(addition, LAUNCH, "    import os\n\n    os._exit(7)\n")
    assert found.verdict == Verdict.CRASHED
    assert judged(addition).verdict == Verdict.CHECKED


def test_an_interpreter_killed_again_and_again_is_a_fault_and_no_verdict(addition: GpuJudge) -> None:
    with pytest.raises(Killed, match=f"the interpreting process was killed {box.ATTEMPTS} times in a row"):
        judged(addition, LAUNCH, SUICIDE)
    assert judged(addition).verdict == Verdict.CHECKED


def test_foreign_code_that_kills_itself_stays_undecided_and_stops_nothing(addition: GpuJudge) -> None:
    source = addition.target.source.replace(LAUNCH, SUICIDE)
    found = addition.verdict(Check(source=source, foreign=True))
    assert (found.verdict, found.stage) == (Verdict.UNDECIDED, "interpreter"), found.reason


def test_an_answer_names_the_kernels_that_ran_and_counts_the_configurations(tmp_path: Path) -> None:
    source = ADD.read_text()
    assert source.count(LAUNCH) == 1
    both = source.replace(LAUNCH, f"{LAUNCH}    _idle[(0,)](z)\n").replace("\n\ndef kernel", f"{IDLE}\n\ndef kernel")
    assert interpret_for(tmp_path, both, 60.0).code == 0
    (entry,) = json.loads((tmp_path / "out" / "result.json").read_text())["even"]
    assert (entry["launched"], entry["configs"]) == (["_add"], 2), entry


IDLE = """

@triton.jit
def _idle(z_ptr):
    tl.store(z_ptr, 7.0)
"""


def interpret_for(folder: Path, source: str, seconds: float) -> Ran:
    """The interpreter's process itself, with a deadline of its own."""
    import torch

    _, candidate = trace_and_compile.place(folder, target.read(ADD), source, hide=True)
    (folder / "in").mkdir()
    given = tensors.save({"x": torch.ones(64), "y": torch.ones(64)}, folder / "in", "0")
    request = {"candidate": candidate, "cases": {"even": given}, "configs": {"even": 1}, "device": "h200"}
    (folder / "request.json").write_text(json.dumps(request))
    return box.choose().run("pgo_agent.sandbox.interpreter", folder, seconds, env={"TRITON_INTERPRET": "1"})


def test_a_kernel_that_never_ends_is_ended_at_its_deadline(tmp_path_factory: pytest.TempPathFactory) -> None:
    inside = "    inside = at < n\n"
    endless = ADD.read_text().replace(inside, f"{inside}    while n > 0:\n        n += 0\n")
    announced = endless.replace(LAUNCH, f"    print('looping', flush=True)\n{LAUNCH}")
    ran = once_looping(lambda seconds: interpret_for(tmp_path_factory.mktemp("endless"), announced, seconds))
    assert ran.timed_out
    assert not ran.killed


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_nan_or_infinity_where_the_reference_has_none_is_a_problem(value: float) -> None:
    import torch

    exact, out = torch.zeros(8, dtype=torch.float64), torch.zeros(8)
    expected = numerics.Expected("case", 0, (exact,), (Error(1.0, 1.0, 0),), ((1.0, 1.0),), ("float32",))
    assert numerics.check([out], expected).problem == ""
    out[3] = value
    assert "1 elements are NaN or infinite" in numerics.check([out], expected).problem
    exact[3] = value
    assert numerics.check([out], expected).problem == ""


# known gaps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "torch.cuda.get_device_properties(x.device).multi_processor_count",
        "torch.cuda.get_device_capability()",
        "triton.runtime.driver.active.get_active_torch_device()",
        "torch.cuda.device(x.device).__enter__()",
    ],
)
def test_a_launcher_may_ask_about_its_device(question: str, addition: GpuJudge) -> None:
    found = judged(addition, LAUNCH, f"    {question}\n{LAUNCH}")
    assert found.verdict == Verdict.CHECKED, found.reason


@pytest.mark.slow
def test_an_output_that_is_never_written_is_wrong_where_the_result_is_zero(tmp_path: Path) -> None:
    path = tmp_path / "add.py"
    cases = ADD.read_text().replace("dict(n=2048)", "dict(n=1 << 20)").replace(', "ragged": dict(n=1000)', "")
    path.write_text(cases.replace("return x + y", "return x - x"))
    judge = GpuJudge(target.read(path), gpu=None)
    found = judged(judge, LAUNCH, "")
    judge.close()
    assert found.verdict == Verdict.WRONG


def test_loads_through_tensor_descriptors_are_interpreted(addition: GpuJudge) -> None:
    load = "    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK]).load([tl.program_id(0) * BLOCK])\n"
    found = judged(addition, STORE, load + STORE.replace("tl.store(z_ptr + at,", "tl.store(z_ptr + at, 0.0 * x +"))
    assert found.verdict == Verdict.CHECKED, found.reason


# which configurations -------------------------------------------------------------------------------------------------


def tried(schedule: Schedule, lists: dict[str, list[str]]) -> list[tuple[str, int]]:
    """What it had run, where every run gives results."""
    done = []
    for case, index in schedule.jobs():
        done.append((case, index))
        schedule.ran(case, index, lists[case], tells=True)
    return done


def test_each_case_tries_other_configurations_and_the_first_of_a_list_come_first() -> None:
    names = [str(i) for i in range(9)]
    schedule = Schedule({"a": 3, "b": 3, "a with outliers": 1}, plain=["a", "b"], more_until=60.0)
    done = tried(schedule, dict.fromkeys(("a", "b", "a with outliers"), names))
    assert done[:7] == [*(("a", i) for i in (0, 1, 2)), ("b", 0), ("b", 3), ("b", 4), ("a with outliers", 0)]
    assert {i for _, i in done} == set(range(9)) and len(done) == len(set(done))


def test_without_time_a_long_list_is_a_sample_that_the_seed_draws() -> None:
    def sample(seed: int) -> list[int]:
        schedule = Schedule({"a": 3}, plain=["a"], more_until=60.0, seed=seed)
        jobs, names = schedule.jobs(), [str(i) for i in range(288)]
        found = []
        for _, index in zip(range(20), jobs, strict=False):
            found.append(index[1])
            schedule.ran("a", index[1], names, tells=True)
        return found

    assert sample(1) == sample(1) != sample(2) and sample(1)[:3] == [0, 1, 2] and max(sample(1)) > 100
    late = Schedule({"a": 1, "b": 1}, late=["b"], begin_by=-1.0, plain=["a"], more_until=-1.0)
    assert tried(late, {"a": ["0", "1"]}) == [("a", 0)]


def test_a_held_out_case_that_moves_little_of_a_large_tensor_is_left_out_before_it_is_made() -> None:
    import torch

    def inputs(_case: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"x": torch.zeros(1 << 44, dtype=torch.int8, device=generator.device)[:8]}  # 16 TiB

    module = ModuleType("far_apart")
    vars(module).update(inputs=inputs, flops=lambda _: 8, bytes_moved=lambda _: 8)
    assert "a tensor of 1.76e+13 bytes" in interpreter_cases.large(module, {})
    vars(module).update(inputs=lambda _case, generator: {"x": torch.randn(8, 8, generator=generator)})
    assert interpreter_cases.large(module, {}) == ""
