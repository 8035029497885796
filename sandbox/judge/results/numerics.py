"""Are the results right? Error against a float64 reference, measured by what plain PyTorch errs in the same precision.

The rule (FlashAttention-3's test, made stricter by a bound on the mean): for every output, max |out - ref64|  <=
max_ratio  * max |low - ref64|  + floor        max_ratio 2 mean |out - ref64| <= mean_ratio * mean |low - ref64| +
rounding     mean_ratio 1.5 where `low` is the reference run in the inputs' own precision, `floor` is twice the most
that adding and subtracting 0.3 does to the reference in the output's type, and `rounding` is half a unit in the last
place of the reference's mean magnitude in that type. In fp8 that precision is the tensor cores' (`fp8_arithmetic.py`),
which a GPU computes with. What is asked beside that, of few rows and of the errors' signs, and why, is
`error_bounds.py`'s.

NaN and infinities must stand where the reference has them. The expected result is kept in host memory while a
candidate's kernels run. Stress inputs come from `stress_inputs.py`; who asks for them gives looser ratios. Of an
output of few elements one seed says little: `reference_error.py` takes more.
"""

import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.gate.reason import NONE, Reason, plain
from pgo_agent.sandbox.judge.results import error_bounds, fp8_arithmetic, stress_inputs
from pgo_agent.sandbox.judge.results.deviation import Error, chunks, compare
from pgo_agent.sandbox.judge.results.error_bounds import Bound, Held
from pgo_agent.sandbox.judge.results.fp8_arithmetic import TensorCores
from pgo_agent.sandbox.judge.results.stress_inputs import StressInput

SAME = 1e-9  # of the largest result, in float64
MANY = 64  # elements of an output that are not all exact by chance


@dataclass(frozen=True)
class Expected:
    """What a case with a seed must give."""

    case: str
    seed: int
    outputs: tuple[Any, ...]  # float64 (integers: int64) tensors in host memory
    low: tuple[Error, ...]  # what the reference errs in its own precision
    floors: tuple[tuple[float, float], ...]  # (max, mean): what rounding alone may cost
    dtypes: tuple[str, ...]
    stress_input: str = ""  # the name of the stress input that its inputs were under
    yardstick: str = ""  # whose arithmetic `low` is; empty: torch's, in the inputs' own types

    @property
    def reliable(self) -> bool:
        """Whether the reference keeps its NaN and infinities in its own precision where float64 has them."""
        return not any(e.misplaced for e in self.low)


@dataclass(frozen=True)
class Comparison:
    """One set of outputs against what was expected."""

    case: str
    seed: int
    errors: tuple[Error, ...]
    bounds: tuple[Bound, ...]
    why: Reason  # what is wrong; empty when right
    stress_input: str = ""
    yardstick: str = ""  # as of Expected
    elements: int = 0  # that were compared
    admits: Mapping[str, float] | None = None  # of a problem: the TOLERANCE that lets it pass, where one does

    @property
    def problem(self) -> str:
        """What is wrong, for a person; empty when right."""
        return self.why.for_person()

    def as_json(self) -> dict[str, Any]:
        told = {
            "case": self.case,
            "strain": self.stress_input,
            "seed": self.seed,
            "errors": [e.as_json() for e in self.errors],
            "bounds": [list(b) for b in self.bounds],
            "problem": self.problem,
            "elements": self.elements,
        }
        more = {"yardstick": self.yardstick, "admits": dict(self.admits or {})}
        return told | {k: v for k, v in more.items() if v}


def make_inputs(
    target: ModuleType, case: dict[str, Any], seed: int, device: Any, stress_input: StressInput | None = None
) -> dict[str, Any]:
    """The arguments of the case for a seed. Raises TargetFault when inputs() does, or has nothing for the stress
    input."""

    def new() -> torch.Generator:
        return torch.Generator(device=device).manual_seed(seed)

    try:
        if stress_input is None:
            return dict(target.inputs(case, new()))
        given = stress_inputs.made(lambda generator: target.inputs(case, generator), new, stress_input)
    except Exception as e:
        raise TargetFault(f"inputs() raised {type(e).__name__}: {e}", "mend inputs(case, generator)") from e
    if given is None:
        raise TargetFault(f"inputs() holds nothing for {stress_input.name}", "")
    return given


def expect(
    target: ModuleType,
    name: str,
    case: dict[str, Any],
    seed: int,
    device: Any,
    stress_input: StressInput | None = None,
    twice: bool = False,
) -> Expected:
    """Runs the reference in float64 and in its own precision. Raises TargetFault when it does not behave.

    `twice`: it is called again in float64, and has to give the same.
    """
    given = make_inputs(target, case, seed, device, stress_input)
    exact = _outputs(target, _upcast(given))
    if twice:
        _repeated(name, exact, _outputs(target, _upcast(given)))
    cores = fp8_arithmetic.of(device) if _of_fp8(target, given) else None
    low = _outputs(target, given, cores)
    if [o.shape for o in exact] != [o.shape for o in low]:
        raise TargetFault(f"{name}: reference() gives other shapes in float64", "make its shapes depend on shapes only")
    errors = tuple(compare(a, e, stress_input is None) for a, e in zip(low, exact, strict=True))
    floors = tuple(_floors(a, e) for a, e in zip(low, exact, strict=True))
    if stress_input is not None and stress_input.exact:
        chance = [e.worst > 0 or a.numel() < MANY for a, e in zip(low, errors, strict=True)]
        floors = tuple(f if c else (0.0, 0.0) for f, c in zip(floors, chance, strict=True))
    kept = tuple(e.to("cpu", torch.float64 if e.is_floating_point() else torch.int64, copy=True) for e in exact)
    dtypes = tuple(str(a.dtype)[6:] for a in low)
    for tensor in (*exact, *low):
        tensor.zero_()  # freed memory may be handed to a candidate
    yardstick = cores.said if cores else ""
    return Expected(name, seed, kept, errors, floors, dtypes, stress_input.name if stress_input else "", yardstick)


