"""`init --inductor`: code that PyTorch's compiler wrote for small models (`inductor_code/make.py`) becomes targets."""

import re
import types
from pathlib import Path

import pytest
import torch
from pgo_agent.agent.commands.init.inductor import calls, draft, fx_text, groups, output_code, rows
from pgo_agent.agent.commands.init.inductor.draft import Draft
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo

CODE = Path(__file__).parent / "inductor_code"
SCORE = "prepare_softmax_online_0"


def drafts(path: Path, only: str = "") -> dict[str, Draft]:
    found = [g for m in output_code.read(path) for g in groups.groups(m, calls.follow(m)) if only in g.name]
    return {g.name.removeprefix("triton_"): draft.draft(g) for g in found}


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    text = (CODE / f"{name}.txt").read_text()
    assert re.search(old, text), old
    (folder / "code.py").write_text(re.sub(old, new, text))
    return folder / "code.py"


def older(folder: Path, name: str) -> Path:
    """The code as releases wrote it whose fragments say no types, no inputs and no results."""
    lines = (CODE / f"{name}.txt").read_text().splitlines()
    kept = [line for line in lines if "= PlaceHolder[" not in line and "#   return %" not in line]
    (folder / "older.py").write_text(re.sub(r' : Tensor "[^"]*"', " : ", "\n".join(kept)))
    return folder / "older.py"


def test_log_of_two_graphs_has_their_kernels_and_nothing_of_what_the_program_printed() -> None:
    first, second = output_code.read(CODE / "two_graphs.txt")
    assert [list(m.kernels) for m in (first, second)] == [
        ["triton_poi_fused_add_gelu_0"],
        ["triton_per_fused_add_copy__relu_sum_0"],
    ]
    assert "printed" not in first.text + second.text


def test_memory_that_is_written_over_is_an_input_that_changes() -> None:
    made = drafts(CODE / "two_graphs.txt")["per_fused_add_copy__relu_sum_0"]
    assert made.group.changed == ["arg0_1"]
    assert list(made.group.outputs) == ["sum_1", "relu"]


def test_shares_of_a_split_reduction_make_one_target_of_both_kernels() -> None:
    (made,) = drafts(CODE / "outer.txt").values()
    assert made.group.names == ["triton_red_fused_var_0", "triton_per_fused_var_1"]
    assert list(made.group.outputs) == ["var"]
    assert made.found and made.found.lines == ("var = torch.ops.aten.var.correction(arg0_1, [0], correction=1)",)


def test_rows_are_free_where_no_address_and_no_value_says_how_many_there_are() -> None:
    free = {
        n: d.sizes.rows for f in ("two_graphs", "loss", "matmul", "outer") for n, d in drafts(CODE / f"{f}.txt").items()
    }
    counts = {n: r.count if r else None for n, r in free.items()}
    assert counts == {
        "poi_fused_add_gelu_0": 1024,
        "per_fused_add_copy__relu_sum_0": 512,
        "per_fused__to_copy_prepare_softmax_online_0": 256,
        "per_fused__log_softmax__to_copy_nll_loss_forward_1": None,  # a reduction that is held at once
        "tem_fused_add_mm_relu_0": 256,
        "red_fused_var_0": None,  # its columns are in each address
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"x0 = \(xindex % 96\)", "x0 = (xindex % 96) + 0 * xnumel"),
        (r"tmp2 = tmp0 \+ tmp1", "tmp2 = tmp0 + tmp1 + x2"),
        (r"tl.load\(in_ptr0 \+ \(x2\)", "tl.load(in_ptr0 + (98303 - x2)"),
    ],
    ids=["the length", "a value", "an address that falls"],
)
def test_rows_are_not_free_where_the_text_uses_more_of_them(tmp_path: Path, old: str, new: str) -> None:
    made = drafts(changed(tmp_path, "two_graphs", old, new))
    assert made["poi_fused_add_gelu_0"].sizes.rows is None


def test_kernel_with_free_rows_keeps_its_text_but_for_their_number() -> None:
    made = drafts(CODE / "two_graphs.txt")["poi_fused_add_gelu_0"]
    kernel, free = made.group.launches[0].kernel, made.sizes.rows
    assert free is not None and kernel.function is not None
    text = rows.opened(kernel.text, kernel.name, free.launches[0])
    assert "xnumel = XNUMEL" in text and "xnumel = 98304" not in text
    assert "x0 = xindex % 96" in text


