"""The closed grammar of a bundle's JSON under arbitrary values: it reads them or raises BadBundle, nothing else.

Two sorts of values: any JSON at all, and an honest plan or kernel in which one value, anywhere, is replaced by any
other. The honest plan below has every form that the grammar knows.
"""

import copy
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.bundle import decode, validate
from pgo_agent.sandbox.bundle.schema import ITEMSIZE, Descriptor, Launch, Literal, OnDevice, Op, Tensor, TorchName
from pgo_agent.sandbox.bundle.store import ContentStore, canonical
from pgo_agent.sandbox.errors import BadBundle

TENSOR = {"t": 0, "dtype": "float16", "size": [2, 3], "stride": [3, 1], "offset": 0}
DESCRIPTOR = {"desc": TENSOR, "shape": [2, 3], "strides": [3, 1], "block": [2, 2], "padding": "nan", "tf32": True}
LITERAL = {"literal": [1, {"f": "0x1.8p+0"}, True], "size": [3], "dtype": "float32"}
LAUNCH = {
    "kernel": "a" * 64,
    "grid": [2, 1, 1],
    "signature": ["*fp16", "tensordesc<fp16[2, 2]>", "i32", "fp32", "constexpr", ["i1", "*bf16", "*u1"]],
    "args": [TENSOR, DESCRIPTOR, -7, {"f": "-inf"}, None, [True, None]],
}
TABLE = {"literal": [{"address": 0, "byte": 4}, 7], "size": [2], "dtype": "uint64"}
OP = {
    "op": "aten.full.default",
    "args": [[2, 3], {"f": "0x0.0p+0"}, LITERAL],
    "kwargs": {"dtype": {"torch": "float16"}, "device": {"device": "cuda"}, "pin_memory": False, "layout": "strided"},
    "out": [TENSOR],
}
PLAN = {
    "inputs": {"x": TENSOR, "causal": True, "scale": {"f": "0x1p-3"}, "tail": [TENSOR, 1]},
    "storages": [{"kind": "input", "nbytes": 12}],
    "steps": [OP, LAUNCH],
    "out": [TENSOR],
}
KERNEL = {
    "name": "_add",
    "arch": 90,
    "shared": 1024,
    "num_warps": 4,
    "num_ctas": 1,
    "global_scratch_size": 128,
    "global_scratch_align": 128,
    "profile_scratch_size": 0,
    "profile_scratch_align": 1,
    "launch_cooperative_grid": False,
    "launch_pdl": True,
    "tensordesc_meta": [
        {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [2, 2], "fp4_padded": False, "is_im2col": False}
    ],
    "triton": "3.6.0",
    "files": {"cubin": "b" * 64, "ptx": "c" * 64},
}
TYPES = [t.split("<")[0] for t in LAUNCH["signature"] if isinstance(t, str)]

WORDS = [*ITEMSIZE, *TYPES, *KERNEL, *PLAN, *OP, *LAUNCH, *TENSOR, *DESCRIPTOR, "cuda", "f", "../..", "a" * 64]
TEXT = st.text(max_size=9) | st.sampled_from(WORDS)
LEAF = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | TEXT
JSON = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT, inner, max_size=4)
        | st.fixed_dictionaries(
            {"f": st.floats().map(float.hex) | st.from_regex(r"-?0x1?\.?[0-9a-f]{0,5}p[+-]?\d{1,6}")}
        )
        | st.sampled_from([TENSOR, DESCRIPTOR, LITERAL, TABLE, LAUNCH, OP, PLAN, KERNEL])
    ),
    max_leaves=12,
)
READERS: list[Callable[[Any], Any]] = [decode.plan, decode.kernel, decode.value, decode.tensor, decode.scalar]


