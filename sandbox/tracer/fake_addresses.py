"""Addresses that fake tensors answer `data_ptr()` with, and what lies there. Relies on nothing; imports no torch."""

from typing import Any

BASE, STEP = 1 << 46, 1 << 40  # one terabyte for each storage, far above any real address


class Addresses:
    """Fake tensors answer `data_ptr()` with an address of their own, which is found again where it is used as a
    number."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._keep: list[Any] = []
        self._asked: dict[int, Any] = {}  # address -> the tensor whose it is

    def of(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._index:
            self._index[storage._cdata] = len(self._index)
            self._keep.append(storage)
        address = BASE + self._index[storage._cdata] * STEP + int(tensor.storage_offset()) * int(tensor.element_size())
        self._asked[address] = tensor
        return address

    def tensor(self, n: object) -> Any:
        """Return the tensor that was asked last for this address; None where it is no such address."""
        return self._asked.get(n) if type(n) is int else None

    def contains(self, n: object) -> bool:
        return type(n) is int and BASE <= n < BASE + len(self._index) * STEP

    def found(self, n: int) -> tuple[Any, int]:
        """Return the storage in which an address lies, and the byte of it."""
        place, byte = divmod(n - BASE, STEP)
        return self._keep[place], byte
