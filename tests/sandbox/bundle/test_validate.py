"""Hostile bundles: each is an honest one of tests/kernels/add.py with exactly one rule broken.

The bundle, its cubin and its files are real. Nothing here has a GPU: a bundle must be refused before one is touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle import plan_id, validate
from pgo_agent.sandbox.bundle.store import ContentStore, canonical
from pgo_agent.sandbox.errors import BadBundle

if TYPE_CHECKING:
    from tests.sandbox.conftest import Edits, Forgery

GONE = ...  # as a value of an edit: takes the field away
ZEROS = "0" * 64
META = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [64], "fp4_padded": False}
OP = {"op": "aten.zero_.default", "args": [], "kwargs": {}, "out": []}
LITERAL = {"literal": [1, 2], "size": [3], "dtype": "int32"}
TABLE = {"literal": [{"address": 0, "byte": 0}], "size": [1], "dtype": "int64"}
VIEW = {"t": 0, "dtype": "float32", "size": [8], "stride": [1], "offset": 0}
DESC = {"desc": VIEW, "shape": [8], "strides": [1], "block": [8], "padding": "zero", "tf32": False}
WORDS = ["*fp32", "*fp32", "*fp32"]


def test_the_honest_bundle_passes(forgery: Forgery) -> None:
    bundle = forgery.load()
    assert bundle.images == dict.fromkeys(forgery.manifest["kernels"], forgery.image)
    assert [p.launches[0].grid for choices in bundle.plans.values() for p in choices.values()] == [(2, 1, 1)]


def test_an_op_of_the_list_passes(forgery: Forgery) -> None:
    forgery.edit(
        {"plan.steps": [{**OP, "args": forgery.plan["out"], "out": forgery.plan["out"]}, *forgery.plan["steps"]]}
    )
    assert len(forgery.load().plans) == 1


# rules of the JSON's contents: sentence -> (edits, what the message must say) -----------------------------------------

RULES: dict[str, tuple[Edits, str]] = {
    # the bundle
    "another version of the schema": ({"bundle.schema": 2}, "schema 2, this version reads 1"),
    "an unknown field of the bundle": ({"bundle.code": "import os"}, "bundle must have exactly the fields"),
    "a missing field of the bundle": ({"bundle.plans": GONE}, "bundle must have exactly the fields"),
    "kernels that are a list": ({"bundle.kernels": []}, "^kernels$"),
    "plans that are a list": ({"bundle.plans": []}, "^plans$"),
    "a case without a choice": ({"bundle.plans": {"SMALL/even": {}}}, "choices of a case"),
    "a case name that clears the terminal": ({"bundle.plans": {"\x1b[2J": {"a": 1}}}, "case is not allowed"),
    "a kernel key that is a path": ({"bundle.kernels": {"../../etc/passwd": {}}}, "content hash is not allowed"),
    # a kernel's metadata
    "a kernel for another architecture": ({"kernel.arch": 80}, "built for sm_80, this device is sm_90"),
    "an architecture that is a text": ({"kernel.arch": "90"}, "arch out of bounds: '90'"),
    "too much shared memory": ({"kernel.shared": 232449}, "232449 bytes of shared memory, the device has 232448"),
    "negative shared memory": ({"kernel.shared": -1}, "shared memory out of bounds"),
    "an odd number of warps": ({"kernel.num_warps": 3}, "num_warps 3"),
    "an odd number of blocks in a cluster": ({"kernel.num_ctas": 3}, "num_ctas 3"),
    "a kernel name that clears the terminal": ({"kernel.name": "_add\x1b[2J"}, r"kernel name .*: '_add\\x1b"),
    "a kernel name that the cubin does not hold": ({"kernel.name": "_sub"}, "a cubin must hold one kernel, _sub"),
    "negative scratch": ({"kernel.global_scratch_size": -1}, "global_scratch out of bounds"),
    "an odd alignment of scratch": ({"kernel.profile_scratch_align": 3}, "profile_scratch alignment"),
    "a candidate that records": ({"kernel.profile_scratch_size": 128}, "profile scratch: only what an instrumented"),
    "a switch that is a number": ({"kernel.launch_pdl": 1}, "^launch_pdl$"),
    "a compiler version with a line break": ({"kernel.triton": "3.6.0\n"}, "triton version is not allowed"),
    "a kernel without a cubin": ({"kernel.files.cubin": GONE}, "a kernel needs its cubin"),
    "a path in place of a hash": ({"kernel.files.cubin": "../../../etc/passwd"}, "content hash is not allowed: '../"),
    "a hash in capitals": ({"kernel.files.cubin": "A" * 64}, "content hash is not allowed"),
    "a hash with a line break": ({"kernel.files.ptx": ZEROS + "\n"}, "content hash is not allowed"),
    "an unknown field of a kernel": ({"kernel.constants": {}}, "kernel must have exactly the fields"),
    "a missing field of a kernel": ({"kernel.num_warps": GONE}, "kernel must have exactly the fields"),
    "descriptor metadata without a descriptor": ({"kernel.tensordesc_meta": [META]}, "one descriptor metadata for"),
    "descriptor metadata with fields missing": ({"kernel.tensordesc_meta": [{}]}, "^descriptor metadata$"),
    "an im2col descriptor": ({"kernel.tensordesc_meta": [META | {"is_im2col": True}]}, "an im2col descriptor"),
    "a descriptor block of zero": ({"kernel.tensordesc_meta": [META | {"block_size": [0]}]}, "block out of bounds: 0"),
    # storages and views
    "more device memory than there is": ({"plan.storages.2.nbytes": 1 << 38}, "more device memory than there is"),
    "a negative storage": ({"plan.storages.2.nbytes": -1}, "storage size out of bounds"),
    "an unknown kind of storage": ({"plan.storages.2.kind": "host"}, "kind of a storage"),
    "a buffer that claims to be an input": ({"plan.storages.2.kind": "input"}, "storages called input are not"),
    "an input that claims to be a buffer": ({"plan.storages.0.kind": "buffer"}, "storages called input are not"),
    "a storage index out of range": ({"step.args.0.t": 3}, "a tensor of a storage that is not there"),
    "a negative storage index": ({"step.args.0.t": -1}, "storage index out of bounds"),
    "a view beyond its buffer by its size": ({"plan.out.0.size": [2049]}, "a view beyond its buffer"),
    "a view beyond its buffer by its offset": ({"plan.inputs.x.offset": 1}, "a view beyond its buffer"),
    "a view beyond its buffer by its stride": ({"step.args.1.stride": [2]}, "a view beyond its buffer"),
    "a view beyond its buffer by its dtype": ({"step.args.1.dtype": "int64"}, "a view beyond its buffer"),
    "a negative stride": ({"step.args.1.stride": [-1]}, "stride out of bounds: -1"),
    "a negative offset": ({"step.args.1.offset": -1}, "offset out of bounds: -1"),
    "a tensor with more strides than sizes": ({"plan.out.0.stride": [1, 1]}, "size and stride differ in rank"),
    "a dtype that torch does not have": ({"plan.out.0.dtype": "__class__"}, "dtype '__class__'"),
    # steps
    "an op that is not on the list": ({"plan.steps": [OP | {"op": "aten.rand.default"}]}, "op 'aten.rand.default' is"),
    "an op of another library": ({"plan.steps": [OP | {"op": "os.system"}]}, "op 'os.system' is not on"),
    "an op on another device": ({"plan.steps": [OP | {"args": [{"device": "cuda:1"}]}]}, "an op on another device"),
    "a torch name that is none": ({"plan.steps": [OP | {"args": [{"torch": "load"}]}]}, "torch name 'load'"),
    "an address in a storage that is not there": (
        {"plan.steps": [OP | {"args": [TABLE | {"literal": [{"address": 9, "byte": 0}]}]}]},
        "an address in a storage that is not there",
    ),
    "an address beyond its buffer": (
        {"plan.steps": [OP | {"args": [TABLE | {"literal": [{"address": 0, "byte": 1 << 30}]}]}]},
        "an address beyond its buffer",
    ),
    "addresses of 32 bits": ({"plan.steps": [OP | {"args": [TABLE | {"dtype": "int32"}]}]}, "literal of another type"),
    "an address for an input": ({"plan.inputs.x": {"address": 0, "byte": 0}}, "an address for an input"),
    "an address for a pointer": ({"step.args.0": {"address": 0, "byte": 0}}, "needs a tensor"),
    "a literal of another size": ({"plan.steps": [OP | {"args": [LITERAL]}]}, "size does not fit its values"),
    "a keyword that is no name": ({"plan.steps": [OP | {"kwargs": {"a b": 1}}]}, "kernel name is not allowed: 'a b'"),
    "a step of no known form": ({"plan.steps.0": {"exec": "x"}}, "launch must have exactly the fields"),
    "a plan that launches nothing": ({"plan.steps": []}, "must compute something and return a tensor"),
    "a plan that returns nothing": ({"plan.out": []}, "must compute something and return a tensor"),
    "too many steps": ({"plan.steps": [OP] * 4097}, "steps must be a list of at most 4096"),
    # launches
    "a kernel that is not in the bundle": ({"step.kernel": ZEROS}, "a kernel that is not in the bundle"),
    "a grid of too many blocks": ({"step.grid": [1 << 20, 1 << 7, 1]}, "a grid of 134217728 blocks"),
    "a grid beyond the hardware": ({"step.grid": [1, 65536, 1]}, "grid out of bounds: 65536"),
    "a grid of two dimensions": ({"step.grid": [2, 1]}, "a grid has three dimensions"),
    "too much scratch": (
        {"kernel.global_scratch_size": 1 << 22, "step.grid": [2048, 1, 1]},
        "8589934592 bytes of scratch for one launch",
    ),
    "fewer parameters than the cubin's table": (
        {"step.signature": [*WORDS, "constexpr"], "step.args.3": GONE},
        r"parameters \[8, 8, 8, 4, 8, 8\] do not fit the signature's \[8, 8, 8, 8, 8\]",
    ),
    "a parameter of another size than the cubin's": ({"step.signature.3": "i64"}, "do not fit the signature's"),
    "a type that is none": ({"step.signature.0": "*void"}, r"argument type is not allowed: '\*void'"),
    "fewer arguments than types": ({"step.args.4": GONE}, "as many arguments as types"),
    "a number in place of a pointer": ({"step.args.0": 0xDEADBEEF}, r"\*fp32 needs a tensor"),
    "a descriptor in place of a pointer": ({"step.args.0": DESC}, r"\*fp32 needs a tensor"),
    "an integer that does not fit i32": ({"step.args.3": 1 << 31}, "2147483648 does not fit i32"),
    "an integer that fits no type": ({"step.args.3": 1 << 64}, "integer out of bounds"),
    "a negative number for an unsigned type": ({"step.signature.3": "u32", "step.args.3": -1}, "-1 does not fit u32"),
    "a text in place of an integer": ({"step.args.3": "n"}, "'n' does not fit i32"),
    "a tensor in place of a float": ({"step.signature.3": "fp32", "step.args.3": "x"}, "fp32 needs a number"),
    "a float that is none": ({"step.args.3": {"f": "pi"}}, "a float: 'pi'"),
    "a value for a compile-time argument": ({"step.args.4": 1024}, "a value for a compile-time argument"),
    "a tuple of another length": ({"step.signature.3": ["i32"], "step.args.3": [1, 2]}, "argument of another length"),
    "arguments nested too deeply": ({"step.args.3": [[[[[[1]]]]]]}, "arguments nested too deeply"),
    "a signature nested too deeply": ({"step.signature.3": [[[[["i32"]]]]]}, "signature nested too deeply"),
}  # fmt: skip


def test_a_launch_of_no_blocks_may_be_in_a_plan(forgery: Forgery) -> None:
    """Triton's own launcher leaves it out; there is a case in which an honest kernel has nothing to do."""
    forgery.edit({"step.grid": [2, 0, 1]})
    assert forgery.load()