def test_sizes_of_a_dynamic_graph_are_those_of_the_case() -> None:
    (made,) = drafts(CODE / "dynamic.txt").values()
    assert made.sizes.case() == {"s77": 300, "s27": 1024}
    assert made.arguments == ["arg2_1", "arg3_1", "s77", "s27"]


def test_reference_of_an_older_release_is_read_without_types_inputs_and_results(tmp_path: Path) -> None:
    made = {n: d for f in ("two_graphs", "matmul") for n, d in drafts(older(tmp_path, f)).items()}
    newer = {n: d for f in ("two_graphs", "matmul") for n, d in drafts(CODE / f"{f}.txt").items()}
    for name in ("poi_fused_add_gelu_0", "tem_fused_add_mm_relu_0"):
        one, other = made[name].found, newer[name].found
        assert one and other and one.lines == other.lines


def test_nothing_of_a_fragment_but_names_numbers_and_operations_comes_into_a_reference(tmp_path: Path) -> None:
    for hostile in (r"__import__('os').system('id')", "x.y", "lambda: 1", "[c for c in d]", "f'{x}'"):
        path = changed(tmp_path, "matmul", r"args = \(%add,\)", f"args = (%add, {hostile})".replace("\\", "\\\\"))
        (made,) = drafts(path).values()
        assert made.found is None and "stands among the arguments" in made.missing


def test_operation_that_is_none_of_torch_is_not_called(tmp_path: Path) -> None:
    (made,) = drafts(changed(tmp_path, "matmul", r"torch\.ops\.aten\.relu\.default", "os.system")).values()
    assert made.found is None and "os.system is no operation" in made.missing


def test_size_that_is_more_than_arithmetic_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, "matmul", r"empty_strided_cuda\(\(256, 128\)", "empty_strided_cuda((exit(), 128)")
    with pytest.raises(fx_text.NoReference, match="no size"):
        drafts(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "no code of Inductor's"),
        ("from ctypes import c_void_p\nasync_compile.triton('k', '''\n", "no Python"),
        ("from ctypes import c_void_p\ndef call(args):\n    return extern_kernels.mm(args)\n", "calls libraries alone"),
    ],
    ids=["other Python", "cut off", "libraries alone"],
)
def test_file_without_kernels_is_refused_by_what_it_is(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "code.txt").write_text(text)
    with pytest.raises(UsageFault, match=said):
        output_code.read(tmp_path / "code.txt")


def test_second_launch_of_a_kernel_is_of_the_same_target_though_its_values_have_other_names() -> None:
    (module,) = output_code.read(CODE / "attention.txt")
    every = [draft.draft(g) for g in groups.groups(module, calls.follow(module))]
    first, second = [d for d in every if d.group.name == "triton_tem_fused_mm_view_0"]
    assert first.found and first.text_key() == second.text_key()


def test_value_that_a_launch_reads_of_a_kernel_launched_again_has_the_name_of_that_launch() -> None:
    made = drafts(CODE / "attention.txt")
    assert list(made["poi_fused__unsafe_view_clone_transpose_view_1"].group.inputs) == ["mm"]
    assert list(made["poi_fused__unsafe_view_clone_transpose_view_2"].group.inputs) == ["mm_1"]


def test_view_that_the_fragment_does_not_say_is_taken_for_the_value_of_its_type_and_sizes_and_marked() -> None:
    (made,) = [d for n, d in drafts(CODE / "attention.txt").items() if n.startswith("per_fused__softmax")]
    assert made.found and any(line.startswith("expand_2 = ") and "# guessed" in line for line in made.found.lines)
    assert made.group.changed == ["bmm"]


def test_memory_that_an_operation_of_the_graph_changes_is_an_input_and_its_reference_changes_none() -> None:
    (made,) = drafts(CODE / "index_add.txt", "poi_fused_index_add_zeros_1").values()
    assert (made.group.changed, list(made.group.outputs)) == (["full"], ["index_put"])
    assert made.found and made.found.lines == (
        "index_put = torch.ops.aten.index_put.default(full, [arg0_1], arg1_1, True)",
    )


def test_an_operation_that_two_kernels_do_in_turn_is_one_target() -> None:
    (made,) = drafts(CODE / "scatter.txt").values()
    assert made.group.names == ["triton_poi_fused_scatter_0", "triton_poi_fused_scatter_1"]
    assert (made.group.changed, list(made.group.outputs)) == ([], ["scatter"])
    assert made.found and made.found.lines == ("scatter = torch.ops.aten.scatter.src(arg0_1, 1, arg1_1, arg2_1)",)


