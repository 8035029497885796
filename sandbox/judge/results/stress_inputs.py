"""Inputs that a kernel fitted to the usual ones does not bear: named stress inputs, for both judges.

A stress input changes what `inputs()` draws from its generator, at the moment it is drawn: what a target makes of it (a
transposed copy, the forward pass that a backward pass starts from) is made of the changed numbers and stays consistent.
A target that draws no floats has its float tensors changed as it returns them, and so are those that are the same for
every seed (weights of ones, say), which a stress input of one tensor has its turn for behind the draws. Discrete draws
are left alone.

What a stress input does not do: say what is right. A stress input counts where the target's own kernel bears it with
room to spare (OWN_RATIO), and a candidate may then err LOOSER times as much as usual: only a breakdown is meant to be
caught.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FACTOR, OUTLIER = 8.0, 64.0  # powers of two: they round nothing
RARE = 1024  # one element in so many is an outlier
DOMINANT = 32.0  # times as large is one row, or one element of each row; a power of two
TINY = 4.0  # times the smallest normal number: half of what is multiplied by it is subnormal
WIDEST = 4  # the largest of the small integers: sums of thousands of their products are exact in float32
LOOSER, OWN_RATIO = 8.0, 2.0  # times the ratios of numerics.py, for a candidate and for the target's own kernel
_DISCRETE = {"bernoulli", "bernoulli_", "multinomial", "randint", "randint_like", "random_", "randperm"}

Change = Callable[[Any, torch.Generator], Any]  # a float tensor and a source of places -> the tensor to have instead


@dataclass(frozen=True)
class StressInput:
    name: str  # as reasons say it: "d64-even with equal rows: ..."
    change: Change | None = None  # of what was drawn; None: `masks` alone
    draw: int | None = None  # the one draw that it changes, counted from the first, or from the last below 0; None: all
    exact: bool = False  # where plain PyTorch makes no error in low precision, none is allowed
    masks: bool = False  # it changes the masks among the inputs
    turns: bool = False  # worth a trial with each of the draws

    def as_turn(self, turn: int) -> "StressInput":
        """The same stress input for the n-th case of a list, so that different cases have different draws changed."""
        return self if self.draw is None else replace(self, draw=self.draw + (turn if self.draw >= 0 else -turn))

    def of_draw(self, n: int) -> "StressInput":
        """The same stress input of the n-th draw, which its name tells."""
        return replace(self, draw=n, name=f"{self.name} in input {n + 1}" if n else self.name)


def _scaled(t: Any, _: torch.Generator) -> Any:
    return t * FACTOR


def _outliers(t: Any, places: torch.Generator) -> Any:
    flat = t.reshape(-1).clone()
    at = torch.randint(flat.numel(), (math.ceil(flat.numel() / RARE),), generator=places).to(flat.device)
    flat[at] = torch.copysign(flat[at].abs().clamp_min(1.0) * OUTLIER, flat[at])  # none is lost for being small before
    return flat.view(t.shape)


def _equal_rows(t: Any, _: torch.Generator) -> Any:
    return (t[..., :1, :] if t.dim() > 1 else t[:1]).expand_as(t).clone()


def _integers(t: Any, _: torch.Generator) -> Any:
    return (t * 2).round().clamp(-WIDEST, WIDEST) + 0.0  # no negative zeros


def _zeros(t: Any, _: torch.Generator) -> Any:
    return torch.zeros_like(t)


def _tiny(t: Any, _: torch.Generator) -> Any:
    """Subnormal in its own type, every other element in half precision, which it may be cast to."""
    out = t.clone().reshape(-1)
    out[::2] *= TINY * torch.finfo(torch.float16).tiny
    out[1::2] *= TINY * torch.finfo(t.dtype).tiny
    return out.view(t.shape)


def _negative(t: Any, _: torch.Generator) -> Any:
    return -t.abs().clamp_min(torch.finfo(t.dtype).eps)


def _dominant_row(t: Any, places: torch.Generator) -> Any:
    """One row of the last two dimensions, in every matrix: a key that all queries look at, say."""
    out = t.clone()
    row = int(torch.randint(t.shape[-2] if t.dim() > 1 else t.shape[-1], (1,), generator=places))
    part = out[..., row, :] if t.dim() > 1 else out[row]
    part.mul_(DOMINANT)
    return out


def _dominant_element(t: Any, places: torch.Generator) -> Any:
    """One element in every row, at a place of the row's own: a sum over rows stays as large as its addends."""
    out = t.clone().reshape(-1, t.shape[-1])
    at = torch.randint(t.shape[-1], (out.shape[0], 1), generator=places).to(t.device)
    held = out.gather(1, at)
    out.scatter_(1, at, torch.copysign(held.abs().clamp_min(1.0) * DOMINANT, held))
    return out.view(t.shape)


def _one(value: float) -> Change:
    """In the last row, so that causal kernels that skip blocks by their size see it as those of another size do."""

    def change(t: Any, places: torch.Generator) -> Any:
        flat = t.reshape(-1).clone()
        flat[-1 - int(torch.randint(t.shape[-1], (1,), generator=places))] = value
        return flat.view(t.shape)

    return change