def _places(x: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where everything stands in a JSON value, as ways from its top."""
    inner = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    return [here, *(p for k, v in inner for p in _places(v, (*here, k)))]


def _changed(honest: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """A copy in which one value, anywhere, is replaced."""
    changed = copy.deepcopy(honest)
    *way, last = data.draw(st.sampled_from(_places(honest)[1:]))
    at: Any = changed
    for key in way:
        at = at[key]
    at[last] = data.draw(JSON)
    return changed


def _read_or_refused(read: Callable[[Any], Any], value: Any) -> None:
    try:
        read(value)
    except BadBundle:
        return


# properties -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", READERS)
@settings(max_examples=80)
@given(value=JSON)
def test_any_json_is_read_or_refused(read: Callable[[Any], Any], value: Any) -> None:
    _read_or_refused(read, value)


@settings(max_examples=200)
@given(data=st.data())
def test_a_plan_with_any_one_value_replaced_is_read_or_refused(data: st.DataObject) -> None:
    _read_or_refused(decode.plan, _changed(PLAN, data))


@settings(max_examples=150)
@given(data=st.data())
def test_a_kernel_with_any_one_value_replaced_is_read_or_refused(data: st.DataObject) -> None:
    _read_or_refused(decode.kernel, _changed(KERNEL, data))


@settings(max_examples=120)
@given(data=st.data())
def test_a_whole_bundle_with_any_one_value_replaced_is_loaded_or_refused(
    add_contents: ContentStore,
    add_built: Any,
    h200_limits: validate.Limits,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.json"
    path.write_bytes(canonical(_changed(add_contents.manifest(add_built.bundle), data)))
    _read_or_refused(lambda p: validate.load(p, add_contents.artefacts, h200_limits), path)


@settings(max_examples=300)
@given(raw=st.binary(max_size=60) | st.from_regex(r"[\[\]{}\",:0-9.eE+-]{0,60}").map(str.encode))
def test_any_bytes_are_json_or_refused(raw: bytes) -> None:
    _read_or_refused(validate.strict_json, raw)


@given(value=JSON)
def test_strict_json_reads_the_canonical_form_back(value: Any) -> None:
    assert validate.strict_json(canonical(value)) == json.loads(canonical(value))


# what the honest forms become -----------------------------------------------------------------------------------------


def test_an_honest_plan_is_read_whole() -> None:
    plan = decode.plan(PLAN)
    assert [type(s) for s in plan.steps] == [Op, Launch]
    tensor = Tensor(0, "float16", (2, 3), (3, 1), 0)
    assert plan.inputs == {"x": tensor, "causal": True, "scale": 0.125, "tail": (tensor, 1)}
    assert plan.launches[0].args[1] == Descriptor(tensor, (2, 3), (3, 1), "nan", True)


def test_an_honest_op_is_read_whole() -> None:
    op = decode.plan(PLAN).steps[0]
    assert op.args == ((2, 3), 0.0, Literal((1, 1.5, True), "float32", (3,)))
    assert isinstance(op, Op)
    assert op.kwargs["dtype"] == TorchName("float16")
    assert op.kwargs["device"] == OnDevice()


def test_an_honest_kernel_is_read_whole() -> None:
    kernel = decode.kernel(KERNEL)
    assert (kernel.name, kernel.arch, kernel.files) == ("_add", 90, KERNEL["files"])
    assert [m.block_size for m in kernel.tensordesc_meta] == [(2, 2)]


@given(st.floats(allow_nan=False))
def test_a_float_survives_as_hex(number: float) -> None:
    assert decode.scalar({"f": number.hex()}) == number


@pytest.mark.parametrize("number", ["0x1p1024", "-0x1p99999"])
def test_a_float_beyond_any_double_is_refused(number: str) -> None:
    with pytest.raises(BadBundle):
        decode.scalar({"f": number})


@pytest.mark.parametrize("form", [{"op": ["aten.sum.default"]}, {"op": {}}])
def test_an_op_whose_name_is_no_text_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(BadBundle):
        decode.plan(PLAN | {"steps": [OP | form]})


@pytest.mark.parametrize("value", [TENSOR | {"dtype": []}, LITERAL | {"dtype": {}}, {"torch": []}, {"device": []}])
def test_a_form_whose_word_is_no_text_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(BadBundle):
        decode.value(value)


# last_byte ------------------------------------------------------------------------------------------------------------

RANK = st.integers(0, 3)
SHAPES = RANK.flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2))


@given(SHAPES, st.integers(0, 9), st.sampled_from(sorted(ITEMSIZE)))
def test_the_last_byte_is_that_of_the_farthest_element(
    shape: tuple[list[int], list[int]], offset: int, dtype: str
) -> None:
    size, stride = shape
    places = [offset + sum(i * s for i, s in zip(at, stride, strict=True)) for at in product(*map(range, size))]
    farthest = max(((p + 1) * ITEMSIZE[dtype] for p in places), default=0)
    assert decode.last_byte(Tensor(0, dtype, tuple(size), tuple(stride), offset)) == farthest


def test_every_dtype_of_the_schema_has_torchs_size() -> None:
    torch = pytest.importorskip("torch")
    assert {d: getattr(torch, d).itemsize for d in ITEMSIZE} == ITEMSIZE


def test_the_honest_forms_are_json(tmp_path: Path) -> None:
    for form in (PLAN, KERNEL):
        assert validate.strict_json(canonical(form)) == form