def test_an_operation_of_two_underscores_changes_nothing() -> None:
    (made,) = drafts(CODE / "unpacked.txt").values()
    assert made.found and any("torch.ops.aten.__rshift__.Scalar(" in line for line in made.found.lines)


def test_what_has_no_name_in_the_graph_is_compared_with_the_kernel_as_it_stood(tmp_path: Path) -> None:
    code = changed(tmp_path, "scatter", r"#   return %scatter\n", "#   return %buf0\n")
    without = "\n".join(line for line in code.read_text().splitlines() if not line.startswith(("#   %", "#   return")))
    first = drafts(code)["poi_fused_scatter_0"]
    assert first.found is None and first.missing == "what it stores has no name in the model's graph"
    (tmp_path / "older.py").write_text(without)
    missing = {d.missing for d in drafts(tmp_path / "older.py").values()}
    assert missing == {"there is no graph fragment in the comment before it"}


def test_memory_that_is_used_again_for_a_result_is_no_input() -> None:
    for made in drafts(CODE / "attention.txt").values():
        assert made.group.changed in ([], ["bmm"])


def test_kernels_of_one_name_in_two_graphs_are_told_apart(tmp_path: Path) -> None:
    text = (CODE / "matmul.txt").read_text()
    (tmp_path / "code.txt").write_text(text + text.replace("triton_helpers.maximum(tmp4, tmp3)", "tmp3"))
    found = drafts(tmp_path / "code.txt")
    assert list(found) == ["tem_fused_add_mm_relu_0", "tem_fused_add_mm_relu_0_graph1"]
    assert len({d.text_key() for d in found.values()}) == 2


@pytest.mark.long
def test_both_kernels_of_a_loss_are_written_and_their_references_together_are_the_loss(tmp_path: Path) -> None:
    done = pgo("init", "--inductor", CODE / "loss.txt", cwd=tmp_path)
    assert done.code == 0, done.err
    score, loss = sorted(tmp_path.glob("*_target.py"), key=lambda p: SCORE not in p.name)
    assert "50% of the bytes" in done.out and "aten.nll_loss_forward" in done.out
    x, labels = torch.randn(256, 512, dtype=torch.float64), torch.randint(0, 512, (256,))
    largest, total = contract(score, "reference")(x)
    given = contract(loss, "reference")(labels, x, largest, total)
    torch.testing.assert_close(given, torch.nn.functional.cross_entropy(x, labels))
    made = contract(loss, "inputs")({}, torch.Generator())  # what the first kernel makes is no random number
    assert contract(loss, "reference")(**made).isfinite()


def contract(path: Path, name: str) -> types.FunctionType:
    """A function of a target's contract, without what launches: this process has no GPU."""
    text = path.read_text()
    space: dict[str, object] = {}
    exec("import torch\n" + text[text.index("# -----") :], space)
    found = space[name]
    assert isinstance(found, types.FunctionType)
    return found


def test_one_kernel_is_chosen_by_name_and_written_where_it_is_said(tmp_path: Path) -> None:
    file = CODE / "two_graphs.txt"
    refused = pgo("init", "--inductor", file, "-o", "t.py", cwd=tmp_path)
    assert refused.code == 2 and "add --kernel NAME" in refused.err
    unknown = pgo("init", "--inductor", file, "--kernel", "triton_no", cwd=tmp_path)
    assert unknown.code == 2 and "triton_poi_fused_add_gelu_0" in unknown.err
    done = pgo("init", "--inductor", file, "--kernel", "triton_poi_fused_add_gelu_0", "-o", "t.py", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "dict(rows=1024)" in (tmp_path / "t.py").read_text()


@pytest.mark.slow
def test_target_is_right_without_an_edit(tmp_path: Path) -> None:
    assert pgo("init", "--inductor", CODE / "matmul.txt", cwd=tmp_path).code == 0
    done = pgo("init", "--check", "matmul_target.py", cwd=tmp_path)
    assert done.code == 0 and "no_change" in done.out, done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two_graphs", "dynamic", "loss", "scatter", "unpacked"])
def test_every_target_is_right_without_an_edit(tmp_path: Path, name: str) -> None:
    assert pgo("init", "--inductor", CODE / f"{name}.txt", cwd=tmp_path).code == 0
    for path in tmp_path.glob("*_target.py"):
        done = pgo("init", "--check", path.name, cwd=tmp_path)
        assert done.code == 0 and "no_change" in done.out, done.out + done.err
