"""Are the results right? Compares with a float64 reference, by the error of plain PyTorch in the same precision.

The rule (FlashAttention-3's test, made stricter by a bound on the mean), for every output:
    max |out - ref64|  <= max_ratio  * max |low - ref64|  + floor        max_ratio 2
    mean |out - ref64| <= mean_ratio * mean |low - ref64| + rounding     mean_ratio 1.5
`low` is the reference in the inputs' own precision; for fp8 that is the tensor cores' (`fp8_arithmetic.py`). `floor` is
twice the largest change of the reference by adding and subtracting 0.3 in the output's type. `rounding` is half a unit
in the last place of the reference's mean magnitude in that type. Further bounds, on few rows and on the errors' signs,
are in `error_bounds.py`.

NaN and infinities must be where the reference has them. While a candidate's kernels run the expected result is sealed
(`sealed.py`). Stress inputs come from `stress_inputs.py`, and their callers pass looser ratios. One seed is not enough
for an output of few elements: `reference_error.py` takes more.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from pgo_agent.sandbox import in_place
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.gate.reason import NONE, Reason, plain
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.results import error_bounds, fp8_arithmetic, sealed, stress_inputs
from pgo_agent.sandbox.judge.results.deviation import Error, chunks, compare
from pgo_agent.sandbox.judge.results.error_bounds import Bound, Held
from pgo_agent.sandbox.judge.results.fp8_arithmetic import TensorCores
from pgo_agent.sandbox.judge.results.sealed import Sealed, seal
from pgo_agent.sandbox.judge.results.stress_inputs import Layout, StressInput
from torch.utils._pytree import tree_map

SAME = 1e-9  # of the largest result, in float64
_LAYOUTS: WeakKeyDictionary[ModuleType, dict[tuple[str, str], Layout]] = WeakKeyDictionary()  # by case and device
MANY = 64  # elements of an output that are hardly all exact by chance


@dataclass(frozen=True)
class Expected:
    """What a case with a seed must give."""

    case: str
    seed: int
    outputs: tuple[Sealed, ...]
    low: tuple[Error, ...]  # errors of the reference in its own precision
    floors: tuple[tuple[float, float], ...]  # (max, mean): error that rounding alone may cause
    dtypes: tuple[str, ...]
    stress_input: str = ""  # name; empty: none
    yardstick: str = ""  # the arithmetic of `low`; empty: torch's, in the inputs' own types
    # of each output without a stress input, the elements at least half as large as its largest; 0 for integers
    large: tuple[int, ...] = ()

    @property
    def reliable(self) -> bool:
        """Whether the reference has NaN and infinities in its own precision where float64 has them."""
        return not any(e.misplaced for e in self.low)

    @property
    def intact(self) -> bool:
        """Whether no launch has changed the expected outputs."""
        return all(o.intact for o in self.outputs)


@dataclass(frozen=True)
class Comparison:
    """One set of outputs compared with the expected ones."""

    case: str
    seed: int
    errors: tuple[Error, ...]
    bounds: tuple[Bound, ...]
    why: Reason  # what is wrong; empty when right
    stress_input: str = ""
    yardstick: str = ""  # as of Expected
    elements: int = 0  # that were compared
    admits: Mapping[str, float] | None = None  # the TOLERANCE that would let a problem pass, if any
    shipped: bool = False  # whether the errors of the kernel as shipped set bounds, too

    @property
    def problem(self) -> str:
        """What is wrong, for a person; empty when right."""
        return self.why.for_person()

    def as_json(self) -> JsonObject:
        fields = {
            "case": self.case,
            "strain": self.stress_input,
            "seed": self.seed,
            "errors": [e.as_json() for e in self.errors],
            "bounds": [list(b) for b in self.bounds],
            "problem": self.problem,
            "elements": self.elements,
        }
        more = {"yardstick": self.yardstick, "admits": dict(self.admits or {}), "shipped": self.shipped}
        return fields | {k: v for k, v in more.items() if v}


def make_inputs(
    target: ModuleType, case: dict[str, object], seed: int, device: Any, stress_input: StressInput | None = None
) -> dict[str, object]:
    """Return the arguments of the case for a seed. Raises TargetFault when inputs() fails, gives other than IN_PLACE
    names, or holds nothing that the stress input changes."""
    inputs = _made(target, case, seed, device, stress_input)
    in_place.check(in_place.names(target), inputs)
    return inputs


def _made(
    target: ModuleType, case: dict[str, object], seed: int, device: Any, stress_input: StressInput | None
) -> dict[str, object]:

    def new() -> torch.Generator:
        return torch.Generator(device=device).manual_seed(seed)

    try:
        if stress_input is None:
            return dict(target.inputs(case, new()))
        inputs = stress_inputs.make(
            lambda generator: target.inputs(case, generator), new, stress_input, lambda: layout(target, case, device)
        )
    except Exception as e:
        raise TargetFault(f"inputs() raised {type(e).__name__}: {e}", "fix inputs(case, generator)") from e
    if inputs is None:
        raise TargetFault(f"inputs() holds nothing for {stress_input.name}", "")
    return inputs


def layout(target: ModuleType, case: dict[str, object], device: Any) -> Layout:
    """Return what of a case's inputs a stress input can change. Raises what inputs() raises."""
    layouts, key = _LAYOUTS.setdefault(target, {}), (repr(case), str(device))
    if key not in layouts:
        layouts[key] = stress_inputs.layout(lambda generator: target.inputs(case, generator), device)
    return layouts[key]