@pytest.mark.parametrize(("edits", "message"), RULES.values(), ids=RULES.keys())
def test_it_refuses(forgery: Forgery, edits: Edits, message: str) -> None:
    forgery.edit(edits)
    with pytest.raises(BadBundle, match=message):
        forgery.load()


# the JSON text --------------------------------------------------------------------------------------------------------

TEXTS: dict[str, tuple[bytes, bytes, str]] = {
    "a duplicate key": (b'"schema":1', b'"schema":1,"schema":1', "a key twice in JSON"),
    "a bare float": (b'"schema":1', b'"schema":1.0', "1.0 in JSON: numbers are integers"),
    "an exponent": (b"2048,null", b"2e3,null", "2e3 in JSON: numbers are integers"),
    "a NaN": (b"2048,null", b"NaN,null", "NaN in JSON"),
    "an infinity": (b"2048,null", b"-Infinity,null", "-Infinity in JSON"),
    "deep nesting": (b"2048,null", b"[" * 100_000 + b"]" * 100_000 + b",null", "not JSON: RecursionError"),
    "an integer of 5000 digits": (b"2048,null", b"1" * 5000 + b",null", "in JSON|not JSON"),
    "a text that is not UTF-8": (b'"input"', b'"\xff"', "not JSON: UnicodeDecodeError"),
    "text after the end": (b'"schema":1}', b'"schema":1}{}', "not JSON: JSONDecodeError"),
    "a pickle's first bytes": (b'{"kernels"', b'\x80\x04\x95{"kernels"', "not JSON: UnicodeDecodeError"),
}


