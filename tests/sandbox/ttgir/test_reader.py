"""The reader of TTGIR gives back what it read, understands what MLIR prints, and fails on nothing but its own error."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.ttgir import normalize, reader, types
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module, Op

from tests.sandbox import ttgir_samples

SAMPLES = ("odd", "pipelined", "specialized")


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_tree_renders_to_the_very_text_that_was_read(sample: str) -> None:
    text = ttgir_samples.text(sample)
    assert str(reader.parse(text)) == text


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_line_with_an_op_is_one(sample: str) -> None:
    text = ttgir_samples.text(sample)
    lines = [i for i, line in enumerate(text.splitlines(), 1) if re.match(r'\s+(%\S+ = )?"?[a-z]+\.\w', line)]
    assert [op.line for op in reader.parse(text).walk()][1:] == lines


def test_a_loop_tells_its_bounds_and_what_it_carries() -> None:
    loop = _first("pipelined", "scf.for")
    assert len(loop.defined) == 1 + len(loop.results)
    assert len(loop.operands) == 3 + len(loop.results)
    assert len(loop.result_types) == len(loop.results)


def test_partitions_have_their_names_and_arguments() -> None:
    op = _first("specialized", "ttg.warp_specialize")
    assert [r.name for r in op.regions] == ["default", "partition0", "partition1"]
    assert len(op.regions[1].blocks[0].arguments) == len(op.operands) == len(op.operand_types)
    assert "num_warps(4)" in op.regions[1].opening


def test_a_region_behind_a_label_has_the_arguments_of_the_label() -> None:
    (region,) = _first("odd", "tt.reduce").regions
    assert [a.type for a in region.blocks[0].arguments] == ["f32", "f32"]


def test_words_in_strings_and_braces_in_strings_are_no_structure() -> None:
    assert '"k {x} } \\22 -> loc("' in [w for op in _ops("odd") if op.name == "tt.assert" for w in op.words]


def test_attributes_are_found_wherever_they_stand() -> None:
    copy = _first("specialized", "ttng.async_tma_copy_global_to_local")
    assert copy.attributes == {"async_task_id": "array<i32: 0>"}
    assert _first("odd", "tt.reduce").integer("axis") == 0
    assert _first("pipelined", "ttng.warp_group_dot_wait").integer("pendings") is not None


def test_an_op_knows_where_in_the_source_it_is_from() -> None:
    assert _first("pipelined", "ttng.warp_group_dot").location.startswith("#loc")


def test_results_that_the_text_leaves_out_have_their_types() -> None:
    assert _first("odd", "tt.load").result_types == ("tensor<1024xf32, #blocked>",)
    compared = next(op for op in _ops("odd") if op.name == "arith.cmpi" and "tensor" in op.operand_types[0])
    assert types.shaped(compared.result_types[0]).element == "i1"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "shape", "element", "size"),
    [
        ("!ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>", (3, 128, 64), "f16", 49152),
        ("tensor<128x1x!tt.ptr<f16>, #blocked>", (128, 1), "!tt.ptr<f16>", 1024),
        ("!tt.tensordesc<tensor<64x128xbf16, #shared1>>", (64, 128), "bf16", 16384),  # 3.6
        ("!tt.tensordesc<64x128xf8E4M3FN, #shared1>", (64, 128), "f8E4M3FN", 8192),  # 3.9
    ],
)
def test_a_type_tells_its_shape_and_its_bytes(text: str, shape: tuple[int, ...], element: str, size: int) -> None:
    found = types.shaped(text)
    assert found is not None
    assert (found.shape, found.element, found.bytes) == (shape, element, size)


@pytest.mark.parametrize("sample", SAMPLES)
def test_renaming_values_and_layouts_and_moving_locations_changes_nothing_normal(sample: str) -> None:
    text = ttgir_samples.text(sample)
    renamed = re.sub(r"%([A-Za-z_]\w*)", r"%q_\1", text)
    renamed = re.sub(r"#(blocked|shared|mma)(\d*)\b", r"#other\1\2", renamed)
    renamed = re.sub(r"#loc(\d*)", r"#loc9\1", renamed)
    assert renamed != text
    assert normalize.digest(reader.parse(renamed)) == normalize.digest(reader.parse(text))


def test_another_wait_is_another_normal_form() -> None:
    text = ttgir_samples.text("pipelined")
    other = text.replace("pendings = 1", "pendings = 2", 1)
    assert normalize.digest(reader.parse(other)) != normalize.digest(reader.parse(text))


def test_exchanged_operands_are_another_normal_form() -> None:
    text = ttgir_samples.text("odd")
    other = re.sub(r"(arith\.subf|arith\.addf) (%\w+), (%\w+)", r"\1 \3, \2", text, count=1)
    assert normalize.digest(reader.parse(other)) != normalize.digest(reader.parse(text))


EDITS = st.tuples(
    st.sampled_from(["delete", "double", "swap", "insert"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 60),
    st.sampled_from(
        [*list('{}()<>[]":=,%^@#!\n '), "loc(", "->", "%x:2 = ", "^bb0:", "}\n", " {\n", "dense<", "//", "é"]
    ),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(sample=st.sampled_from(SAMPLES), edits=st.lists(EDITS, min_size=1, max_size=4))
@example("pipelined", [("insert", 0.04394643781868235, 179, "\n")])
@example("odd", [("insert", 0.8190891060513953, 7, "\n"), ("insert", 0.3808492745009372, 44, "[")])
def test_a_damaged_text_is_read_whole_or_refused_with_its_line(
    sample: str, edits: list[tuple[str, float, int, str]]
) -> None:
    text = ttgir_samples.text(sample)
    for edit in edits:
        text = _damaged(text, *edit)
    with cpu_seconds_below(2.0):
        try:
            module = reader.parse(text)
        except Unreadable as e:
            assert 1 <= e.line <= text.count("\n") + 1
        else:
            assert str(module) == text
            normalize.digest(module)


@contextmanager
def cpu_seconds_below(most: float) -> Iterator[None]:
    """Checks that what is done inside takes less of the processor, however busy the machine is."""
    begin = time.process_time()
    yield
    assert time.process_time() - begin < most


@pytest.mark.long
def test_a_text_of_a_megabyte_is_read_in_seconds() -> None:
    line = '    %a = arith.constant {x = "}"} 0 : i32\n'
    text = f"module {{\n  tt.func public @f() {{\n{line * 25_000}    tt.return\n  }}\n}}\n"
    with cpu_seconds_below(15.0):
        assert len(list(reader.parse(text).walk())) == 25_003


def test_regions_may_be_nested_as_deep_as_the_reader_says() -> None:
    deep = reader.DEEPEST - 2
    nested = "scf.if %c {\n" * deep + "}\n" * deep
    text = f"module {{\n  tt.func public @f(%c: i1) {{\n{nested}    tt.return\n  }}\n}}\n"
    module = reader.parse(text)
    assert str(module) == text
    normalize.digest(module)


def test_an_op_has_no_more_results_than_words() -> None:
    text = "module {{\n  tt.func public @f() {{\n    {} a.b : () -> (i32, f32)\n    tt.return\n  }}\n}}\n"
    counts = ("%x:2 =", "%x:9999999 =", f"%x:{'9' * 5000} =", "%x:0:5 =")
    found = [next(op for op in reader.parse(text.format(c)).walk() if op.name == "a.b").results for c in counts]
    assert found[0] == ("%x#0", "%x#1")
    assert all(len(results) < 30 for results in found)


@pytest.mark.parametrize("number", ["9" * 5000, "--5", "5-"])
def test_what_is_no_number_of_64_bits_is_none(number: str) -> None:
    text = (
        f"module {{\n  tt.func public @f() {{\n    ttg.async_wait {{num = {number} : i32}}\n    tt.return\n  }}\n}}\n"
    )
    assert [op.integer("num") for op in reader.parse(text).walk() if op.name == "ttg.async_wait"] == [None]
    assert types.shaped(f"tensor<{'9' * 5000}xf32>") is None or types.bits(f"i{'9' * 5000}") == 0


def test_types_of_arguments_are_read_in_time_that_grows_with_the_text() -> None:
    with cpu_seconds_below(3.0):
        reader.parse(f"module {{\n  tt.func public @f() {{\n    a.b({'%a: <' * 10_000}{'>' * 10_000})\n  }}\n}}\n")


def test_regions_nested_without_end_are_refused() -> None:
    deep = "scf.if %c {\n" * 5000 + "}\n" * 5000
    with pytest.raises(Unreadable, match="nested"):
        reader.parse(f"module {{\n  tt.func public @f() {{\n{deep}}}\n}}\n")


def _damaged(text: str, how: str, where: float, length: int, what: str) -> str:
    at = int(where * len(text))
    piece = text[at : at + length]
    if how == "delete":
        return text[:at] + text[at + length :]
    if how == "double":
        return text[:at] + piece + text[at:]
    if how == "swap":
        return text[:at] + text[at + length : at + 2 * length] + piece + text[at + 2 * length :]
    return text[:at] + what + text[at:]


def _ops(sample: str) -> list[Op]:
    module: Module = reader.parse(ttgir_samples.text(sample))
    return list(module.walk())


def _first(sample: str, name: str) -> Op:
    return next(op for op in _ops(sample) if op.name == name)
