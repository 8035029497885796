"""What is known of the values of a program's tensors, which nobody computes: how they were drawn, and what was copied.

A tensor is told from others by its storage. Everything is given in a form that JSON holds.
"""

from enum import Enum
from typing import Any

import torch
from pgo_agent.sandbox.tracer import made_values
from pgo_agent.sandbox.tracer.fake_addresses import Addresses
from torch.utils._pytree import tree_leaves

SPREAD = 0x9E3779B1  # a prime near 2**32 over the golden ratio: its multiples spread evenly over any range
_KEEPS = ("_to_copy", "clone", "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "detach", "contiguous")
_COPIES = ("_to_copy", "clone", "contiguous", "copy_")
_DRAWS = ("randn", "randn_like", "normal_", "rand", "rand_like", "uniform_", "empty", "empty_like", "empty_strided")


class TensorValues:
    """Storages by number, with what their values are."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._behind: dict[int, set[int]] = {}  # storage -> those whose addresses it holds
        self._tables: dict[int, list[Any]] = {}  # storage -> the tensors whose addresses it holds, and no more
        self._storages: dict[int, int] = {}
        self._recipes: dict[int, dict[str, Any]] = {}  # how the values of a storage were drawn
        self._copied: dict[int, int] = {}  # storage -> the one that its values were copied from, in another type maybe
        self._given = 0  # numbers that stand in for values
        self._keep: list[Any] = []

    def changed(self, tensor: Any, name: str) -> None:
        """Forget what is known of the values of a tensor that an op writes into, other than by a copy."""
        if name != "copy_":
            self._copied.pop(self.storage(tensor), None)
            self._recipes.pop(self.storage(tensor), None)

    def drawn(self, name: str, args: Any, out: Any) -> None:
        """Remember how values were drawn, where they only change type or shape afterwards, and what was copied."""
        if not isinstance(out, torch.Tensor):
            return
        if name == "randint":
            numbers = [a for a in args if type(a) is int]
            low, high = (numbers[0], numbers[1]) if len(numbers) > 1 else (0, numbers[0])
            self._recipes[self.storage(out)] = {"low": low, "high": high}
        elif name in _DRAWS:
            self._recipes[self.storage(out)] = {"draw": name}
        elif name in _KEEPS and (recipe := self._recipes.get(self.storage(args[0]))):
            self._recipes.setdefault(self.storage(out), recipe)
        once = name == "mul" and type(args[1]) in (int, float) and args[1] == 1  # x * 1: a copy that is no leaf
        if name in _COPIES or once:
            to, source = (args[0], args[1]) if name == "copy_" else (out, args[0])
            if self.storage(to) != self.storage(source) and to.numel() == source.numel():
                self._copied[self.storage(to)] = self.storage(source)
                if table := self._tables.get(self.storage(source)):
                    self._tables[self.storage(to)] = table

    def within(self, tensor: Any) -> int | None:
        """Return a whole number of the range that a tensor was drawn from, another one each time; None for no range."""
        recipe = self._recipes.get(self.storage(tensor), {})
        if "low" not in recipe:
            return None
        self._given += 1
        return int(recipe["low"] + self._given * SPREAD % max(recipe["high"] - recipe["low"], 1))

    def hold(self, given: Any, out: Any) -> None:
        """Remember whose addresses a result holds: those that it was given as numbers, or tensors of such."""
        leaves = tree_leaves(given)
        held = {self._numbered(self._addresses.found(n)[0]) for n in leaves if self._addresses.contains(n)}
        held = held.union(*(self._behind.get(self.storage(t), ()) for t in leaves if isinstance(t, torch.Tensor)))
        for t in tree_leaves(out) if held else ():
            if isinstance(t, torch.Tensor):
                self._behind.setdefault(self.storage(t), set()).update(held)

    def table(self, numbers: list[Any], out: Any) -> None:
        """Remember a tensor that was made of numbers as a table, where each of them is an address."""
        self.hold(numbers, out)
        held = [self._addresses.tensor(n) for n in numbers]
        if held and out.dim() == 1 and all(t is not None for t in held):
            self._tables[self.storage(out)] = held

    def storage(self, tensor: Any) -> int:
        return self._numbered(tensor.untyped_storage())

    def _numbered(self, storage: Any) -> int:
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = len(self._storages)
            self._keep.append(storage)
        return self._storages[storage._cdata]

    def copies(self, storage: int) -> list[int]:
        """Return the storages that the values of one were copied from, the nearest first."""
        found = [storage]
        while (before := self._copied.get(found[-1])) is not None and before not in found:
            found.append(before)
        return found[1:]

    def given(self, value: Any) -> dict[str, Any]:
        """As `plain`, for an argument: a table of addresses as the list of tensors behind it."""
        table = self._tables.get(self.storage(value)) if isinstance(value, torch.Tensor) else None
        if table is None or value.numel() != len(table):
            return self.plain(value)
        return {"list": [self.plain(t) for t in table], "tuple": False, "table": str(value.dtype)[6:]}

    def launched(self, value: Any) -> dict[str, Any]:
        """As `plain`, for an argument of a launch: what is no tensor, and says where one lies, is as that one."""
        asked = getattr(value, "data_ptr", None)
        if isinstance(value, torch.Tensor) or not callable(asked) or not self._addresses.contains(n := asked()):
            return self.plain(value)
        told = {"shape": list(value.shape), "stride": list(value.stride()), "dtype": "uint8", "grad": False}
        return told | {"storage": self._numbered(self._addresses.found(n)[0]), "recipe": {}, "copied": []}

    def plain(self, value: Any) -> dict[str, Any]:
        """Return a value in a form that JSON holds: a tensor by its shape, and others as what they are."""
        if isinstance(value, torch.Tensor):
            return {
                "storage": self.storage(value),
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "dtype": str(value.dtype)[6:],
                "grad": bool(value.requires_grad),
                "recipe": self._recipes.get(self.storage(value), {}),
                "copied": self.copies(self.storage(value)),
                "behind": sorted(self._behind.get(self.storage(value), ())),
            }
        if self._addresses.contains(value):
            return {"plain": value, "behind": [self._numbered(self._addresses.found(value)[0])]}
        if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
            return {"plain": value}
        if isinstance(value, torch.dtype):
            return {"dtype_": str(value)[6:]}
        if isinstance(value, list | tuple) and len(value) <= 64 and not _named_tuple(value):
            return {"list": [self.plain(v) for v in value], "tuple": isinstance(value, tuple)}
        if _named_tuple(value) and self.storages(value):
            return {"list": [self.plain(v) for v in value], "tuple": True}
        text = made_values.made(value)
        return {"other": type(value).__name__} | ({"made": text} if text else {})

    def storages(self, tree: Any) -> set[int]:
        """Return the storages of all tensors in a tree of values."""
        return {self.storage(t) for t in tree_leaves(tree) if isinstance(t, torch.Tensor)}

    def sources(self, value: dict[str, Any]) -> list[int]:
        """Return the storages that hold, or held, the values of what `plain` gave."""
        listed = [s for v in value.get("list", ()) for s in self.sources(v)]
        return [value["storage"], *value["copied"]] if "storage" in value else listed


def _named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")