@pytest.mark.parametrize(("old", "new", "message"), TEXTS.values(), ids=TEXTS.keys())
def test_it_refuses_a_text_with(forgery: Forgery, old: bytes, new: bytes, message: str) -> None:
    raw = canonical(forgery.manifest)
    assert old in raw
    with pytest.raises(BadBundle, match=message):
        forgery.load(raw.replace(old, new, 1))


# the artefacts as files -----------------------------------------------------------------------------------------------


def _symlink(f: Forgery) -> None:
    f.cubin.rename(f.folder / "real")
    f.cubin.symlink_to(f.folder / "real")


def _fifo(f: Forgery) -> None:
    f.cubin.unlink()
    os.mkfifo(f.cubin)


def _folder(f: Forgery) -> None:
    f.cubin.unlink()
    f.cubin.mkdir()


FILES: dict[str, tuple[Callable[[Forgery], object], str]] = {
    "was tampered with": (lambda f: f.cubin.write_bytes(f.image[:-1] + b"x"), r"[0-9a-f]{12}\.cubin was tampered with"),
    "is missing": (lambda f: f.cubin.unlink(), "cannot read .*: No such file or directory"),
    "is a symlink to an honest one": (_symlink, "cannot read .*: Too many levels of symbolic links"),
    "has a second name": (lambda f: (f.folder / "second").hardlink_to(f.cubin), "is not a plain file"),
    "is a FIFO that nobody writes to": (_fifo, "is not a plain file"),
    "is a folder": (_folder, "is not a plain file"),
    "is too large": (lambda f: os.truncate(f.cubin, validate.ARTEFACT_LIMIT + 1), "is larger than 33554432 bytes"),
}


