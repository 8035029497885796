"""judge/replay.py, match_inputs: a plan runs only on inputs like those it was recorded for. CPU tensors suffice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.bundle.schema import Plan, Storage, Tensor, TorchName
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.judge.replay import match_inputs, paired

Inputs = dict[str, Any]


def planned(inputs: Inputs) -> Plan:
    """The plan that an honest tracer records for these inputs."""
    storages: dict[int, tuple[int, int]] = {}

    def recorded(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(map(recorded, value))
        if isinstance(value, torch.dtype):
            return TorchName(str(value)[6:])
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        index, _ = storages.setdefault(storage.data_ptr(), (len(storages), storage.nbytes()))
        size, stride = tuple(value.shape), tuple(value.stride())
        return Tensor(index, str(value.dtype)[6:], size, stride, value.storage_offset())

    written = {name: recorded(value) for name, value in inputs.items()}
    return Plan(written, tuple(Storage("input", n) for _, n in storages.values()), (), ())


def packed() -> Inputs:
    """Three views of one storage, tensors of their own, and scalars."""
    q, k, v = torch.zeros(2, 8, 3, 16, dtype=torch.float16).unbind(2)
    tensors = {"q": q, "k": k, "v": v, "mask": torch.zeros(4, dtype=torch.bool), "bias": torch.zeros(8, 8)}
    return tensors | {"causal": True, "scale": 0.125, "n": 8}


PLAN = planned(packed())


def test_inputs_made_again_by_the_same_function_are_accepted() -> None:
    match_inputs(PLAN, packed())


def test_views_keep_pointing_into_the_shared_storage() -> None:
    inputs = packed()
    pairs = list(paired(PLAN, inputs))
    assert [t.storage for t, _ in pairs] == [0, 0, 0, 1, 2]
    assert all(given is inputs[name] for (_, given), name in zip(pairs, ("q", "k", "v", "mask", "bias"), strict=True))


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3),
        st.one_of(
            st.booleans(),
            st.integers(-(1 << 63), (1 << 64) - 1),
            st.floats(allow_nan=False),
            st.none(),
            st.sampled_from([torch.float16, torch.int8]),
            st.lists(st.integers(0, 9), max_size=3),
            st.lists(st.integers(1, 4), max_size=3).map(lambda size: torch.zeros(size)),
            st.lists(st.integers(1, 4), min_size=2, max_size=3).map(lambda size: torch.zeros(size).transpose(0, 1)[1:]),
        ),
        max_size=5,
    )
)
def test_whatever_inputs_gives_is_accepted_for_its_own_plan(inputs: Inputs) -> None:
    match_inputs(planned(inputs), inputs)


def narrowed(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.reshape(-1), x.new_zeros(1)])[: x.numel()].reshape(x.shape)


OTHERS: dict[str, Callable[[Inputs], Inputs]] = {
    "a name too few": lambda i: {n: v for n, v in i.items() if n != "mask"},
    "a name too many": lambda i: i | {"extra": 1},
    "another name": lambda i: {("Q" if n == "q" else n): v for n, v in i.items()},
    "another shape of as many elements": lambda i: i | {"mask": i["mask"].reshape(2, 2)},
    "another size": lambda i: i | {"mask": torch.zeros(5, dtype=torch.bool)},
    "other strides": lambda i: i | {"bias": i["bias"].T},
    "a type of the same width": lambda i: i | {"mask": i["mask"].view(torch.uint8)},
    "a view with an offset": lambda i: i | {"mask": torch.zeros(5, dtype=torch.bool)[1:]},
    "a view into a larger storage": lambda i: i | {"mask": narrowed(i["mask"])},
    "two views of one storage exchanged": lambda i: i | {"q": i["k"], "k": i["q"]},
    "another integer": lambda i: i | {"n": 9},
    "another float": lambda i: i | {"scale": 0.1250001},
    "another switch": lambda i: i | {"causal": False},
    "none for a scalar": lambda i: i | {"n": None},
    "text for a scalar": lambda i: i | {"n": "8"},
    "a list for a scalar": lambda i: i | {"n": [8]},
    "a tensor for a scalar": lambda i: i | {"n": torch.tensor(8)},
    "a scalar for a tensor": lambda i: i | {"mask": 0},
    "none for a tensor": lambda i: i | {"mask": None},
    "nothing at all": lambda i: {},
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_inputs_are_refused(other: str) -> None:
    with pytest.raises(BadBundle):
        match_inputs(PLAN, OTHERS[other](packed()))


def test_a_refusal_names_the_input() -> None:
    with pytest.raises(BadBundle, match="input 'scale' is not what the plan was recorded for"):
        match_inputs(PLAN, packed() | {"scale": 1.0})


def test_a_refusal_of_names_tells_both_lists() -> None:
    with pytest.raises(BadBundle, match=r"the plan takes \['n', 'x'\], inputs\(\) gave \['x'\]"):
        match_inputs(planned({"x": torch.zeros(1), "n": 1}), {"x": torch.zeros(1)})


def test_separate_tensors_are_refused_where_the_plan_has_one_storage() -> None:
    """Each has the size, strides, offset and storage size that the plan names: only the sharing differs."""
    inputs = packed()
    apart = torch.zeros(2, 8, 3, 16, dtype=torch.float16).unbind(2)[1]
    with pytest.raises(BadBundle, match="inputs share storage in the plan, but inputs\\(\\) gave separate tensors"):
        match_inputs(PLAN, inputs | {"k": apart})


def test_the_same_tensor_twice_is_accepted_where_the_plan_has_it_twice() -> None:
    x = torch.zeros(8)
    match_inputs(planned({"x": x, "y": x}), {"x": x, "y": x})


def test_a_scalar_that_is_nan_is_accepted_for_its_own_plan() -> None:
    match_inputs(planned({"fill": float("nan")}), {"fill": float("nan")})