def expect(
    target: ModuleType,
    name: str,
    case: dict[str, object],
    seed: int,
    device: Any,
    stress_input: StressInput | None = None,
    twice: bool = False,
    arch: int | None = None,
) -> Expected:
    """Run the reference in float64 and in its own precision. Raises TargetFault when it fails.

    `twice`: call it again in float64; it must give the same. `arch`: as of `fp8_arithmetic.of`.
    """
    inputs = make_inputs(target, case, seed, device, stress_input)
    with _doubles():
        exact = _outputs(target, _upcast(inputs))
        if twice:
            _repeated(name, exact, _outputs(target, _upcast(inputs)))
    cores = fp8_arithmetic.of(device, arch) if _of_fp8(target, inputs) else None
    low = _outputs(target, inputs, cores)
    if [o.shape for o in exact] != [o.shape for o in low]:
        raise TargetFault(f"{name}: reference() gives other shapes in float64", "make its shapes depend on shapes only")
    errors = tuple(compare(a, e, stress_input is None) for a, e in zip(low, exact, strict=True))
    floors = tuple(_floors(a, e) for a, e in zip(low, exact, strict=True))
    if stress_input is not None and stress_input.exact:
        chance = [e.worst > 0 or a.numel() < MANY for a, e in zip(low, errors, strict=True)]
        floors = tuple(f if c else (0.0, 0.0) for f, c in zip(floors, chance, strict=True))
    outputs = tuple(seal(e) for e in exact)
    dtypes = tuple(str(a.dtype)[6:] for a in low)
    counted = () if stress_input else zip(low, exact, strict=True)
    large = tuple(_at_least_half(e) if a.is_floating_point() else 0 for a, e in counted)
    for tensor in (*exact, *low):
        tensor.zero_()  # a candidate may get this memory
    yardstick = cores.summary if cores else ""
    label = stress_input.name if stress_input else ""
    return Expected(name, seed, outputs, errors, floors, dtypes, label, yardstick, large)


def _at_least_half(exact: Any) -> int:
    def magnitudes() -> Iterator[Any]:
        return (p.double().nan_to_num(0.0, 0.0, 0.0).abs() for p in sealed.pieces(exact, exact.device))

    half = max((float(m.max()) for m in magnitudes()), default=0.0) / 2
    return sum(int((m >= half).sum()) for m in magnitudes())


