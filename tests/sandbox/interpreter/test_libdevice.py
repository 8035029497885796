"""Functions of libdevice in the interpreter: their values are those of Python's own mathematics."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.interpreter import libdevice
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.questions import Check

SUM = "tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)"
ONE: dict[str, Callable[[float], float]] = {
    **{n: getattr(math, n) for n in ("exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "cbrt")},
    **{n: getattr(math, n) for n in ("atan", "asinh", "erf", "erfc", "floor", "ceil", "trunc", "fabs")},
    "exp10": lambda x: 10.0**x,
    "rint": round,
    "cospi": lambda x: math.cos(math.pi * x),
    "normcdf": lambda x: math.erfc(-x / math.sqrt(2)) / 2,
}
POSITIVE: dict[str, Callable[[float], float]] = {
    **{n: getattr(math, n) for n in ("sqrt", "log", "log2", "log10", "log1p", "lgamma")},
    "rsqrt": lambda x: x**-0.5,
    "rcbrt": lambda x: 1 / math.cbrt(x),
    "acosh": lambda x: math.acosh(x + 1),
}
TWO: dict[str, Callable[[float, float], float]] = {
    **{n: getattr(math, n) for n in ("atan2", "hypot", "copysign", "fmod", "nextafter")},
    "fdim": lambda x, y: max(x - y, 0.0),
}


def close(symbol: str, said: object, wanted: float) -> None:
    assert np.asarray(said).item() == pytest.approx(wanted, rel=1e-9, abs=1e-12), symbol


@settings(max_examples=50)
@given(st.floats(-5, 5), st.floats(1e-3, 1e3))
def test_values_are_those_of_pythons_own_mathematics(x: float, y: float) -> None:
    for name, wanted in ONE.items():
        close(name, libdevice.function(f"__nv_{name}")(np.float64(x)), wanted(x))
    for name, wanted in POSITIVE.items():
        close(name, libdevice.function(f"__nv_{name}")(np.float64(y + (name == "acosh"))), wanted(y))
    for name, both in TWO.items():
        close(name, libdevice.function(f"__nv_{name}")(np.float64(x), np.float64(y)), both(x, y))


@pytest.mark.parametrize("name", [*ONE, *POSITIVE])
def test_single_precision_stays_single(name: str) -> None:
    found = libdevice.function(f"__nv_{name}f")(np.array([1.5], dtype=np.float32))
    assert found.shape == (1,) and found.dtype in (np.float32, np.float64)


def test_a_fast_function_is_the_usual_one() -> None:
    assert libdevice.function("__nv_fast_expf") is libdevice.function("__nv_exp")
    assert libdevice.function("__nv_fast_fdividef") is np.divide


def test_rounding_away_from_even_is_libdevices_round() -> None:
    assert libdevice.function("__nv_round")(np.array([0.5, -0.5, 2.5, 1.4])).tolist() == [1.0, -1.0, 3.0, 1.0]


@settings(max_examples=50)
@given(st.floats(1e-40, 1e30), st.integers(-20, 20))
def test_exponents_are_those_of_pythons_own_mathematics(x: float, n: int) -> None:
    assert libdevice.function("__nv_ilogb")(np.array([-x])).tolist() == [math.frexp(x)[1] - 1]
    assert libdevice.function("__nv_logb")(np.array([x])).tolist() == [math.frexp(x)[1] - 1.0]
    assert libdevice.function("__nv_scalbn")(np.array([x]), np.array([n])).tolist() == [math.ldexp(x, n)]


def test_conversions_to_whole_numbers_round_as_their_names_say_and_keep_to_the_ends() -> None:
    x = np.array([-2.5, 2.5, np.nan, 1e20, -np.inf], np.float32)
    ends = [0, 2**31 - 1, -(2**31)]
    for name, wanted in {"rd": [-3, 2], "ru": [-2, 3], "rz": [-2, 2], "rn": [-2, 2]}.items():
        assert libdevice.function(f"__nv_float2int_{name}")(x).astype(np.int32).tolist() == [*wanted, *ends]
    assert libdevice.function("__nv_popc")(np.array([0, 5, -1], np.int32)).tolist() == [0, 2, 32]


def test_numbers_without_an_exponent_have_the_ends() -> None:
    least, most = -(1 << 31), (1 << 31) - 1
    assert libdevice.function("__nv_ilogbf")(np.array([0.0, np.nan, -np.inf])).tolist() == [least, least, most]
    assert libdevice.function("__nv_logb")(np.array([-0.0, -np.inf])).tolist() == [-np.inf, np.inf]


@pytest.mark.parametrize("symbol", ["__nv_j0", "__nv_fadd_rz", "__nv_clz", "__nv_"])
def test_what_nothing_computes_is_said(symbol: str) -> None:
    with pytest.raises(NotImplementedError, match="not supported in interpreter mode"):
        libdevice.function(symbol)


CALLS = {  # of integers they must give the very sum
    "what Triton's libraries import": "tl.extra.libdevice.abs(S) * tl.extra.libdevice.copysign(1.0, S)",
    "what CUDA's own module holds": "tl.extra.cuda.libdevice.fma(S, 0.5, S * 0.5)",
    "fast functions": "tl.extra.libdevice.fast_dividef(S, 1.0)",
    "a package's own copy of the module": "fma_of_a_copy(S, 0.5, S * 0.5)",
}


@pytest.fixture(scope="module")
def addition() -> GpuJudge:
    from tests.conftest import TARGETS
    from tests.judges import judge_of

    return judge_of(TARGETS / "add.py")


@pytest.mark.parametrize("what", CALLS)
def test_a_kernel_that_calls_libdevice_is_right_or_wrong_by_what_it_computes(addition: GpuJudge, what: str) -> None:
    own = addition.target.source
    assert SUM in own
    right = own.replace(SUM, CALLS[what].replace("S", f"({SUM})")).replace("import triton\n", IMPORTS)
    found = addition.verdict(Check(source=right))
    assert found.verdict == Verdict.CHECKED, found.reason
    wrong = addition.verdict(Check(source=right.replace("z_ptr + at, ", "z_ptr + at, 1.5 * ")))
    assert wrong.verdict == Verdict.WRONG


IMPORTS = """import importlib.util

import triton
import triton.language.extra.cuda.libdevice
import triton.language.extra.libdevice

spec = importlib.util.find_spec("triton.language.extra.libdevice")
copied = importlib.util.module_from_spec(spec)
spec.loader.exec_module(copied)
fma_of_a_copy = copied.fma
"""