@pytest.mark.parametrize(("attack", "message"), FILES.values(), ids=FILES.keys())
def test_it_refuses_an_artefact_that(forgery: Forgery, attack: Callable[[Forgery], object], message: str) -> None:
    attack(forgery)
    with pytest.raises(BadBundle, match=message):
        forgery.load()


def test_a_manifest_that_is_a_symlink_is_refused(forgery: Forgery) -> None:
    forgery.load()
    link = forgery.folder / "link.json"
    link.symlink_to(forgery.folder / "bundle.json")
    with pytest.raises(BadBundle, match="Too many levels of symbolic links"):
        validate.load(link, forgery.folder, forgery.limits)


def test_a_manifest_that_is_a_device_is_refused(forgery: Forgery) -> None:
    with pytest.raises(BadBundle, match="zero is not a plain file"):
        validate.load(Path("/dev/zero"), forgery.folder, forgery.limits)


# the artefacts as code ------------------------------------------------------------------------------------------------

PARAMETERS = ".param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n, .param .u64 s, .param .u64 t"
ENTRY = f".visible .entry _add({PARAMETERS})"
COUNT = "{ .reg .u32 a; ld.global.u32 a, [kept]; add.u32 a, a, 1; st.global.u32 [kept], a; ret; }"
CODES = {
    "a second kernel": (f"{ENTRY} {{ ret; }} .visible .entry other() {{ ret; }}", "a cubin must hold one kernel, _add"),
    "another kernel": (f"{ENTRY.replace('_add', '_sub')} {{ ret; }}", "a cubin must hold one kernel, _add"),
    "a counter of its launches": (f".global .align 4 .u32 kept; {ENTRY} {COUNT}", "state that would outlive a launch"),
    "a counter from five": (f".global .align 4 .u32 kept = 5; {ENTRY} {COUNT}", "state that would outlive a launch"),
    "other parameters": (
        f"{ENTRY.replace('u32 n', 'u64 n')} {{ ret; }}",
        r"parameters \[8, 8, 8, 8, 8, 8\] do not fit",
    ),
}


