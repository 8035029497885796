"""Moves tensors between processes as plain bytes and JSON: whole storages, and views of them. No pickle.

The judge reads a candidate's answer with it: the input of `load` may be forged, also the files.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle import decode, schema, validate
from pgo_agent.sandbox.json_codec import JsonObject

FILES_LIMIT = 8 << 30  # bytes of all storages together, by default


def save(values: dict[str, object], folder: Path, name: str) -> dict[str, object]:
    """Write the storages of `values` below `folder`; return the JSON that `load` takes."""
    storages: list[int] = []
    described = {n: _describe(v, storages, folder, name) for n, v in values.items()}
    return {"name": name, "storages": len(storages), "values": described}


def _describe(v: Any, storages: list[int], folder: Path, name: str) -> Any:
    if isinstance(v, list | tuple):
        return {"list": [_describe(x, storages, folder, name) for x in v]}
    if isinstance(v, torch.dtype):
        return {"dtype of torch": str(v)[6:]}
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


def plain(raw: bytes) -> Any:
    """Return a storage of these bytes."""
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).untyped_storage() if raw else torch.UntypedStorage(0)


def load(
    described: dict[str, object], folder: Path, most: int = FILES_LIMIT, storage: Callable[[bytes], Any] = plain
) -> dict[str, object]:
    """Return the values that `save` described, at most `most` bytes; `storage` makes a storage of bytes.

    Raises BadBundle, KeyError, TypeError or AttributeError for what `save` does not write.
    """
    name = decode.word(described["name"], "name of a file")
    decode.need("/" not in name, "a path for the name of a file")
    storages, left = list[Any](), most
    for i in range(decode.integer(described["storages"], 0, 4096, "number of storages")):
        raw = validate.read(folder / f"{name}.{i}.bin", left)
        left -= len(raw)
        storages.append(storage(raw))
    return {n: _restore(v, storages, most) for n, v in json_codec.from_json(JsonObject, described["values"]).items()}


def changed(values: dict[str, object], described: dict[str, object], folder: Path) -> list[str]:
    """Return the names of values whose tensors differ from the files, bit by bit."""
    return [n for n, before in load(described, folder).items() if not same(values[n], before)]


def same(now: Any, before: Any) -> bool:
    """Whether values are the same, bit by bit."""
    if isinstance(before, list):
        return len(now) == len(before) and all(same(n, b) for n, b in zip(now, before, strict=True))
    if not isinstance(before, torch.Tensor):
        return True
    return bool(now.shape == before.shape and torch.equal(_bits(now), _bits(before)))


def _bits(t: Any) -> Any:
    return t.contiguous().reshape(-1).view(torch.uint8)


def _restore(v: Any, storages: list[Any], most: int) -> Any:
    if "list" in v:
        return [_restore(x, storages, most) for x in v["list"]]
    if "plain" in v:
        return v["plain"]
    if "dtype of torch" in v:
        decode.need(v["dtype of torch"] in schema.ITEMSIZE, "a dtype of another name")
        return getattr(torch, v["dtype of torch"])
    tensor = decode.tensor(v)
    decode.need(tensor.storage < len(storages), "a tensor of a storage that is not there")
    # torch would make the storage larger
    decode.need(decode.last_byte(tensor) <= storages[tensor.storage].nbytes(), "a view beyond its storage")
    decode.need(math.prod(tensor.size) * schema.ITEMSIZE[tensor.dtype] <= most, "a view that repeats its storage")
    t = torch.empty(0, dtype=getattr(torch, tensor.dtype))
    return t.set_(storages[tensor.storage], tensor.offset, tensor.size, tensor.stride)
