"""Named stress inputs, for both judges: inputs on which a kernel fails that only fits the usual ones.

A stress input changes the floats that `inputs()` draws from its generator, at the moment of the draw. So what a target
computes from them (a transposed copy, the forward pass before a backward pass) stays consistent. Float tensors that are
the same for every seed (weights of ones) are changed as they are returned, also if a target draws no floats; a stress
input of one tensor counts them after the draws. Discrete draws stay.

Does not say what is right. A stress input counts where the target's own kernel passes it with a margin (OWN_RATIO). A
candidate may then err LOOSER times as much as usual: only breakdowns are to be found.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from pgo_agent.sandbox.in_place import tensors
from pgo_agent.sandbox.judge.own_steps import INPUT
from torch.overrides import TorchFunctionMode

FACTOR, OUTLIER = 8.0, 64.0  # powers of two: no rounding
RARE = 1024  # one element in so many is an outlier
DOMINANT = 32.0  # factor of one row, or of one element of each row; a power of two
LARGE = 2.0**17  # times a usual number is beyond the largest of half precision, 65504
TINY = 4.0  # times the smallest normal number: half of the products are subnormal
WIDEST = 4  # the largest of the small integers: sums of thousands of their products are exact in float32
LOOSER, OWN_RATIO = 8.0, 2.0  # times the ratios of numerics.py, for a candidate and for the target's own kernel
_DISCRETE = {"bernoulli", "bernoulli_", "multinomial", "randint", "randint_like", "random_", "randperm"}

Change = Callable[[Any, torch.Generator], Any]  # (float tensor, generator of positions) -> changed tensor


@dataclass(frozen=True)
class StressInput:
    """One way to change the inputs of a case."""

    name: str  # as in a reason: "d64-even with equal rows: ..."
    change: Change | None = None  # of drawn tensors; None: only `masks`
    draw: int | None = None  # index of the one draw that it changes, as in a list; None: all
    exact: bool = False  # where plain PyTorch makes no error, a kernel may not either
    masks: bool = False  # change the masks among the inputs
    turns: bool = False  # try each draw
    finite: bool = False  # it does not count where it makes an infinity or a NaN
    strides: bool = False  # same values, with rows further apart in memory

    def as_turn(self, turn: int) -> "StressInput":
        """Return it for the n-th case of a list: different cases have different draws changed."""
        return self if self.draw is None else replace(self, draw=self.draw + (turn if self.draw >= 0 else -turn))

    def of_draw(self, n: int) -> "StressInput":
        """Return it for the n-th draw, with that in its name."""
        return replace(self, draw=n, name=f"{self.name}{INPUT}{n + 1}" if n else self.name)


def _scaled(t: Any, _: torch.Generator) -> Any:
    return t * FACTOR


def _outliers(t: Any, places: torch.Generator) -> Any:
    flat = t.reshape(-1).clone()
    at = torch.randint(flat.numel(), (math.ceil(flat.numel() / RARE),), generator=places).to(flat.device)
    flat[at] = torch.copysign(flat[at].abs().clamp_min(1.0) * OUTLIER, flat[at])  # small ones too
    return flat.view(t.shape)


def _equal_rows(t: Any, _: torch.Generator) -> Any:
    return (t[..., :1, :] if t.dim() > 1 else t[:1]).expand_as(t).clone()


def _integers(t: Any, _: torch.Generator) -> Any:
    return (t * 2).round().clamp(-WIDEST, WIDEST) + 0.0  # no negative zeros


def _zeros(t: Any, _: torch.Generator) -> Any:
    return torch.zeros_like(t)


def _tiny(t: Any, _: torch.Generator) -> Any:
    """Make every other element subnormal in its type, the rest in half precision, to which it may be cast."""
    out = t.clone().reshape(-1)
    out[::2] *= TINY * torch.finfo(torch.float16).tiny
    out[1::2] *= TINY * torch.finfo(t.dtype).tiny
    return out.view(t.shape)


def _large(t: Any, _: torch.Generator) -> Any:
    """Take numbers beyond the range of half precision."""
    return t * LARGE


def _negative(t: Any, _: torch.Generator) -> Any:
    return -t.abs().clamp_min(torch.finfo(t.dtype).eps)


def _dominant_row(t: Any, places: torch.Generator) -> Any:
    """Enlarge one row of every matrix (last two dimensions), such as a key that all queries attend to."""
    out = t.clone()
    row = int(torch.randint(t.shape[-2] if t.dim() > 1 else t.shape[-1], (1,), generator=places))
    part = out[..., row, :] if t.dim() > 1 else out[row]
    part.mul_(DOMINANT)
    return out


def _dominant_element(t: Any, places: torch.Generator) -> Any:
    """Enlarge one element in every row, each at another position: sums over rows stay as large as their terms."""
    out = t.clone().reshape(-1, t.shape[-1])
    at = torch.randint(t.shape[-1], (out.shape[0], 1), generator=places).to(t.device)
    held = out.gather(1, at)
    out.scatter_(1, at, torch.copysign(held.abs().clamp_min(1.0) * DOMINANT, held))
    return out.view(t.shape)


def _single_value(value: float) -> Change:
    """Return a change of one element of the last row, which causal kernels of any block size see."""

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
    StressInput("large numbers", _large, draw=0, turns=True, finite=True),
    StressInput("negative numbers", _negative),
    StressInput("a dominant row", _dominant_row, draw=-1),
    StressInput("a dominant element in each row", _dominant_element),
    StressInput("a NaN", _single_value(math.nan), draw=0, turns=True),
    StressInput("an infinity", _single_value(math.inf), draw=-1, turns=True),
    StressInput("wholly masked rows", masks=True),
)


STRIDED = StressInput("rows apart", strides=True)
# A recorded plan names the strides of its case, so only what calls the launcher can try others.
LAUNCHER_STRESS_INPUTS = (*STRESS_INPUTS, STRIDED)
GAP = 16  # bytes between rows of the first tensor, twice as many in the second: TMA needs multiples of 16


@dataclass(frozen=True)
class Layout:
    """What of the inputs of a case a stress input can change. It is the same for every seed."""

    drawn: int  # float tensors that are drawn
    fixed: tuple[int, ...]  # indices of float storages whose bytes are the same for every seed
    storages: int  # of floats

    @property
    def tensors(self) -> int:
        return self.drawn + len(self.fixed) if self.drawn else self.storages


def layout(inputs: Callable[[torch.Generator], dict[str, object]], device: Any) -> Layout:
    """Call `inputs` for two seeds to see what it draws. Raises what it raises."""

    def made(seed: int) -> tuple[int, list[Any]]:
        generator = torch.Generator(device=device).manual_seed(seed)
        with _Draws(generator, _unchanged, None) as draws:
            arguments = inputs(generator)
        return draws.count, list(_storages(arguments))

    (count, some), (_, others) = made(0), made(1)
    fixed = (i for i, (a, b) in enumerate(zip(some, others, strict=False)) if torch.equal(_bytes(a), _bytes(b)))
    return Layout(count, tuple(fixed), len(some))


def make(
    inputs: Callable[[torch.Generator], dict[str, object]],
    new: Callable[[], torch.Generator],
    stress_input: StressInput,
    known: Callable[[], Layout],
) -> dict[str, object] | None:
    """Call `inputs` with a new generator under the stress input; return None when there is nothing to change.

    `known`: of these inputs. Raises what `inputs` raises.
    """
    made = _made(inputs, new, stress_input, known)
    if made is not None and stress_input.finite and _infinite(made) > _infinite(inputs(new())):
        return None
    return made


def _made(
    inputs: Callable[[torch.Generator], dict[str, object]],
    new: Callable[[], torch.Generator],
    stress_input: StressInput,
    known: Callable[[], Layout],
) -> dict[str, object] | None:
    change, only, fixed = stress_input.change or _unchanged, stress_input.draw, tuple[int, ...]()
    if only is not None:
        count, fixed = known().drawn, known().fixed
        only %= max(1, count + len(fixed)) if count else 1
        fixed = fixed[only - count : only - count + 1] if only >= count > 0 else ()
    generator = new()
    draws = _Draws(generator, change, only)
    with draws:
        arguments = dict(inputs(generator))
    if stress_input.strides:
        return _apart(arguments)
    if stress_input.masks:
        return arguments if _mask(arguments) else None
    whole = list(_storages(arguments))
    if draws.count and not fixed:
        return arguments
    chosen = fixed[0] if fixed else None if stress_input.draw is None else stress_input.draw % max(1, len(whole))
    for i, t in enumerate(whole):
        if chosen in (None, i):
            t.copy_(change(t, _places(generator, i)))
    return arguments if whole else None


def _infinite(arguments: dict[str, object]) -> int:
    """Count what is infinite or NaN in all float tensors. torch cannot ask fp8 for that."""
    wide = (t.float() if t.element_size() == 1 else t for t in _storages(arguments))
    return sum(int((~t.isfinite()).sum()) for t in wide)


def _apart(arguments: dict[str, object]) -> dict[str, object] | None:
    """Return the arguments with rows of every contiguous matrix apart, each tensor with a gap of its own; None where
    there is none."""
    result, count = dict(arguments), 0
    for name, t in arguments.items():
        if isinstance(t, torch.Tensor) and t.dim() > 1 and t.numel() and t.is_contiguous():
            count += 1
            gap = count * max(1, GAP // t.element_size())
            room = torch.empty((*t.shape[:-1], t.shape[-1] + gap), dtype=t.dtype, device=t.device)
            room.copy_(torch.tensor(math.nan if t.is_floating_point() else 1))
            apart = room[..., : t.shape[-1]]
            apart.copy_(t)
            result[name] = apart
    return result if count else None


def _unchanged(t: Any, _: torch.Generator) -> Any:
    return t


def _bytes(t: Any) -> Any:
    return t.reshape(-1).view(torch.uint8)


def _places(generator: torch.Generator, draw: int) -> torch.Generator:
    """Return a CPU generator for one draw, seeded by the secret seed and the draw's index."""
    return torch.Generator().manual_seed((generator.initial_seed() + 1 + draw) % (1 << 63))


class _Draws(TorchFunctionMode):  # type: ignore[misc]
    """Changes float tensors as they are drawn from a generator, while it is entered."""

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


def _storages(arguments: dict[str, object]) -> Iterator[Any]:
    """Give one tensor for each float storage, covering all of it: tensors may be views of one another."""
    seen = set()
    for t in tensors(arguments):
        storage = t.untyped_storage()
        if t.is_floating_point() and t.numel() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            whole = torch.empty(0, dtype=t.dtype, device=t.device).set_(storage)
            yield whole.view(t.shape) if t.is_contiguous() and t.numel() == whole.numel() else whole


def _mask(arguments: dict[str, object]) -> bool:
    """Mask the last row of every mask, and unmask its first (for inverted masks). Return whether there is one."""
    masked = False
    for t in tensors(arguments):
        added = t.is_floating_point() and bool((t == -math.inf).any())
        if t.dim() > 1 and t.numel() and (t.dtype == torch.bool or added):
            masked = True
            t[..., -1, :] = -math.inf if added else False
            if not added:
                t[..., 0, :] = True
    return masked