@pytest.mark.parametrize(("ptx", "message"), CODES.values(), ids=CODES.keys())
def test_it_refuses_a_cubin_with(forgery: Forgery, ptxas: Callable[[str], bytes], ptx: str, message: str) -> None:
    forgery.swap_cubin(ptxas(ptx))
    with pytest.raises(BadBundle, match=message):
        forgery.load()


def test_another_code_with_the_same_parameters_passes(forgery: Forgery, ptxas: Callable[[str], bytes]) -> None:
    forgery.swap_cubin(ptxas(f"{ENTRY} {{ ret; }}"))
    assert set(forgery.load().images.values()) != {forgery.image}


def test_ptx_in_place_of_the_cubin_is_refused(forgery: Forgery) -> None:
    forgery.swap_cubin(f".version 8.0\n.target sm_90\n.address_size 64\n{ENTRY} {{ ret; }}\n\0".encode())
    with pytest.raises(BadBundle, match="not a cubin: no 64-bit ELF"):
        forgery.load()


def test_a_twin_that_records_may_have_as_much_scratch_as_its_own_arithmetic_can_address(forgery: Forgery) -> None:
    forgery.limits = replace(forgery.limits, records=True)
    forgery.edit({"kernel.profile_scratch_size": 1 << 22, "step.grid": [511, 1, 1]})
    assert forgery.load()
    forgery.edit({"step.grid": [512, 1, 1]})
    with pytest.raises(BadBundle, match="2147483648 bytes of profile scratch for one launch"):
        forgery.load()


def test_a_section_renamed_to_a_device_variable_is_refused(forgery: Forgery) -> None:
    image = bytearray(forgery.image + b".nv.global.init\0")
    (start,), (names,) = struct.unpack_from("<Q", image, 0x28), struct.unpack_from("<H", image, 0x3E)
    (text,) = struct.unpack_from("<Q", image, start + 64 * names + 24)
    struct.pack_into("<I", image, start + 64 * 4, len(forgery.image) - text)  # the fourth section, .debug_frame
    forgery.swap_cubin(bytes(image))
    with pytest.raises(BadBundle, match="device variables: state that would outlive a launch"):
        forgery.load()


# identity -------------------------------------------------------------------------------------------------------------


def test_the_canonical_form_does_not_depend_on_the_order_of_fields(forgery: Forgery, add_built: Built) -> None:
    turned = json.loads(canonical(forgery.manifest), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert list(turned) != list(forgery.manifest)
    assert hashlib.sha256(canonical(turned)).hexdigest() == add_built.bundle == forgery.load().id


def test_each_broken_rule_gives_another_bundle_id(forgery: Forgery, add_built: Built) -> None:
    honest, contents, ids = canonical(forgery.manifest), ContentStore(forgery.folder), {add_built.bundle}
    for edits, _ in RULES.values():
        forgery.manifest = json.loads(honest)
        forgery.edit(edits)
        ids.add(contents.put_bundle(forgery.manifest))
    assert len(ids) == 1 + len(RULES)


def test_the_identity_of_a_plan_is_that_of_code_launch_and_plan(forgery: Forgery) -> None:
    def name(code: str = "a", grid: int = 2, **launched: Any) -> str:
        kernels = {k: v | launched for k, v in forgery.manifest["kernels"].items()}
        forgery.edit({"step.grid.0": grid})
        return plan_id.plan_id(forgery.plan, kernels, dict.fromkeys(kernels, code))

    assert len({name(), name("b"), name(grid=1), name(shared=16), name(num_warps=8), name(launch_pdl=True)}) == 6
    assert name() == name(triton="3.9.0") == name(files={"cubin": ZEROS})
