"""The closed grammar that a bundle's JSON is read by: types and bounds of every field, nothing else gets through.

Each function reads one form and raises BadBundle for anything that is not exactly it.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from pgo_agent.sandbox.bundle.schema import (
    ITEMSIZE,
    MOST_STEPS,
    Address,
    Descriptor,
    Kernel,
    Launch,
    Literal,
    OnDevice,
    Op,
    Plan,
    Storage,
    Tensor,
    TmaMeta,
    TorchName,
)
from pgo_agent.sandbox.bundle.torch_ops import OPS
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.json_codec import JsonObject

_TYPE = re.compile(
    r"(\*k?(i1|i8|i16|i32|i64|u1|u8|u16|u32|u64|fp16|bf16|fp32|fp64|fp8e4nv|fp8e5|fp8e4b15|fp8e4b8|fp8e5b16)"
    r"|i1|i8|i16|i32|i64|u1|u8|u16|u32|u64|fp16|bf16|fp32|f32|fp64|constexpr"
    # what follows the block is Gluon's repr of its layout; nothing that C could be made of
    r"|tensordesc<(fp16|bf16|fp32|fp8e4nv|fp8e5|i8|u8|i32)\[\d+(, ?\d+){0,4}\][A-Za-z0-9_ .,=()\[\]-]{0,400}>)\Z"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}\Z")
_SHA = re.compile(r"[0-9a-f]{64}\Z")
_WORD = re.compile(r"[\w .:,=+()'\[\]/-]{1,400}\Z")
_TORCH_NAMES = frozenset({*ITEMSIZE, "strided", "contiguous_format", "preserve_format"})


def need(ok: bool, why: str) -> None:
    if not ok:
        raise BadBundle(why)


def integer(x: Any, low: int, high: int, what: str) -> int:
    need(type(x) is int and low <= x <= high, f"{what} out of bounds: {x!r:.40}")
    return int(x)


def among(x: Any, allowed: tuple[int, ...], what: str) -> None:
    need(type(x) is int and x in allowed, f"{what} {x!r:.40} is not allowed")


def listed(x: Any, most: int, what: str) -> list[Any]:
    need(type(x) is list and len(x) <= most, f"{what} must be a list of at most {most}")
    return list(x)


def keyed(x: Any, keys: set[str], what: str) -> JsonObject:
    """Return an object that has exactly these fields. Raises BadBundle for anything else."""
    return _keyed(x, keys, what)


def _keyed(x: Any, keys: set[str], what: str) -> dict[str, Any]:
    need(type(x) is dict and set(x) == keys, f"{what} must have exactly the fields {', '.join(sorted(keys))}")
    return dict(x)


def text(x: Any, pattern: re.Pattern[str], what: str) -> str:
    need(type(x) is str and pattern.match(x) is not None, f"{what} is not allowed: {x!r:.60}")
    return str(x)


def kernel_name(x: Any) -> str:
    return text(x, _NAME, "kernel name")


def sha(x: Any) -> str:
    return text(x, _SHA, "content hash")


def word(x: Any, what: str) -> str:
    return text(x, _WORD, what)


def dtype(x: Any) -> str:
    need(type(x) is str and x in ITEMSIZE, f"dtype {x!r:.40}")
    return str(x)


def sizes(x: Any, what: str) -> tuple[int, ...]:
    return tuple(integer(n, 0, 1 << 40, what) for n in listed(x, 12, what))


def tensor(x: Any) -> Tensor:
    d = _keyed(x, {"t", "dtype", "size", "stride", "offset"}, "tensor")
    decoded = Tensor(
        integer(d["t"], 0, 4095, "storage index"),
        dtype(d["dtype"]),
        sizes(d["size"], "size"),
        sizes(d["stride"], "stride"),
        integer(d["offset"], 0, 1 << 40, "offset"),
    )
    need(len(decoded.size) == len(decoded.stride), "a tensor's size and stride differ in rank")
    return decoded


def last_byte(t: Tensor) -> int:
    """Return one past the last byte that the tensor covers in its storage."""
    if 0 in t.size:
        return 0
    last = t.offset + sum((n - 1) * s for n, s in zip(t.size, t.stride, strict=True))
    return (last + 1) * ITEMSIZE[t.dtype]


def _literal(x: Any) -> Literal:
    d = _keyed(x, {"literal", "size", "dtype"}, "literal")
    values = tuple(_element(v) for v in listed(d["literal"], 65536, "literal"))
    size = sizes(d["size"], "size")
    need(len(values) == math.prod(size), "a literal whose size does not fit its values")
    of_addresses = any(isinstance(v, Address) for v in values)
    need(not of_addresses or d["dtype"] in ("int64", "uint64"), "addresses in a literal of another type")
    return Literal(values, dtype(d["dtype"]), size)


def _element(x: Any) -> Any:
    return _address(x) if type(x) is dict and "address" in x else scalar(x)


def _address(x: Any) -> Address:
    d = _keyed(x, {"address", "byte"}, "address")
    return Address(integer(d["address"], 0, 4095, "storage"), integer(d["byte"], 0, 1 << 40, "byte of an address"))


def _descriptor(x: Any) -> Descriptor:
    d = _keyed(x, {"desc", "shape", "strides", "block", "padding", "tf32"}, "descriptor")
    need(d["padding"] in ("zero", "nan") and type(d["tf32"]) is bool, "descriptor padding")
    return Descriptor(
        tensor(d["desc"]), sizes(d["shape"], "shape"), sizes(d["strides"], "strides"), d["padding"], d["tf32"]
    )


def scalar(x: Any) -> Any:
    """Return None, bool, int, or a float written as hex. Raises BadBundle for anything else."""
    if x is None or type(x) is bool:
        return x
    if type(x) is int:
        return integer(x, -(1 << 63), (1 << 64) - 1, "integer")
    d = _keyed(x, {"f"}, "number")
    need(type(d["f"]) is str and len(d["f"]) < 40, "a float")
    try:
        return float.fromhex(d["f"])
    except (ValueError, OverflowError):
        raise BadBundle(f"a float: {d['f']!r:.40}") from None


def value(x: Any, depth: int = 0) -> Any:
    """Return any argument of an op or a launch."""
    need(depth < 5, "arguments nested too deeply")
    if isinstance(x, list):
        return tuple(value(v, depth + 1) for v in listed(x, 256, "tuple argument"))
    if isinstance(x, dict):
        form: dict[str, Callable[[Any], Any]] = {
            "t": tensor,
            "literal": _literal,
            "address": _address,
            "desc": _descriptor,
            "torch": _torch,
            "device": _device,
        }
        return next((read(x) for key, read in form.items() if key in x), None) if form.keys() & x.keys() else scalar(x)
    if isinstance(x, str):
        return word(x, "text argument")
    return scalar(x)


def _torch(x: Any) -> TorchName:
    name = _keyed(x, {"torch"}, "torch name")["torch"]
    need(type(name) is str and name in _TORCH_NAMES, f"torch name {name!r:.40}")
    return TorchName(name)


def _device(x: Any) -> OnDevice:
    need(_keyed(x, {"device"}, "device")["device"] == "cuda", "an op on another device")
    return OnDevice()


def _signature(x: Any, depth: int = 0) -> Any:
    need(depth < 4, "signature nested too deeply")
    if isinstance(x, list):
        return tuple(_signature(s, depth + 1) for s in listed(x, 256, "signature"))
    return text(x, _TYPE, "argument type")


def flat(x: Any) -> list[Any]:
    """Return the leaves of nested tuples."""
    return [leaf for part in x for leaf in flat(part)] if isinstance(x, tuple) else [x]


def addresses(plan: Plan) -> list[Address]:
    """Return the addresses of storages that the steps of a plan are given as numbers."""
    given = [(s.args,) if isinstance(s, Launch) else (s.args, *s.kwargs.values()) for s in plan.steps]
    leaves = [leaf for part in flat(tuple(given)) for leaf in (part.values if isinstance(part, Literal) else (part,))]
    return [leaf for leaf in leaves if isinstance(leaf, Address)]


def _step(x: Any) -> Op | Launch:
    if isinstance(x, dict) and "op" in x:
        d = _keyed(x, {"op", "args", "kwargs", "out"}, "op")
        need(
            type(d["op"]) is str and d["op"] in OPS,
            f"the torch op {d['op']!r:.60} is not on the list that a plan may use",
        )
        need(type(d["kwargs"]) is dict and len(d["kwargs"]) <= 16, "op arguments")
        kwargs = {kernel_name(k): value(v) for k, v in d["kwargs"].items()}
        out = tuple(tensor(t) for t in listed(d["out"], 8, "op results"))
        return Op(d["op"], tuple(value(a) for a in listed(d["args"], 16, "op arguments")), kwargs, out)
    d = _keyed(x, {"kernel", "grid", "signature", "args"}, "launch")
    grid = listed(d["grid"], 3, "grid")
    need(len(grid) == 3, "a grid has three dimensions")
    gx, gy, gz = (integer(g, 0, m, "grid") for g, m in zip(grid, (2**31 - 1, 65535, 65535), strict=True))
    signature = tuple(_signature(s) for s in listed(d["signature"], 256, "signature"))
    args = tuple(value(a) for a in listed(d["args"], 256, "arguments"))
    return Launch(sha(d["kernel"]), (gx, gy, gz), signature, args)


def plan(x: Any) -> Plan:
    """Return a plan from its JSON. Raises BadBundle."""
    d = _keyed(x, {"inputs", "storages", "steps", "out"}, "plan")
    need(type(d["inputs"]) is dict and len(d["inputs"]) <= 256, "inputs")
    inputs = {kernel_name(n): value(v) for n, v in d["inputs"].items()}
    storages = []
    for entry in listed(d["storages"], 4096, "storages"):
        s = _keyed(entry, {"kind", "nbytes"}, "storage")
        need(s["kind"] in ("input", "buffer", "made"), "kind of a storage")
        storages.append(Storage(s["kind"], integer(s["nbytes"], 0, 1 << 40, "storage size")))
    steps = tuple(_step(s) for s in listed(d["steps"], MOST_STEPS, "steps"))
    return Plan(inputs, tuple(storages), steps, tuple(tensor(t) for t in listed(d["out"], 64, "outputs")))


def kernel(x: Any) -> Kernel:
    """Return a kernel's launch metadata from its JSON. Raises BadBundle."""
    d = _keyed(x, set(Kernel.__dataclass_fields__), "kernel")
    for scratch in ("global_scratch", "profile_scratch"):
        integer(d[f"{scratch}_size"], 0, 1 << 22, scratch)
        among(d[f"{scratch}_align"], (1, 2, 4, 8, 16, 32, 64, 128, 256), f"{scratch} alignment")
    for switch in ("launch_pdl", "launch_cooperative_grid"):
        need(type(d[switch]) is bool, switch)
    among(d["num_warps"], (1, 2, 4, 8, 12, 16, 20, 24, 28, 32), "num_warps")
    among(d["num_ctas"], (1, 2, 4, 8, 16), "num_ctas")
    integer(d["arch"], 70, 130, "arch")
    integer(d["shared"], 0, 1 << 20, "shared memory")
    need(type(d["files"]) is dict and "cubin" in d["files"], "a kernel needs its cubin")
    files = {kernel_name(k): sha(v) for k, v in d["files"].items()}
    metas = tuple(
        _tma_meta(m)
        for m in listed([] if d["tensordesc_meta"] is None else d["tensordesc_meta"], 64, "descriptor metadata")
    )
    return Kernel(
        **{
            **d,
            "name": kernel_name(d["name"]),
            "triton": word(d["triton"], "triton version"),
            "files": files,
            "tensordesc_meta": metas,
        }
    )


def _tma_meta(x: Any) -> TmaMeta:
    need(
        type(x) is dict and {"swizzle", "elem_size", "elem_type", "block_size", "fp4_padded"} <= set(x),
        "descriptor metadata",
    )
    need(not x.get("is_im2col"), "an im2col descriptor")
    block = [integer(b, 1, 256, "descriptor block") for b in listed(x["block_size"], 5, "descriptor block")]
    integer(x["swizzle"], 0, 3, "swizzle")
    integer(x["elem_type"], 0, 15, "element type")
    among(x["elem_size"], (1, 2, 4, 8), "descriptor element")
    need(type(x["fp4_padded"]) is bool, "descriptor element")
    return TmaMeta(x["swizzle"], x["elem_size"], x["elem_type"], x["fp4_padded"], tuple(block))
