"""A model of PyTorch's in a file that makes its inputs from sizes, called in any of them.

All of it runs on meta tensors: nothing is computed. Relies on `torch.func.functional_call`.
"""

import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

Sizes = Mapping[str, int]
# Operators that may leave parts of a tensor unread.
_PARTS = tuple(
    f"aten.{name}."
    for name in ("embedding", "index", "gather", "index_select", "take", "slice", "select", "as_strided", "diagonal")
)
TRIED = 400  # calls of the model at most


@dataclass(frozen=True)
class Call:
    """What a model did in one call."""

    calls: tuple[str, ...]  # operators that ran, with what they were given beside tensors
    outputs: tuple[Any, ...]
    moved: int  # bytes of inputs, weights and outputs
    flops: int

    @property
    def partial(self) -> bool:
        """Whether parts of what it is given may stay unread."""
        return any(c.startswith(_PARTS) for c in self.calls)

    def cost(self) -> dict[str, int]:
        return {"flops": self.flops, "bytes": self.moved}


class SizedModel:
    """`module`: it has Model, get_inputs and get_init_inputs; the last two take the sizes named `given` and `init`."""

    def __init__(self, module: Any, given: Sequence[str], init: Sequence[str]) -> None:
        self.module, self.given, self.init, self.count = module, given, init, 0

    def called(self, sizes: Sizes, of_model: Sizes | None = None) -> Call:
        """Call the model. `of_model`: the sizes that it is made with, where they are others than its weights'.

        Raises what the model raises, and TypeError for results that are no tensors.
        """
        self.count += 1
        with torch.device("meta"), torch.no_grad():
            model, weights = self._model(of_model or sizes), tensors(self._model(sizes))
            given = self._given(sizes)
            with _Calls() as calls, FlopCounterMode(display=False) as counter:
                results = torch.func.functional_call(model, weights, tuple(given))
        outputs = tuple(results) if isinstance(results, tuple | list) else (results,)
        if not outputs or not all(isinstance(o, torch.Tensor) for o in outputs):
            raise TypeError("the model gives what is no tensor, and no list of tensors")
        moved = sum(t.nbytes for t in (*given, *weights.values(), *outputs) if isinstance(t, torch.Tensor))
        return Call(tuple(calls.seen), outputs, moved, counter.get_total_flops())

    def nearest(self, sizes: Sizes, ladder: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Return sizes that the model takes: of each the first of its ladder that it takes with those before."""
        chosen = dict(sizes)
        for name, tried in ladder.items():
            chosen[name] = next(n for n in tried if n == sizes[name] or self._takes({**chosen, name: n}))
        return chosen

    def same(self, sizes: Sizes, of_model: Sizes) -> bool:
        """Whether a model that is made with other sizes does the same, once it has the weights of these."""
        try:
            return self.called(sizes).calls == self.called(sizes, of_model).calls
        except Exception:  # whatever a model raises
            return False

    def described(self, sizes: Sizes) -> dict[str, Any]:
        """Return the names of what the model and its constructor are given, and its weights."""
        init = self._init(sizes)
        with torch.device("meta"):
            model, count = self.module.Model(*init), len(self._given(sizes))
        forward = list(inspect.signature(model.forward).parameters)[:count]
        modules = list(model.modules())
        return {
            "forward": forward if len(forward) == count else [f"x{i}" for i in range(count)],
            "init": list(inspect.signature(type(model)).parameters)[: len(init)],
            "dropout": any(isinstance(m, _DropoutNd) and m.p for m in modules),
            "batch_norm": any(isinstance(m, _BatchNorm) and m.track_running_stats for m in modules),
            "weights": list(tensors(prepared(model))),
        }

    def _given(self, sizes: Sizes) -> list[Any]:
        return list(self.module.get_inputs(*(sizes[n] for n in self.given)))

    def _init(self, sizes: Sizes) -> list[Any]:
        made = self.module.get_init_inputs(*(sizes[n] for n in self.init))
        if not isinstance(made, list | tuple):
            raise TypeError(f"get_init_inputs() gives a {type(made).__name__}, and not a list of arguments in order")
        return list(made)

    def _model(self, sizes: Sizes) -> Any:
        return prepared(self.module.Model(*self._init(sizes)))

    def _takes(self, sizes: Sizes) -> bool:
        if self.count > TRIED:
            return False
        try:
            return all(o.numel() for o in self.called(sizes).outputs)
        except Exception:  # whatever a model raises
            return False


def prepared(model: Any) -> Any:
    """Return a model that draws no random numbers and keeps nothing between calls, as its target makes it."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
        elif isinstance(module, _BatchNorm) and module.training:
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return model


def tensors(model: Any) -> dict[str, Any]:
    """Return the weights and buffers of a model, each once."""
    return {n: t.detach() for n, t in itertools.chain(model.named_parameters(), model.named_buffers())}


class _Calls(TorchDispatchMode):
    """Writes down the operators that run, with what they are given beside tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(f"{func} {tree_map_only(torch.Tensor, lambda t: tuple(t.shape), (args, kwargs))}")
        return func(*args, **(kwargs or {}))
