"""A guard admits the cases that it was made of and nothing that differs in kind; its text says what it means."""

import functools
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.commands.dispatch.guards import guard
from pgo_agent.sandbox.json_codec import JsonObject


def tensor(*size: int, dtype: str = "float16", stride: tuple[int, ...] | None = None, offset: int = 0) -> JsonObject:
    rows = torch.empty(size, device="meta").stride() if stride is None else stride
    return {"dtype": dtype, "size": list(size), "stride": list(rows), "offset": offset, "t": 0}


def case(m: int, n: int, **more: object) -> JsonObject:
    return {"x": tensor(m, n), "w": tensor(n), "eps": {"f": (1e-6).hex()}, "causal": False, "bias": None, **more}


WINS = [case(4096, 2048), case(16384, 2048)]


def test_what_differs_in_the_cases_may_lie_between_them_and_all_else_must_be_as_it_was() -> None:
    made = guard(WINS, [])
    assert made is not None and "4096 <= x.shape[0] <= 16384 and x.shape[0] % 16 == 0" in " and ".join(
        t.text for t in made.tests
    )
    assert made.holds(case(4112, 2048))
    for other in (
        case(4095, 2048),
        case(4097, 2048),
        case(16400, 2048),
        case(4096, 1024),
        case(4096, 2048, causal=True),
        case(4096, 2048, eps={"f": (1e-5).hex()}),
        case(4096, 2048, bias=tensor(2048)),
        case(4096, 2048, x=tensor(4096, 2048, dtype="bfloat16")),
        case(4096, 2048, x=tensor(4096, 2048, stride=(1, 4096))),
        case(4096, 2048, x=tensor(4096, 2048, offset=1)),
        case(4096, 2048, x=tensor(1, 4096, 2048)),
        case(4096, 2048, w=None),
    ):
        assert not made.holds(other), other


def test_a_case_in_between_that_was_not_won_leaves_the_very_sizes_that_were() -> None:
    made = guard(WINS, [case(8192, 2048)])
    assert made is not None and made.exact
    assert [made.holds(case(m, 2048)) for m in (4096, 8192, 8208, 16384)] == [True, False, False, True]


def test_what_no_argument_tells_apart_has_no_guard() -> None:
    assert guard(WINS, [case(4096, 2048)]) is None


def test_a_transposed_layout_is_asked_for_as_such() -> None:
    turned = {"x": tensor(64, 32, stride=(1, 64))}
    made = guard([turned], [])
    assert made is not None and "x.permute(1, 0).is_contiguous()" in made.text
    assert made.holds(turned) and not made.holds({"x": tensor(64, 32)})


SIZES = st.sampled_from([1, 8, 16, 17, 48, 64])
FLAGS = st.booleans()
TENSORS = st.builds(
    lambda m, n, turned, dtype, offset: tensor(
        m, n, dtype=dtype, stride=(1, m) if turned else None, offset=offset
    ),
    SIZES, SIZES, FLAGS, st.sampled_from(["float16", "float32"]), st.sampled_from([0, 1, 8]),
)  # fmt: skip
CASES = st.fixed_dictionaries(
    {
        "x": TENSORS,
        "y": TENSORS | st.none(),
        "n": SIZES,
        "causal": FLAGS,
        "scale": st.sampled_from([{"f": (0.5).hex()}, {"f": (0.25).hex()}]),
        "parts": st.lists(TENSORS, max_size=2) | st.none(),
    }
)


@given(st.lists(CASES, min_size=1, max_size=3), st.lists(CASES, max_size=3), CASES)
def test_a_guard_is_python_that_means_what_it_was_made_to_mean(
    wins: list[JsonObject], others: list[JsonObject], drawn: JsonObject
) -> None:
    made = guard(wins, others)
    if made is None:
        return
    assert all(map(made.holds, wins)) and not any(map(made.holds, others))
    for inputs in (*wins, *others, drawn):
        given_ = {n: _value(x) for n, x in inputs.items()}
        assert bool(eval(f"({made.text})", {"torch": torch}, given_)) == made.holds(inputs), made.text


def _value(x: Any) -> Any:
    if isinstance(x, list):
        return [_value(one) for one in x]
    if not isinstance(x, dict):
        return x
    if "f" in x:
        return float.fromhex(x["f"])
    dtype = getattr(torch, x["dtype"])
    return _memory(dtype).as_strided(x["size"], x["stride"], x["offset"])


@functools.cache
def _memory(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(1 << 20, dtype=dtype, device="meta")