SCALED = StressInput(f"inputs times {FACTOR:g}", _scaled)
STRESS_INPUTS = (
    SCALED,
    StressInput("outliers", _outliers),
    StressInput("equal rows", _equal_rows),
    StressInput("small integers", _integers, exact=True),
    StressInput("zeros", _zeros, draw=0),
    StressInput("tiny numbers", _tiny),
    StressInput("negative numbers", _negative),
    StressInput("a dominant row", _dominant_row, draw=-1),
    StressInput("a dominant element in each row", _dominant_element),
    StressInput("a NaN", _one(math.nan), draw=0, turns=True),
    StressInput("an infinity", _one(math.inf), draw=-1, turns=True),
    StressInput("wholly masked rows", masks=True),
)


def made(
    inputs: Callable[[torch.Generator], dict[str, Any]], new: Callable[[], torch.Generator], stress_input: StressInput
) -> dict[str, Any] | None:
    """What `inputs` gives of a new generator under the stress input; None when it holds nothing to be changed.

    Lets through what `inputs` raises.
    """
    change, only, fixed = stress_input.change or _unchanged, stress_input.draw, list[int]()
    if only is not None:
        count, fixed = _count(inputs, new), _fixed(inputs, new)
        only %= max(1, count + len(fixed)) if count else 1
        fixed = fixed[only - count :] if only >= count > 0 else []
    generator = new()
    draws = _Draws(generator, change, only)
    with draws:
        given = dict(inputs(generator))
    if stress_input.masks:
        return given if _mask(given) else None
    whole = list(_storages(given))
    if draws.count and not fixed:
        return given
    chosen = fixed[0] if fixed else None if stress_input.draw is None else stress_input.draw % max(1, len(whole))
    for i, t in enumerate(whole):
        if chosen in (None, i):
            t.copy_(change(t, _places(generator, i)))
    return given if whole else None


def _unchanged(t: Any, _: torch.Generator) -> Any:
    return t


def draws(inputs: Callable[[torch.Generator], dict[str, Any]], device: Any) -> int:
    """How many tensors a stress input of one can change: those that are drawn, and those that are the same for every
    seed."""

    def new() -> torch.Generator:
        return torch.Generator(device=device).manual_seed(0)

    count = _count(inputs, new)
    return count + len(_fixed(inputs, new)) if count else len(list(_storages(inputs(new()))))


def _fixed(inputs: Callable[[torch.Generator], dict[str, Any]], new: Callable[[], torch.Generator]) -> list[int]:
    """Which float storages hang on no draw: their bytes are the same for two seeds."""
    other = new()
    other.manual_seed((other.initial_seed() + 1) % (1 << 63))
    pairs = zip(_storages(inputs(new())), _storages(inputs(other)), strict=False)
    return [i for i, (a, b) in enumerate(pairs) if torch.equal(_bytes(a), _bytes(b))]


def _bytes(t: Any) -> Any:
    return t.reshape(-1).view(torch.uint8)


def _count(inputs: Callable[[torch.Generator], dict[str, Any]], new: Callable[[], torch.Generator]) -> int:
    generator = new()
    with _Draws(generator, _unchanged, None) as draws:
        inputs(generator)
    return int(draws.count)


def _places(generator: torch.Generator, draw: int) -> torch.Generator:
    """A generator of a draw's own, on the CPU, which follows from the secret seed alone."""
    return torch.Generator().manual_seed((generator.initial_seed() + 1 + draw) % (1 << 63))


class _Draws(TorchFunctionMode):  # type: ignore[misc]
    """Changes the float tensors that are drawn from a generator while it is entered."""

    def __init__(self, generator: torch.Generator, change: Change, only: int | None) -> None:
        super().__init__()
        self.generator, self.change, self.only, self.count = generator, change, only, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not any(a is self.generator for a in (*args, *kwargs.values())) or func.__name__ in _DISCRETE:
            return out
        if isinstance(out, torch.Tensor) and out.is_floating_point() and out.numel():
            if self.only in (None, self.count):
                out.copy_(self.change(out, _places(self.generator, self.count)))
            self.count += 1
        return out


def _storages(given: dict[str, Any]) -> Iterator[Any]:
    """One tensor for each float storage, that covers all of it: tensors may be views of one another."""
    seen = set()
    for t in tensors(given):
        storage = t.untyped_storage()
        if t.is_floating_point() and t.numel() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            whole = torch.empty(0, dtype=t.dtype, device=t.device).set_(storage)
            yield whole.view(t.shape) if t.is_contiguous() and t.numel() == whole.numel() else whole


def tensors(given: dict[str, Any]) -> Iterator[Any]:
    """The tensors among the arguments, those in lists as well."""
    for v in given.values():
        yield from (x for x in (v if isinstance(v, list | tuple) else [v]) if isinstance(x, torch.Tensor))


def _mask(given: dict[str, Any]) -> bool:
    """Masks the last row wholly in every mask, and (for masks that mean the reverse) the first not at all."""
    found = False
    for t in tensors(given):
        added = t.is_floating_point() and bool((t == -math.inf).any())
        if t.dim() > 1 and t.numel() and (t.dtype == torch.bool or added):
            found = True
            t[..., -1, :] = -math.inf if added else False
            if not added:
                t[..., 0, :] = True
    return found