def forgiving(under_stress: Expected, usual: Expected) -> Expected:
    """What a case must give under a stress input, with no less error allowed than of the same case's usual inputs.

    Equal rows leave few different results: plain PyTorch may be exact on them by chance, and a kernel need not be.
    Where exact results are demanded nothing changes.
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


def check(outputs: list[Any], expected: Expected, tolerance: dict[str, float] | None = None) -> Comparison:
    """Compares outputs with what was expected. Never raises for wrong outputs: it says what is wrong."""
    want = [(tuple(o.shape), d) for o, d in zip(expected.outputs, expected.dtypes, strict=True)]
    got = [(tuple(o.shape), str(o.dtype)[6:]) for o in outputs]
    if got != want:
        why = plain(f"outputs are {_said(got)}, the reference gives {_said(want)}")
        return Comparison(expected.case, expected.seed, (), (), why, expected.stress_input)
    found = [_error(o, e, expected.stress_input) for o, e in zip(outputs, expected.outputs, strict=True)]
    held = list(map(Held, found, expected.low, expected.floors, expected.dtypes))
    limits = tuple(h.bound(tolerance or {}) for h in held)
    why = next((w for i, (e, b) in enumerate(zip(found, limits, strict=True)) if (w := b.problem(i, e))), NONE)
    said = Comparison(
        expected.case, expected.seed, tuple(found), limits, why, expected.stress_input, expected.yardstick
    )
    admits = error_bounds.admits(held) if why else None
    return replace(said, elements=sum(o.numel() for o in outputs), admits=admits)


def looser(tolerance: Mapping[str, float] | None, times: float) -> dict[str, float]:
    """A target's ratios, or ours, multiplied."""
    return {name: times * ratio for name, ratio in (error_bounds.RATIOS | dict(tolerance or {})).items()}


def _error(x: Any, exact: Any, stress_input: str) -> Error:
    """Under a stress input of the whole alone: see `error_bounds.py`."""
    found = compare(x, exact, not stress_input)
    return replace(found, runs=None, lean=None) if stress_input else found


def _of_fp8(target: ModuleType, given: Mapping[str, Any]) -> bool:
    """Whether numbers in fp8 are among the inputs, or the reference makes such."""
    if any(t.dtype in fp8_arithmetic.FP8 for t in stress_inputs.tensors(dict(given))):
        return True
    try:
        return "float8" in inspect.getsource(target.reference)
    except (OSError, TypeError):
        return False


def _outputs(target: ModuleType, inputs: dict[str, Any], cores: TensorCores | None = None) -> list[Any]:
    try:
        with cores or nullcontext():
            out = target.reference(**inputs)
    except Exception as e:
        raise TargetFault(f"reference() raised {type(e).__name__}: {e}", "mend reference(), in float64 too") from e
    outs = list(out) if isinstance(out, list | tuple) else [out]
    if not all(isinstance(o, torch.Tensor) for o in outs):
        raise TargetFault("reference() must return a tensor or a tuple of tensors", "return what the kernel returns")
    return outs


def _repeated(name: str, once: list[Any], again: list[Any]) -> None:
    """Raises TargetFault when the reference gave other results: its noise would be taken for what plain PyTorch errs,
    and hide a kernel's errors. Sums in another order differ by less than SAME.
    """
    for a, b in zip(once, again, strict=True):
        error = compare(a, b) if a.shape == b.shape else None
        if error is None or error.misplaced or error.worst > SAME * _largest(b):
            raise TargetFault(
                f"{name}: reference() gives other results when it is called again on the same inputs",
                "take random numbers, clocks and counters out of it, and leave its arguments as they are",
            )


def _largest(x: Any) -> float:
    finite = torch.nan_to_num(x.double(), 0.0, 0.0, 0.0).abs()
    return float(finite.max()) if x.numel() else 0.0


def _upcast(inputs: dict[str, Any]) -> dict[str, Any]:
    def wide(x: Any) -> Any:
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return {n: [wide(x) for x in v] if isinstance(v, list | tuple) else wide(v) for n, v in inputs.items()}


def _floors(low: Any, exact: Any) -> tuple[float, float]:
    """What the bounds of max and mean allow besides the reference's own error: rounding in the output's type."""
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


def _said(outputs: list[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{d}{list(s)}" for s, d in outputs)
