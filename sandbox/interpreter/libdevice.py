"""Functions of CUDA's libdevice for Triton's interpreter, which has none: computed by numpy and torch on the CPU.

They differ from the GPU's by a few ulp; fast ones (`fast_expf`) are as exact as the others; subnormal numbers stay. A
function that is not listed here raises Lacking. Relies on Triton's own table of names and types, so that a call with
types that would not compile fails here too.
"""

from collections.abc import Callable, Collection, Mapping
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox.interpreter.unsupported import Lacking

Array = Any  # numpy array


def _torch(function: Callable[..., Any]) -> Callable[..., Array]:
    def on_arrays(*arrays: Array) -> Array:
        return function(*(torch.from_numpy(np.ascontiguousarray(a, dtype=np.float64)) for a in arrays)).numpy()

    return on_arrays


def _fma(a: Array, b: Array, c: Array) -> Array:
    return np.multiply(a, b, dtype=np.float64) + c


def _ilogb(x: Array) -> Array:
    """Return the exponent as a whole number: INT_MIN of a zero and a NaN, INT_MAX of an infinity."""
    whole = np.frexp(x)[1].astype(np.int64) - 1
    ends = np.where(np.isinf(x), np.iinfo(np.int32).max, np.iinfo(np.int32).min)
    return np.where(np.isfinite(x) & (x != 0), whole, ends)


def _logb(x: Array) -> Array:
    ends = np.where(x == 0, -np.inf, np.abs(x))
    return np.where(np.isfinite(x) & (x != 0), np.frexp(x)[1] - 1.0, ends)


def _to_int32(rounded: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a conversion of floats: a NaN is 0, and what is out of range the nearest end."""
    ends = np.iinfo(np.int32)
    return lambda x: np.clip(np.nan_to_num(rounded(x.astype(np.float64)), posinf=ends.max), ends.min, ends.max)


ROUNDED = {"rd": np.floor, "ru": np.ceil, "rz": np.trunc, "rn": np.rint}
FLOATS: dict[str, Callable[..., Array]] = {  # without `__nv_`, `fast_` and the `f` of single precision
    **{
        n: getattr(np, n)
        for n in ("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos")
    },
    **{
        n: getattr(np, n)
        for n in ("tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "rint", "hypot", "nextafter")
    },
    **{n: getattr(np, n) for n in ("fabs", "fmod", "ldexp", "copysign")},
    **{n: getattr(np, f"arc{n[1:]}") for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    **{n: _torch(getattr(torch.special, n)) for n in ("erf", "erfc", "erfinv", "erfcx")},
    "lgamma": _torch(torch.lgamma),
    "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _torch(torch.special.ndtri),
    "cyl_bessel_i0": _torch(torch.special.i0),
    "cyl_bessel_i1": _torch(torch.special.i1),
    "ilogb": _ilogb,
    "logb": _logb,
    "scalbn": np.ldexp,
    "nearbyint": np.rint,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "pow": np.power,
    "powi": np.power,
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x - y, 0)),
    "fma": _fma,
    "fdivide": np.divide,
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)),
    "finite": np.isfinite,
    **{f"{n}{d}": getattr(np, n) for n in ("isnan", "isinf", "isfinite", "signbit") for d in ("", "d")},
}
EXACT: dict[str, Callable[..., Array]] = {  # whole symbols: to the nearest, ties to even, as numpy rounds
    **{f"__nv_{p}add_rn": np.add for p in "fd"},
    **{f"__nv_{p}sub_rn": np.subtract for p in "fd"},
    **{f"__nv_{p}mul_rn": np.multiply for p in "fd"},
    **{f"__nv_{p}div_rn": np.divide for p in "fd"},
    **{f"__nv_{p}sqrt_rn": np.sqrt for p in "fd"},
    **{f"__nv_{p}rcp_rn": np.reciprocal for p in "fd"},
    "__nv_frsqrt_rn": FLOATS["rsqrt"],
    "__nv_fmaf_rn": _fma,
    **{f"__nv_{n}": np.abs for n in ("abs", "llabs")},
    "__nv_popc": lambda x: np.bitwise_count(x.astype(np.uint32)),  # numpy counts the bits of absolute values
    "__nv_popcll": lambda x: np.bitwise_count(x.astype(np.uint64)),
    **{f"__nv_float2int_{to}": _to_int32(rounded) for to, rounded in ROUNDED.items()},
}


def install() -> None:
    """Install the functions in Triton's modules. Call it before a candidate is imported."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as typed
    from triton.runtime import interpreter

    interpreter.InterpreterBuilder.create_extern_elementwise = _elementwise
    named = [n for n in vars(libdevice) if callable(getattr(libdevice, n)) and not n.startswith("_")]
    called = {n: _called(n, getattr(typed, n, None), interpreter.interpreter_semantic) for n in named}
    vars(libdevice).update(called)
    vars(typed).update(called)
    also_in_copies({libdevice.__name__, typed.__name__}, called)


def also_in_copies(modules: Collection[str], called: Mapping[str, Callable[..., Any]]) -> None:
    """Let a module that somebody executes once more (`spec.loader.exec_module`) get the functions, too."""
    execute = SourceFileLoader.exec_module

    def executed(loader: SourceFileLoader, module: ModuleType) -> None:
        execute(loader, module)
        if module.__name__ in modules:
            vars(module).update(called)

    setattr(SourceFileLoader, "exec_module", executed)  # noqa: B010 (mypy refuses the other form)


def _called(name: str, typed: Any, semantic: Any) -> Callable[..., Any]:
    """Return the function that a kernel calls: Triton's typed one, which ends in `_elementwise`."""

    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        if typed is None:
            raise Lacking(f"libdevice.{name}")
        return typed(*args, **kwargs, _semantic=semantic)

    return call


def function(symbol: str) -> Callable[..., Array]:
    """Return what computes a function of libdevice. Raises Lacking for an unknown one."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    result = EXACT.get(symbol) or FLOATS.get(name) or FLOATS.get(name.removesuffix("f"))
    if result is None:
        raise Lacking(f"libdevice's {symbol}")
    return result


def _elementwise(
    _builder: Any, _name: str, _path: str, symbol: str, handles: list[Any], returns: Any, _pure: bool
) -> Any:
    from triton.runtime import interpreter

    with np.errstate(all="ignore"):
        value = function(symbol)(*(handle.data for handle in handles))
    scalar = returns.scalar
    return interpreter.TensorHandle(np.asarray(value).astype(interpreter._get_np_dtype(scalar)), scalar)
