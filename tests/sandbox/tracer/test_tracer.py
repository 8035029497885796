"""What the tracer records of a launcher: views, alignment, torch ops, arguments, grids. Real kernels, no GPU.

One process traces all launchers of SNIPPET.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.tracing import Traced, trace

SNIPPET = """
@triton.jit
def _total(src, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.arange(0, 4), tl.sum(tl.load(src + at, mask=at < n, other=0.0).to(tl.float32)))


@triton.jit
def _scaled(src, dst, n, scale, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(src + at, mask=at < n) * scale
    if shift is not None:
        y += tl.load(shift + at, mask=at < n)
    tl.store(dst + at, y, mask=at < n)


@triton.jit
def _pair(both, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(both[1] + at, tl.load(both[0] + at, mask=at < n), mask=at < n)


@torch.library.custom_op("pgo_snippet::copied", mutates_args=())
def _copied(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _copy[(4,)](x, y, 4096, BLOCK=1024)
    return y


@_copied.register_fake
def _(x):
    return torch.empty_like(x)


def sliced(x):
    y = torch.empty(1024, device=x.device, dtype=x.dtype)
    _copy[(1,)](x[512:1536], y, 1024, BLOCK=1024)
    return y


def transposed(m):
    y = torch.empty((64, 64), device=m.device, dtype=m.dtype)
    _copy[(2,)](m.t(), y[:, 32:], 2048, BLOCK=1024)
    return y


def unbound(q, k, v):
    o = torch.empty_like(q)
    _copy[(2,)](v, o, 2048, BLOCK=1024)
    return o


def halves(x):
    y = torch.empty_like(x)
    _copy[(2,)](x[:2048], y[:2048], 2048, BLOCK=1024)
    _copy[(2,)](x[2048:], y[2048:], 2048, BLOCK=1024)
    return y


def reinterpreted(x):
    y = torch.empty_like(x)
    _copy[(2,)](x.view(torch.int32), y.view(torch.int32), 2048, BLOCK=1024)
    return y


def offsets(x):
    y = torch.empty_like(x)
    for offset in (0, 1, 8):
        _copy[(1,)](x[offset : offset + 1024], y, 1024, BLOCK=1024)
    return y


def totalled(x):
    out = torch.zeros(4, device=x.device, dtype=torch.float32)
    _total[(4,)](x, out, 4096, BLOCK=1024)
    return out.sum(-1)


def cleared(x):
    y = torch.empty_like(x)
    y[100:].zero_()
    _copy[(4,)](x, y, 4096, BLOCK=1024)
    return y


def contiguous(m):
    y = torch.empty_like(m)
    _copy[(2,)](m.t().contiguous(), y, 2048, BLOCK=1024)
    return y


def literal(x):
    y = torch.empty_like(x)
    _copy[(1,)](torch.tensor([3, 1, 2], device=x.device, dtype=torch.int32), y, 3, BLOCK=1024)
    return y


def spelled(x):
    y = torch.empty_like(x)
    _copy[(4,)](x, y, 4096, 1024)
    _copy[(4,)](x, y, n=4096, BLOCK=1024)
    _copy[(4,)](BLOCK=1024, n=4096, dst=y, src=x)
    return y


def called(x):
    y = torch.empty_like(x)
    _copy[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 2)](x, y, 4096, BLOCK=1024)
    return y


def scalars(x):
    y = torch.empty_like(x)
    _scaled[(4,)](x, y, 4096, 0.1, None, BLOCK=1024)
    _scaled[(4,)](x, y, 1, float("inf"), x, BLOCK=1024)
    return y


def tupled(x):
    y = torch.empty_like(x)
    _pair[(1,)]((x, y), 1024, BLOCK=1024)
    return y


def custom(x):
    return _copied(x)


def changed(x):
    numbers = torch.tensor([3, 1, 2], dtype=torch.int32)
    numbers += 1
    y = torch.empty_like(x)
    _copy[(1,)](numbers.to(x.device), y, 3, BLOCK=1024)
    return y


def drawing(x):
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    state = generator.get_state()
    seed, offset = state.view(torch.int64)
    generator.set_state(state)
    y = torch.empty_like(x)
    _scaled[(4,)](x, y, 4096 + int(seed), float(offset) + 2.5, None, BLOCK=1024)
    return y


def warmed(x):
    y = torch.empty_like(x)
    _copy.warmup(x, y, 4096, BLOCK=1024, grid=(4,))
    return cleared(x)
"""

SIZED = """
def sized(x):
    y = torch.empty_like(x)
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    major, _ = torch.cuda.get_device_capability()
    shared = triton.runtime.driver.active.utils.get_device_properties(0)["max_shared_mem"]
    _copy[(blocks, major)](x, y, shared, BLOCK=1024)
    return y
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return trace(tmp_path_factory.mktemp("traced"), SNIPPET + SIZED)


def view(t: int, size: list[int], stride: list[int], offset: int, dtype: str = "float16") -> dict[str, Any]:
    return {"t": t, "dtype": dtype, "size": size, "stride": stride, "offset": offset}


def test_a_slice_is_recorded_by_its_storage_and_offset(traced: Traced) -> None:
    (step,) = traced.steps("sliced")
    assert step["args"][0] == view(traced.plan("sliced")["inputs"]["x"]["t"], [1024], [1], 512)


def test_a_transposed_view_is_recorded_by_its_strides(traced: Traced) -> None:
    (step,) = traced.steps("transposed")
    plan = traced.plan("transposed")
    assert step["args"][:2] == [view(plan["inputs"]["m"]["t"], [32, 64], [1, 32], 0), view(4, [64, 32], [64, 1], 32)]


def test_q_k_and_v_of_one_packed_tensor_share_its_storage(traced: Traced) -> None:
    plan = traced.plan("unbound")
    packed = plan["inputs"]["q"]["t"]
    strides = [128 * 3 * 64, 3 * 64, 1]
    given = [plan["inputs"][n] for n in "qkv"]
    assert given == [view(packed, [2, 128, 64], strides, offset) for offset in (0, 64, 128)]
    assert plan["storages"][packed] == {"kind": "input", "nbytes": 2 * 128 * 3 * 64 * 2}
    assert plan["steps"][0]["args"][0] == plan["inputs"]["v"]


def test_two_halves_of_an_output_stay_one_buffer(traced: Traced) -> None:
    plan = traced.plan("halves")
    first, second = (step["args"][1] for step in plan["steps"])
    assert (first["t"], first["offset"], second["offset"]) == (second["t"], 0, 2048)
    assert plan["out"] == [view(first["t"], [4096], [1], 0)]
    assert plan["storages"][first["t"]] == {"kind": "buffer", "nbytes": 8192}


def test_a_view_as_another_type_keeps_its_storage(traced: Traced) -> None:
    (step,) = traced.steps("reinterpreted")
    assert step["args"][0] == view(traced.plan("reinterpreted")["inputs"]["x"]["t"], [2048], [1], 0, "int32")
    assert step["signature"][:2] == ["*i32", "*i32"]


def test_a_view_one_element_on_is_another_kernel_without_the_alignment(traced: Traced) -> None:
    aligned, one_on, _ = traced.steps("offsets")
    assert one_on["kernel"] != aligned["kernel"]
    assert traced.ttgir(aligned).count("tt.divisibility = 16") == 3
    assert "%arg0: !tt.ptr<f16>, %arg1: !tt.ptr<f16> {tt.divisibility = 16 : i32}" in traced.ttgir(one_on)


def test_a_view_sixteen_bytes_on_is_the_same_kernel(traced: Traced) -> None:
    aligned, _, eight_on = traced.steps("offsets")
    assert eight_on["kernel"] == aligned["kernel"]


def test_torch_ops_and_launches_are_recorded_in_their_order(traced: Traced) -> None:
    zeros, launch, total = traced.steps("totalled")
    assert (zeros["op"], total["op"]) == ("aten.zeros.default", "aten.sum.dim_IntList")
    assert zeros["out"][0] == launch["args"][1] == total["args"][0]
    assert traced.plan("totalled")["out"] == total["out"]


def test_an_op_in_place_on_a_view_names_the_view(traced: Traced) -> None:
    zeroed, launch = traced.steps("cleared")
    assert zeroed["op"] == "aten.zero_.default"
    assert zeroed["args"] == zeroed["out"] == [view(launch["args"][1]["t"], [3996], [1], 100)]


def test_a_copy_made_by_contiguous_is_an_op_of_the_plan(traced: Traced) -> None:
    cloned, launch = traced.steps("contiguous")
    assert cloned["op"] == "aten.clone.default"
    assert launch["args"][0] == view(cloned["out"][0]["t"], [32, 64], [64, 1], 0)


def test_the_numbers_of_a_literal_tensor_stand_in_the_plan(traced: Traced) -> None:
    copied, launch = traced.steps("literal")
    assert copied["args"] == [{"literal": [3, 1, 2], "size": [3], "dtype": "int32"}]
    assert launch["args"][0] == copied["out"][0]


def test_a_host_tensor_that_was_changed_is_refused_rather_than_recorded_as_it_was(traced: Traced) -> None:
    assert "changed after it was made" in traced.error("changed")["message"]


def test_positional_and_keyword_arguments_are_the_same_launch(traced: Traced) -> None:
    first, *others = traced.steps("spelled")
    assert others == [first, first]


def test_a_callable_grid_is_called_with_all_arguments(traced: Traced) -> None:
    (step,) = traced.steps("called")
    assert step["grid"] == [4, 2, 1]


def test_a_float_is_recorded_with_every_bit(traced: Traced) -> None:
    scales = [float.fromhex(step["args"][3]["f"]) for step in traced.steps("scalars")]
    assert scales == [0.1, float("inf")]


def test_a_kernel_that_draws_random_numbers_is_given_the_first_state_of_the_generator(traced: Traced) -> None:
    (step,) = traced.steps("drawing")
    assert step["args"][2] == 4096 and float.fromhex(step["args"][3]["f"]) == 2.5


def test_arguments_that_triton_compiles_in_have_no_value_in_the_plan(traced: Traced) -> None:
    none, one = traced.steps("scalars")
    assert (none["signature"][4], none["args"][4]) == ("constexpr", None)
    assert (one["signature"][2], one["args"][2]) == ("constexpr", None)


def test_a_tuple_argument_is_recorded_as_a_list(traced: Traced) -> None:
    (step,) = traced.steps("tupled")
    assert step["signature"][0] == ["*fp16", "*fp16"]
    assert [a["t"] for a in step["args"][0]] == [0, 4]


def test_launches_inside_a_custom_op_are_recorded(traced: Traced) -> None:
    (step,) = traced.steps("custom")
    assert step["grid"] == [4, 1, 1]


def test_warming_a_kernel_up_is_not_a_launch(traced: Traced) -> None:
    assert [s.get("op", "launch") for s in traced.steps("warmed")] == ["aten.zero_.default", "launch"]


def test_a_launcher_sees_the_properties_of_the_device_asked_for(traced: Traced, tmp_path: Path) -> None:
    def answers(of: Traced) -> list[int]:
        (step,) = of.steps("sized")
        return [*step["grid"], step["args"][2]]

    assert answers(traced) == [132, 9, 1, 232448]
    assert answers(trace(tmp_path, SIZED, "a100")) == [108, 8, 1, 166912]
