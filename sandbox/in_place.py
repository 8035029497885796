"""The inputs that kernel() changes, as the contract names them: are they there, and may they be changed?

`target.py` reads the names from the text; this module looks at what inputs() gives for them. Relies on torch. Launches
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.target import IN_PLACE
from torch.utils._pytree import tree_leaves, tree_map

HINT = 'name the inputs that kernel() changes, tensors or lists of them: IN_PLACE = ("p", "exp_avg")'


def names(module: ModuleType) -> tuple[str, ...]:
    """Return the names in a contract that was imported."""
    return tuple(getattr(module, IN_PLACE, ()))


def tensors(values: Any) -> Iterator[Any]:
    """Give the tensors of an argument, or of several: also those in lists."""
    yield from (x for x in tree_leaves(values) if isinstance(x, torch.Tensor))


def check(changed: Sequence[str], inputs: Mapping[str, object]) -> None:
    """Raise TargetFault where a name is no input, or no tensor, or shares memory with an input that must not change."""
    for name in changed:
        if name not in inputs:
            raise TargetFault(f"IN_PLACE names {name!r}, and inputs() gives no such argument", HINT)
        leaves = tree_leaves(inputs[name])
        if not leaves or not all(isinstance(x, torch.Tensor) for x in leaves):
            raise TargetFault(f"IN_PLACE names {name!r}, which is no tensor and no list of tensors", HINT)
    if changed:
        _check_shared(changed, inputs)


def copied(changed: Sequence[str], inputs: Mapping[str, object]) -> dict[str, object]:
    """Return arguments with copies of those that may be changed, for one call."""
    return {n: tree_map(_copy, x) if n in changed else x for n, x in inputs.items()}


def _copy(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def _check_shared(changed: Sequence[str], inputs: Mapping[str, object]) -> None:
    """What lies in the same memory changes, too: then it must be named, or be made apart."""
    owners = {_storage(t): n for n in changed for t in tensors(inputs[n])}
    for name, value in inputs.items():
        shared = [owners[_storage(t)] for t in tensors(value) if _storage(t) in owners]
        if name not in changed and shared:
            hint = f"name {name!r} in IN_PLACE as well, or let inputs() give it memory of its own"
            raise TargetFault(f"input {name!r} shares memory with {shared[0]!r}, which kernel() changes", hint)


def _storage(t: Any) -> int:
    return int(t.untyped_storage()._cdata)
