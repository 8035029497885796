"""A bundle is hostile until this says otherwise: nothing of it reaches CUDA, torch or a path before.

`load` reads bundle.json strictly, every artefact once (hashing what was read), and compares each kernel's declared
launch with its cubin's own parameter table. All rules that concern device memory use the limits of the judge's GPU.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle import decode, elf, schema
from pgo_agent.sandbox.bundle.decode import flat, integer, need
from pgo_agent.sandbox.bundle.schema import Address, Descriptor, Kernel, Launch, Plan, Tensor
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.json_codec import JsonObject

JSON_LIMIT, ARTEFACT_LIMIT, IMAGES_LIMIT = 64 << 20, 32 << 20, 512 << 20  # bytes
_POINTER, _BITS = 8, {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}
_DESCRIPTOR_BYTES = 128
_ADDRESSED = 1 << 31  # bytes: Proton computes a block's place in the profile scratch with 32 bits
_CALLS = {"vprintf", "__assertfail"}  # of the driver's functions: what device_print and device_assert become


@dataclass(frozen=True)
class Limits:
    """What the GPU that a bundle is to run on allows."""

    arch: int  # compute capability x 10
    smem_block: int  # bytes of shared memory that a block may opt in to
    memory: int  # bytes of device memory that one plan may take
    scratch: int  # bytes of scratch that one launch may take
    variables: bool = False  # whether device variables may be: the messages of a sanitizer are some
    records: bool = False  # whether profile scratch may be: clock reads of an instrumented build are put there


@dataclass(frozen=True)
class Bundle:
    """A bundle that passed every rule, with the cubins in hand."""

    id: str  # SHA-256 of bundle.json
    kernels: dict[str, Kernel]
    images: dict[str, bytes]  # kernel key -> cubin
    plans: dict[str, dict[str, Plan]]  # case -> choice of configuration -> plan


def load(manifest: Path, artefacts: Path, limits: Limits) -> Bundle:
    """Read and check a bundle. Raises BadBundle with the rule that it breaks."""
    raw = read(manifest, JSON_LIMIT)
    d = decode.keyed(strict_json(raw), {"schema", "kernels", "plans"}, "bundle")
    need(
        type(d["schema"]) is int and d["schema"] == schema.VERSION,
        f"schema {d['schema']!r:.20}, this version reads {schema.VERSION}",
    )
    listed = d["kernels"]
    need(isinstance(listed, dict) and len(listed) <= 4096, "kernels")
    kernels = {decode.sha(k): decode.kernel(v) for k, v in json_codec.from_json(JsonObject, listed).items()}
    shared: dict[str, bytes] = {}
    for digest in {v.files["cubin"] for v in kernels.values()}:
        shared[digest] = artefact(artefacts, digest, "cubin")
        need(sum(map(len, shared.values())) <= IMAGES_LIMIT, f"over {IMAGES_LIMIT} bytes of cubins")
    images = {k: shared[v.files["cubin"]] for k, v in kernels.items()}
    for key, kernel in kernels.items():
        check_kernel(kernel, images[key], limits)
    plans = _plans(d["plans"])
    tables = {k: elf.parameter_sizes(images[k], v.name) for k, v in kernels.items()}
    for plan in (p for choices in plans.values() for p in choices.values()):
        check_plan(plan, kernels, tables, limits)
    return Bundle(hashlib.sha256(raw).hexdigest(), kernels, images, plans)


def _plans(x: Any) -> dict[str, dict[str, Plan]]:
    need(type(x) is dict and len(x) <= 1024, "plans")
    for choices in x.values():
        need(type(choices) is dict and 0 < len(choices) <= 4096, "choices of a case")
    return {
        decode.word(case, "case"): {decode.word(c, "choice"): decode.plan(p) for c, p in choices.items()}
        for case, choices in x.items()
    }


# files ----------------------------------------------------------------------------------------------------------------


def read(path: Path, limit: int, folder: int | None = None) -> bytes:
    """Return a plain file's bytes: no symlink, no FIFO, no second name, not above the limit. Raises BadBundle.

    `folder`: an open folder that `path` is in.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as e:
        raise BadBundle(f"cannot read {path.name}: {e.strerror}") from None
    try:
        status = os.fstat(fd)
        need(stat.S_ISREG(status.st_mode) and status.st_nlink == 1, f"{path.name} is not a plain file")
        need(status.st_size <= limit, f"{path.name} is larger than {limit} bytes")
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(limit + 1)
    finally:
        os.close(fd)
    need(len(data) <= limit, f"{path.name} grew while it was read")
    return data


