"""Kernel parameters as plain C would lay them out, and as the stub wrote them down."""

import struct
from collections.abc import Iterator
from typing import Any

C_TYPES = {"u1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
C_TYPES |= {"fp16": "e", "fp32": "f", "fp64": "d"}


def block(launch: dict[str, Any]) -> bytes:
    """A recorded launch's parameters, each at the offset that the cubin gives it."""
    memory = bytearray()
    for offset, data in launch["parameters"]:
        memory = memory.ljust(offset, b"\0") + bytes.fromhex(data)
    return bytes(memory)


def c_struct(job: dict[str, Any]) -> bytes:
    """The arguments and the two scratch pointers as a C compiler would lay out a struct of them."""
    form, values = "@", []
    for kind, arg in _leaves(job["signature"], job["args"]):
        if kind == "bf16":
            form, arg = form + "H", struct.unpack("<I", struct.pack("<f", arg))[0] >> 16
        else:
            form += "Q" if kind[0] == "*" else C_TYPES[kind]
        values.append(arg)
    return struct.pack(form + "QQ", *values, *job["scratch"])


def _leaves(signature: tuple[Any, ...], args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    for kind, arg in zip(signature, args, strict=True):
        if isinstance(kind, tuple):
            yield from _leaves(kind, arg)
        elif kind != "constexpr":
            yield kind, arg
