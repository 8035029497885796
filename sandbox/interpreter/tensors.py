"""Moves tensors between processes as plain bytes and JSON: whole storages, and views of them. No pickle."""

from pathlib import Path
from typing import Any

import torch


def save(values: dict[str, Any], folder: Path, name: str) -> dict[str, Any]:
    """Writes the storages of `values` below `folder`; gives the JSON that `load` takes."""
    storages: list[int] = []
    described = {n: _describe(v, storages, folder, name) for n, v in values.items()}
    return {"name": name, "storages": len(storages), "values": described}


def _describe(v: Any, storages: list[int], folder: Path, name: str) -> Any:
    if isinstance(v, list | tuple):
        return {"list": [_describe(x, storages, folder, name) for x in v]}
    if not isinstance(v, torch.Tensor):
        return {"plain": v}
    storage = v.untyped_storage()
    if storage.data_ptr() not in storages:
        flat = torch.empty(0, dtype=torch.uint8).set_(storage)
        (folder / f"{name}.{len(storages)}.bin").write_bytes(flat.numpy().tobytes())
        storages.append(storage.data_ptr())
    return {
        "t": storages.index(storage.data_ptr()),
        "dtype": str(v.dtype)[6:],
        "size": list(v.shape),
        "stride": list(v.stride()),
        "offset": v.storage_offset(),
    }


def load(described: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values that `save` described. Raises ValueError, RuntimeError or OSError when the files do not fit."""
    files = [folder / f"{described['name']}.{i}.bin" for i in range(int(described["storages"]))]
    storages = [_storage(f.read_bytes()) for f in files]
    return {n: _restore(v, storages) for n, v in described["values"].items()}


def _storage(raw: bytes) -> Any:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).untyped_storage() if raw else torch.UntypedStorage(0)


def _restore(v: dict[str, Any], storages: list[Any]) -> Any:
    if "list" in v:
        return [_restore(x, storages) for x in v["list"]]
    if "plain" in v:
        return v["plain"]
    t = torch.empty(0, dtype=getattr(torch, v["dtype"]))
    return t.set_(storages[v["t"]], v["offset"], v["size"], v["stride"])