def artefact(root: Path, digest: str, suffix: str) -> bytes:
    """Return the artefact of that hash. Raises BadBundle when its content has another."""
    data = read(root / f"{decode.sha(digest)}.{suffix}", ARTEFACT_LIMIT)
    need(hashlib.sha256(data).hexdigest() == digest, f"artefact {digest[:12]}.{suffix} was tampered with")
    return data


def answer(path: Path) -> JsonObject:
    """Return the JSON object that a boxed process left: any numbers, any nesting that Python reads. What is no
    character of Unicode (half of a surrogate pair, which no file takes) becomes "?". Raises BadBundle."""
    try:
        raw = read(path, JSON_LIMIT)
        parsed = json.loads(raw)
        if rb"\ud" in raw.lower():
            parsed = json.loads(json.dumps(parsed, ensure_ascii=False).encode(errors="replace"))
    except (RecursionError, ValueError) as e:
        raise BadBundle(f"{path.name} is not JSON: {type(e).__name__}") from None
    need(type(parsed) is dict, f"{path.name} is no JSON object")
    return dict(parsed)


def strict_json(raw: bytes) -> Any:
    """Return JSON without duplicate keys, bare floats, NaN or deep nesting. Raises BadBundle."""

    def refuse(x: str) -> Any:
        raise BadBundle(f"{x[:40]} in JSON: numbers are integers, floats are written as hex")

    def once(pairs: Iterable[tuple[str, Any]]) -> JsonObject:
        items = list(pairs)
        need(len(dict(items)) == len(items), "a key twice in JSON")
        return dict(items)

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse, parse_float=refuse, object_pairs_hook=once)
    except BadBundle:
        raise
    except (RecursionError, ValueError) as e:
        raise BadBundle(f"not JSON: {type(e).__name__}") from None


# kernels --------------------------------------------------------------------------------------------------------------


def check_kernel(k: Kernel, image: bytes, limits: Limits) -> None:
    need(k.arch == limits.arch, f"built for sm_{k.arch}, this device is sm_{limits.arch}")
    need(k.shared <= limits.smem_block, f"{k.shared} bytes of shared memory, the device has {limits.smem_block}")
    need(elf.entries(image) == [k.name], f"a cubin must hold one kernel, {k.name}")
    printing = elf.calls(image) & {"vprintf", "__assertfail"}
    texts = "texts of tl.device_print or device_assert (take them out): " if printing else ""
    state = f"device variables: {texts}state that would outlive a launch"
    need(limits.variables or not elf.keeps_state(image), state)
    scratch = k.profile_scratch_size == 0 or limits.records or limits.variables
    need(scratch, "profile scratch: only what an instrumented or sanitized twin records is put there")
    other = elf.calls(image) - _CALLS
    need(not other, f"a call of {min(other, default='')!r:.60}: a heap on the device would outlive a launch, too")


def expected_sizes(signature: tuple[Any, ...]) -> list[int]:
    """Return the bytes of each parameter that Triton makes of a signature, with its two scratch pointers at the end."""
    sizes: list[int] = []
    for s in flat(signature):
        if s.startswith("tensordesc"):
            rank = s.split("]")[0].count(",") + 1
            sizes += [_DESCRIPTOR_BYTES] + [4] * rank + [8] * rank
        elif s != "constexpr":
            width = re.search(r"\d+", s)
            sizes.append(_POINTER if s[0] == "*" else _BITS[width[0]] if width else 0)
    return [*sizes, _POINTER, _POINTER]


# plans ----------------------------------------------------------------------------------------------------------------


def check_plan(plan: Plan, kernels: dict[str, Kernel], tables: dict[str, list[int]], limits: Limits) -> None:
    check_places(plan, limits.memory)
    for launch in plan.launches:
        _check_launch(launch, kernels, tables, limits)