@contextmanager
def _doubles() -> Iterator[None]:
    """What a reference makes without naming a type (zeros, a tensor of numbers) is float64, as its inputs are."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def forgiving(under_stress: Expected, usual: Expected) -> Expected:
    """Return what a case must give under a stress input, allowing at least the error of its usual inputs.

    Equal rows leave few different results: plain PyTorch may be exact on them by chance, and a kernel need not be.
    Outputs that must be exact stay exact.
    """
    pairs = list(zip(under_stress.low, under_stress.floors, usual.low, usual.floors, strict=True))
    exact = [not s.worst and f == (0.0, 0.0) for s, f, _, _ in pairs]
    low = tuple(Error(max(s.worst, u.worst), max(s.mean, u.mean), s.misplaced) for s, _, u, _ in pairs)
    floors = tuple((max(f[0], g[0]), max(f[1], g[1])) for _, f, _, g in pairs)
    return replace(
        under_stress,
        low=tuple(s[0] if e else n for s, n, e in zip(pairs, low, exact, strict=True)),
        floors=tuple(s[1] if e else n for s, n, e in zip(pairs, floors, exact, strict=True)),
    )


def check(
    outputs: list[Any],
    expected: Expected,
    tolerance: dict[str, float] | None = None,
    shipped: Sequence[Error] | None = None,
) -> Comparison:
    """Compare outputs with the expected ones. Wrong outputs raise nothing: `why` says what is wrong.

    `shipped`: what the kernel as shipped errs on the same inputs, which then sets bounds, too.
    """
    want = [(o.shape, d) for o, d in zip(expected.outputs, expected.dtypes, strict=True)]
    got = [(tuple(o.shape), str(o.dtype)[6:]) for o in outputs]
    if got != want:
        why = plain(f"outputs are {_describe(got)}, the reference gives {_describe(want)}")
        return Comparison(expected.case, expected.seed, (), (), why, expected.stress_input)
    errors = [_error(o, e, expected.stress_input) for o, e in zip(outputs, expected.outputs, strict=True)]
    held = list(map(Held, errors, expected.low, expected.floors, expected.dtypes))
    limits = tuple(h.bound(tolerance or {}) for h in held)
    if shipped:
        limits = tuple(limit.beside(own) for limit, own in zip(limits, shipped, strict=True))
    why = next((w for i, (e, b) in enumerate(zip(errors, limits, strict=True)) if (w := b.problem(i, e))), NONE)
    return Comparison(
        expected.case,
        expected.seed,
        tuple(errors),
        limits,
        why,
        expected.stress_input,
        expected.yardstick,
        elements=sum(o.numel() for o in outputs),
        admits=error_bounds.admits(held) if why else None,
        shipped=bool(shipped),
    )


def looser(tolerance: Mapping[str, float] | None, times: float) -> dict[str, float]:
    """Return a target's ratios, or the default ones, times a factor."""
    return {name: times * ratio for name, ratio in (error_bounds.RATIOS | dict(tolerance or {})).items()}


def _error(x: Any, exact: Any, stress_input: str) -> Error:
    """Return the error; under a stress input without runs and signs, see `error_bounds.py`."""
    error = compare(x, exact, not stress_input)
    return replace(error, runs=None, lean=None) if stress_input else error


def _of_fp8(target: ModuleType, inputs: Mapping[str, Any]) -> bool:
    """Whether an input is in fp8, or the reference makes fp8 numbers."""
    if any(t.dtype in fp8_arithmetic.FP8 for t in in_place.tensors(dict(inputs))):
        return True
    try:
        return "float8" in inspect.getsource(target.reference)
    except (OSError, TypeError):
        return False


def _outputs(target: ModuleType, inputs: dict[str, object], cores: TensorCores | None = None) -> list[Any]:
    try:
        with cores or nullcontext():
            out = target.reference(**in_place.copied(in_place.names(target), inputs))
    except Exception as e:
        raise TargetFault(f"reference() raised {type(e).__name__}: {e}", "fix reference(), in float64 too") from e
    outs = list(out) if isinstance(out, list | tuple) else [out]
    if not all(isinstance(o, torch.Tensor) for o in outs):
        raise TargetFault("reference() must return a tensor or a tuple of tensors", "return what the kernel returns")
    return outs


def _repeated(name: str, once: list[Any], again: list[Any]) -> None:
    """Raise TargetFault when the second call of the reference differs: its noise would hide a kernel's errors.

    Sums in another order differ by less than SAME.
    """
    for a, b in zip(once, again, strict=True):
        error = compare(a, b) if a.shape == b.shape else None
        if error is None or error.misplaced or error.worst > SAME * _largest(b):
            raise TargetFault(
                f"{name}: reference() gives other results when it is called again on the same inputs",
                "take random numbers, clocks and counters out of it, and let it change no input but those of IN_PLACE",
            )


def _largest(x: Any) -> float:
    finite = torch.nan_to_num(x.double(), 0.0, 0.0, 0.0).abs()
    return float(finite.max()) if x.numel() else 0.0


def _upcast(inputs: dict[str, object]) -> dict[str, object]:
    def wide(x: Any) -> Any:
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return dict(tree_map(wide, inputs))


def _floors(low: Any, exact: Any) -> tuple[float, float]:
    """Return the error that rounding in the output's type may cause: of the maximum and of the mean."""
    if not low.is_floating_point():
        return 0.0, 0.0

    def rounded(x: Any) -> Any:
        return x.to(low.dtype).double()

    worst, total = 0.0, 0.0
    for _, e in chunks(low, exact):
        moved = rounded(rounded(rounded(e) + 0.3) - 0.3) - rounded(e)
        worst = max(worst, float(torch.nan_to_num(moved, 0.0, 0.0, 0.0).abs().max()))
        total += float(torch.nan_to_num(e, 0.0, 0.0, 0.0).abs().sum())
    return 2 * worst, torch.finfo(low.dtype).eps / 2 * total / max(low.numel(), 1)


def _describe(outputs: list[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{d}{list(s)}" for s, d in outputs)
