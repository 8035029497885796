"""Sends a Triton kernel's launches to faster kernels where they are launches that these were judged for.

A copy of this file stands in each patch that `pgo-agent export --as launches` writes, so it imports torch and Triton
alone. A launch is taken over only if the launcher that was judged, given the same arguments, would make this very
launch: same grid, numbers, shapes, strides and types, and the same tensors in the same places. All others go on as
they were. Options of the compiler, such as num_warps, change no result and are not compared.
"""

import hashlib
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime.autotuner import Autotuner, Heuristics

OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "launch_pdl"}
MOST = 4096  # kinds of launches that are remembered


@dataclass(frozen=True)
class Region:
    """A faster kernel, and the arguments that it is for."""

    guard: Callable[..., bool]
    kernel: Callable[..., None]  # called with the results' tensors, then with the arguments


@dataclass(frozen=True)
class _Plan:
    """What becomes of one kind of launches."""

    region: Region
    inputs: tuple[str, ...]  # arguments of the kernel whose launches these are
    results: tuple[str, ...]


@dataclass
class Patched:
    """`run` of a kernel. `launches`: how many it took over."""

    kernel: Any  # as the module has it, with its autotuner, if there is one
    shipped: Callable[[Any], Callable[..., object]]  # the launcher that was judged, with this in place of the kernel
    parameters: tuple[str, ...]  # of that launcher
    regions: Sequence[Region]
    gpu: str  # that it was proven on
    launches: int = 0
    _plans: dict[object, _Plan | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before, function = self.kernel.run, _function(self.kernel)
        self._names = tuple(function.arg_names)
        declared = inspect.signature(function.fn).parameters.values()
        self._defaults = {p.name: p.default for p in declared if p.default is not p.empty}
        self._tuned = function is not self.kernel

    def __call__(self, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> Any:
        given = {**self._defaults, **dict(zip(self._names, args, strict=False)), **options}
        plan = None if warmup else self._plan(given, grid)
        if plan is None:
            return self._before(*args, grid=grid, warmup=warmup, **options)
        self.launches += 1
        into = tuple(given[n] for n in plan.results)
        plan.region.kernel(into, *(given[n] for n in plan.inputs))
        return None

    def _plan(self, given: Mapping[str, Any], grid: Any) -> _Plan | None:
        tensors = [v for v in given.values() if isinstance(v, torch.Tensor)]
        if not tensors or _overlap(tensors):
            return None
        numbers = self._numbers(given, grid)
        first = {t.data_ptr(): i for i, t in reversed(list(enumerate(tensors)))}
        key = numbers, tuple((n, _told(v, first)) for n, v in given.items())
        try:
            if key not in self._plans:
                if len(self._plans) >= MOST:
                    self._plans.clear()
                self._plans[key] = self._made(given, numbers)
        except TypeError:  # an argument that cannot be compared
            return None
        return self._plans[key]

    def _numbers(self, given: Mapping[str, Any], grid: Any) -> tuple[int, ...] | None:
        """Return the launch grid; None where only an autotuner can tell it."""
        if callable(grid):
            try:
                grid = grid(dict(given))
            except KeyError:
                return None
        return (*(int(n) for n in grid), 1, 1, 1)[:3]

    def _made(self, given: Mapping[str, Any], numbers: tuple[int, ...] | None) -> _Plan | None:
        """Return what becomes of launches of this kind: the launcher that was judged says what it would launch."""
        seen = _Stands(given)
        known = {**given, **{f"grid{i}": n for i, n in enumerate(numbers or ())}}
        if not set(self.parameters) <= set(known):
            return None
        recorder = _Recorder(self._names)
        results = list(_flat(self.shipped(recorder)(*(seen.stand(known[p]) for p in self.parameters))))
        if len(recorder.calls) != 1:
            return None
        would, named = recorder.calls[0]
        same_grid = numbers == would if numbers is not None else self._tuned
        if not same_grid or not self._same({**self._defaults, **named}, given, seen):
            return None
        places = [next((n for n, v in named.items() if v is r), "") for r in results]
        region = next((r for r in self.regions if r.guard(*(known[p] for p in self.parameters))), None)
        if region is None or not all(places):
            return None
        if any(not seen.known(named[p]) and not given[p].is_contiguous() for p in places):
            return None  # allocated as torch.empty does
        return _Plan(region, self.parameters, tuple(places)) if self._proven(given) else None

    def _same(self, named: Mapping[str, Any], given: Mapping[str, Any], seen: "_Stands") -> bool:
        """Whether a launch that was judged has the arguments of one that is made."""
        judged = {n: v for n, v in named.items() if n not in OPTIONS}
        made = {n: v for n, v in given.items() if n not in OPTIONS}
        missing = judged.keys() - made.keys()
        if made.keys() - judged.keys() or (missing and not self._tuned):
            return False
        return all(seen.same(v, made[n]) for n, v in judged.items() if n in made)

    def _proven(self, given: Mapping[str, Any]) -> bool:
        device = next(v.device for v in given.values() if isinstance(v, torch.Tensor))
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        if self.gpu != name:
            warnings.warn(f"faster kernels were proven on {self.gpu}, not on {name}: the original runs", stacklevel=2)
        return bool(self.gpu == name)


class _Recorder:
    """Stands in for the kernel: keeps what it is launched with."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.calls = names, list[tuple[tuple[int, ...], dict[str, Any]]]()

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **options: Any) -> None:
            named = {**dict(zip(self.names, args, strict=False)), **options}
            numbers = grid(dict(named)) if callable(grid) else grid
            self.calls.append(((*(int(n) for n in numbers), 1, 1, 1)[:3], named))

        return launch


class _Stands:
    """Tensors without memory in place of those of a launch: the same one for the same memory."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.of = dict[object, torch.Tensor]()
        self.memory = {v.data_ptr() for v in given.values() if isinstance(v, torch.Tensor)}
        self.read = set[int]()  # addresses of what stands for something

    def stand(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        key = (value.data_ptr(), *_form(value))
        if key not in self.of:
            self.of[key] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            self.read.add(value.data_ptr())
        return self.of[key]

    def known(self, value: object) -> bool:
        return any(t is value for t in self.of.values())

    def same(self, judged: Any, made: Any) -> bool:
        if not isinstance(judged, torch.Tensor):
            return not isinstance(made, torch.Tensor) and bool(_plain(judged) == _plain(made))
        if not isinstance(made, torch.Tensor) or _form(judged) != _form(made):
            return False
        if self.known(judged):
            return self.of.get((made.data_ptr(), *_form(made))) is judged
        return made.data_ptr() not in self.read  # a result, of its own memory


def install(
    module: str,
    kernel: str,
    digest: str,
    gpu: str,
    shipped: Callable[[Any], Callable[..., object]],
    parameters: Sequence[str],
    regions: Sequence[Region],
) -> Patched | None:
    """Take over launches of a module's kernel. Nothing is done, and that is said, where the module's file is not the
    one (sha256 `digest`) that the faster kernels were proven against."""
    found = importlib.import_module(module)
    text = Path(str(found.__file__)).read_bytes()
    if hashlib.sha256(text).hexdigest() != digest:
        warnings.warn(f"{module} is not as it was when a faster {kernel} was proven: the original runs", stacklevel=2)
        return None
    launched = getattr(found, kernel)
    launched.run = patched = Patched(launched, shipped, tuple(parameters), regions, gpu)
    return patched


def _function(kernel: Any) -> Any:
    """Return the compiled function within autotuners and heuristics."""
    while isinstance(kernel, Autotuner | Heuristics):
        kernel = kernel.fn
    return kernel


def _form(t: torch.Tensor) -> tuple[object, ...]:
    return tuple(t.shape), t.stride(), t.dtype


def _told(value: Any, first: Mapping[int, int]) -> object:
    """Return what tells launches apart: of a tensor its form, its alignment, and which one has the same memory."""
    if isinstance(value, torch.Tensor):
        return *_form(value), value.data_ptr() % 16, first[value.data_ptr()], value.device
    return type(value), value


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, triton.language.constexpr) else value


def _overlap(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether tensors share a part of their memory, and not all of it."""
    begins = {(t.data_ptr(), t.data_ptr() + _extent(t)) for t in tensors if t.numel()}
    ordered = sorted(begins)
    return any(after[0] < before[1] for before, after in pairwise(ordered))


def _extent(t: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    return int(t.element_size() * (1 + sum((n - 1) * abs(s) for n, s in zip(t.shape, t.stride(), strict=True))))


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from _flat(one)
    elif value is not None:
        yield value