def check_places(plan: Plan, memory: int) -> None:
    """Check what a plan says of its tensors. `memory`: bytes that it may take. Raises BadBundle."""
    need(sum(s.nbytes for s in plan.storages) <= memory, "more device memory than there is")
    tensors = list(_tensors(plan))
    for t in tensors:
        need(t.storage < len(plan.storages), "a tensor of a storage that is not there")
        need(decode.last_byte(t) <= plan.storages[t.storage].nbytes, "a view beyond its buffer")
    for a in decode.addresses(plan):
        need(a.storage < len(plan.storages), "an address in a storage that is not there")
        need(a.byte <= plan.storages[a.storage].nbytes, "an address beyond its buffer")
    need(bool(plan.out) and bool(plan.steps), "a plan must compute something and return a tensor")
    need(not any(isinstance(v, Address) for v in flat(tuple(plan.inputs.values()))), "an address for an input")
    inputs = {t.storage for v in plan.inputs.values() for t in flat(v) if isinstance(t, Tensor)}
    declared = {i for i, s in enumerate(plan.storages) if s.kind == "input"}
    need(inputs == declared, "the storages called input are not those of the inputs")


def _tensors(plan: Plan) -> Iterable[Tensor]:
    values = [*plan.inputs.values(), *plan.out]
    for step in plan.steps:
        values += [*step.args] if isinstance(step, Launch) else [*step.args, *step.kwargs.values(), *step.out]
    for v in flat(tuple(values)):
        if isinstance(v, Tensor | Descriptor):
            yield v if isinstance(v, Tensor) else v.base


def _check_launch(launch: Launch, kernels: dict[str, Kernel], tables: dict[str, list[int]], limits: Limits) -> None:
    need(launch.kernel in kernels, "a launch of a kernel that is not in the bundle")
    k = kernels[launch.kernel]
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    need(0 <= blocks <= schema.MOST_BLOCKS, f"a grid of {blocks} blocks")  # of none: a launch that is none
    integer(launch.grid[0] * k.num_ctas, 0, 2**31 - 1, "grid")
    scratch = blocks * k.num_ctas * (k.global_scratch_size + k.profile_scratch_size)
    need(scratch <= limits.scratch, f"{scratch} bytes of scratch for one launch")
    recorded = blocks * k.num_ctas * k.profile_scratch_size
    need(recorded < _ADDRESSED, f"{recorded} bytes of profile scratch for one launch: more than 32 bits address")
    want = expected_sizes(launch.signature)
    need(tables[launch.kernel] == want, f"parameters {tables[launch.kernel]} do not fit the signature's {want}"[:300])
    check_arguments(launch)
    descriptors = [s for s in flat(launch.signature) if s.startswith("tensordesc")]
    need(len(descriptors) == len(k.tensordesc_meta), "one descriptor metadata for each descriptor")
    for s, meta in zip(descriptors, k.tensordesc_meta, strict=True):
        need(s.split("]")[0].count(",") + 1 == len(meta.block_size), "descriptor rank")


def check_arguments(launch: Launch) -> None:
    """Check that each argument fits its type. Raises BadBundle."""
    need(len(launch.args) == len(launch.signature), "as many arguments as types")
    for kind, arg in zip(launch.signature, launch.args, strict=True):
        _check_argument(kind, arg)


def _check_argument(kind: Any, arg: Any) -> None:
    if isinstance(kind, tuple):
        need(isinstance(arg, tuple) and len(arg) == len(kind), "a tuple argument of another length")
        for k, a in zip(kind, arg, strict=True):
            _check_argument(k, a)
    elif kind == "constexpr":
        need(arg is None, "a value for a compile-time argument")
    elif kind[0] == "*":
        need(arg is None or isinstance(arg, Tensor), f"{kind} needs a tensor")
    elif kind.startswith("tensordesc"):
        need(isinstance(arg, Descriptor) and len(arg.shape) == len(arg.strides), f"{kind[:40]} needs a descriptor")
    elif isinstance(arg, Address):
        need(kind in ("i64", "u64"), f"an address does not fit {kind}")
    elif kind[0] in "iu":
        bits, signed = int(kind[1:]), kind[0] == "i"
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed and bits > 1 else (0, (1 << bits) - 1)
        need(isinstance(arg, bool | int) and low <= int(arg) <= high, f"{arg!r:.40} does not fit {kind}")
    else:
        need(isinstance(arg, int | float) and not isinstance(arg, bool), f"{kind} needs a number")
