"""judge/cuda_driver.py against a stand-in for libcuda that writes down every launch: real bundles, no GPU, no mocks of
ours.

Each launch runs in a process of its own. Where Triton's own launcher works (it needs a C compiler), both are compared.
"""

import dataclasses
import shutil
import struct
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.judge.launches import cuda_driver

from tests.sandbox.stub import machine
from tests.sandbox.stub.layout import block, c_struct
from tests.sandbox.stub.machine import Machine

SCALARS, BOXES, CLUSTERED = "CASES/scalars", "CASES/boxes", "CASES/clustered"
ADD, ATTENTION = "HELD_OUT/odd", "SMALL/d64-ragged-causal"

Jobs = dict[str, dict[str, Any]]
Calls = list[dict[str, Any]]
Beside = dict[str, tuple[Calls, Calls]]


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing: the stand-in for libcuda cannot be compiled")
    return Machine.build(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """Case -> its launch, of real bundles."""
    return machine.build(tmp_path_factory.mktemp("shelf"))


# parameters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [SCALARS, CLUSTERED, ADD, ATTENTION])
def test_arguments_lie_where_a_c_compiler_would_put_them(stub: Machine, jobs: Jobs, case: str) -> None:
    job = jobs[case] | {"scratch": (0x1111_2222_3333, 0x4444_5555_6666)}
    ran = stub.run("ours.py", [job])
    assert ran.errors == [None]
    assert block(ran.calls("launch")[0]) == c_struct(job)


def test_an_elementwise_kernel_gets_three_addresses_a_count_and_no_scratch(stub: Machine, jobs: Jobs) -> None:
    x, y, z = (machine.BASE + i * machine.STEP for i in range(3))
    launch = stub.run("ours.py", [jobs[ADD]]).calls("launch")[0]
    assert block(launch) == struct.pack("<QQQi4xQQ", x, y, z, 9_991, 0, 0)


def test_compile_time_arguments_take_no_room(stub: Machine, jobs: Jobs) -> None:
    flat = [k for k in jobs[ATTENTION]["signature"] if k != "constexpr"]
    launch = stub.run("ours.py", [jobs[ATTENTION]]).calls("launch")[0]
    assert "constexpr" in jobs[ATTENTION]["signature"]
    assert len(launch["parameters"]) == len(flat) + 2


def test_a_pointer_that_is_none_becomes_zero(stub: Machine, jobs: Jobs) -> None:
    _, *rest = jobs[ADD]["args"]
    launch = stub.run("ours.py", [jobs[ADD] | {"args": (None, *rest)}]).calls("launch")[0]
    assert launch["parameters"][0] == [0, "00" * 8]


@pytest.mark.parametrize("kind", [f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)])
def test_an_integer_keeps_its_value_in_its_own_width(kind: str) -> None:
    size, signed = int(kind[1:]) // 8, kind[0] == "i"
    low, high = (-(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1) if signed else (0, (1 << 8 * size) - 1)
    packed = cuda_driver.pack((kind,) * 3, (low, 1, high))
    assert packed == [n.to_bytes(size, "little", signed=signed) for n in (low, 1, high)]


@pytest.mark.parametrize("kind", ["i1", "u1"])
def test_a_boolean_is_one_byte(kind: str) -> None:
    assert cuda_driver.pack((kind, kind), (True, False)) == [b"\1", b"\0"]


@given(st.floats(width=16))
def test_floats_are_ieee_numbers_of_their_width(x: float) -> None:
    expected = [np.float16(x).tobytes(), np.float32(x).tobytes(), np.float64(x).tobytes()]
    assert cuda_driver.pack(("fp16", "fp32", "fp64"), (x, x, x)) == expected


@given(st.floats(width=32))
def test_bfloat16_is_the_upper_half_of_a_float_as_in_tritons_launcher(x: float) -> None:
    assert cuda_driver.pack(("bf16",), (x,)) == [np.float32(x).tobytes()[2:]]


def test_tuples_are_flattened_in_order_at_any_depth() -> None:
    signature = ("i32", ("*fp32", ("u8", "constexpr", ("i64",)), ()), "i16")
    packed = cuda_driver.pack(signature, (1, (0xABC, (2, None, (3,)), ()), 4))
    assert packed == [struct.pack(f, v) for f, v in (("<i", 1), ("<Q", 0xABC), ("<B", 2), ("<q", 3), ("<h", 4))]


def _misfits(job: dict[str, Any]) -> Jobs:
    signature, args = job["signature"], job["args"]
    return {
        "an argument too few": job | {"args": args[:-1]},
        "a parameter too few": job | {"signature": signature[1:], "args": args[1:]},
        "a parameter too many": job | {"signature": (*signature, "i32"), "args": (*args, 0)},
        "a wider integer": job | {"signature": tuple("i64" if s == "i32" else s for s in signature)},
        "a type that nobody knows": job | {"signature": ("f8", *signature[1:])},
        "a number for a descriptor": job | {"signature": ("tensordesc<fp32[32, 32]>", *signature[1:])},
        "a tuple too short": job | {"signature": (("*fp32", "i32"), *signature[1:]), "args": ((0,), *args[1:])},
    }


def test_arguments_that_do_not_fit_raise_valueerror_and_nothing_is_launched(stub: Machine, jobs: Jobs) -> None:
    misfits = _misfits(jobs[ADD])
    ran = stub.run("ours.py", list(misfits.values()))
    told = dict(zip(misfits, ran.errors, strict=True))
    assert {name: error for name, error in told.items() if not str(error).startswith("ValueError: ")} == {}
    assert ran.calls("launch") == []


@pytest.mark.parametrize(("kind", "value"), [("i8", 300), ("u32", -1), ("i64", 1 << 63), ("fp16", 70000.0)])
def test_a_number_out_of_range_raises_valueerror(kind: str, value: float) -> None:
    with pytest.raises(ValueError):
        cuda_driver.pack((kind,), (value,))


# launch configuration -------------------------------------------------------------------------------------------------


def test_the_grid_counts_blocks_and_a_block_has_32_threads_a_warp(stub: Machine, jobs: Jobs) -> None:
    launch = stub.run("ours.py", [jobs[CLUSTERED] | {"stream": 0xCAFE}]).calls("launch")[0]
    assert (launch["grid"], launch["block"], launch["stream"]) == ([5 * 2, 3, 1], [32 * 8, 1, 1], 0xCAFE)


def test_cluster_cooperative_launch_and_pdl_are_attributes(stub: Machine, jobs: Jobs) -> None:
    launch = stub.run("ours.py", [jobs[CLUSTERED]]).calls("launch")[0]
    words = {which: struct.unpack("<16I", bytes.fromhex(value)) for which, value in launch["attributes"]}
    zeros = (0,) * 13
    assert words == {6: (1, 0, 0, *zeros), 2: (1, 0, 0, *zeros), 4: (2, 1, 1, *zeros), 5: (1, 0, 0, *zeros)}


@pytest.mark.parametrize(("switch", "which"), [("launch_pdl", 6), ("launch_cooperative_grid", 2)])
def test_each_switch_has_an_attribute_of_its_own(stub: Machine, jobs: Jobs, switch: str, which: int) -> None:
    kernels = (dataclasses.replace(jobs[ADD]["kernel"], **{switch: on}) for on in (False, True))
    without, with_it = stub.run("ours.py", [jobs[ADD] | {"kernel": k} for k in kernels]).calls("launch")
    assert (without["attributes"], with_it["attributes"]) == ([], [[which, "01" + "00" * 63]])


def test_shared_memory_above_48_kib_is_asked_for_before_the_launch(stub: Machine, jobs: Jobs) -> None:
    shared = jobs[ATTENTION]["kernel"].shared
    asked, launch = (r for r in stub.run("ours.py", [jobs[ATTENTION]]).records if r["call"] in ("attribute", "launch"))
    assert shared > 49152
    assert (asked["which"], asked["value"], launch["shared"]) == (8, shared, shared)


def test_little_shared_memory_is_not_asked_for(stub: Machine, jobs: Jobs) -> None:
    assert stub.run("ours.py", [jobs[BOXES]]).calls("attribute") == []


def test_a_prepared_launch_can_be_repeated(stub: Machine, jobs: Jobs) -> None:
    first, second, third = stub.run("ours.py", [jobs[ATTENTION] | {"times": 3}]).calls("launch")
    assert first == second == third


# errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failing", "name"),
    [
        ("cuModuleLoadData:2", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuModuleGetFunction:500", "CUDA_ERROR_NOT_FOUND"),
        ("cuFuncSetAttribute:1", "CUDA_ERROR_INVALID_VALUE"),
        ("cuModuleLoadData:12345", "unknown error"),
    ],
)
def test_a_drivers_error_becomes_a_cudaerror_with_its_name(stub: Machine, jobs: Jobs, failing: str, name: str) -> None:
    function, code = failing.split(":")
    ran = stub.run("ours.py", [jobs[ATTENTION]], STUB_FAIL=failing)
    assert ran.errors == [f"CudaError: {function}: {name} ({code})"]
    assert ran.calls("launch") == []


def test_a_file_that_is_no_cubin_is_refused_by_the_driver(stub: Machine, jobs: Jobs) -> None:
    ran = stub.run("ours.py", [jobs[ADD] | {"image": b".version 8.7\n.target sm_90a\n\0"}])
    assert ran.errors == ["CudaError: cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200)"]


def test_a_launch_that_the_driver_refuses_becomes_a_cudaerror(stub: Machine, jobs: Jobs) -> None:
    (error,) = stub.run("ours.py", [jobs[ADD]], STUB_FAIL="cuLaunchKernelEx:700").errors
    assert error is not None and error.startswith("CudaError: cuLaunchKernelEx") and "700" in error


def test_a_launch_that_the_driver_refuses_tells_the_name_of_the_error(stub: Machine, jobs: Jobs) -> None:
    (error,) = stub.run("ours.py", [jobs[ADD]], STUB_FAIL="cuLaunchKernelEx:700").errors
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(error)


# beside Triton's own launcher -----------------------------------------------------------------------------------------


def _with_meta(job: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The launch with other metadata for its descriptors."""
    metas = tuple(dataclasses.replace(m, **fields) for m in job["kernel"].tensordesc_meta)

    def changed(a: Any) -> Any:
        is_map = isinstance(a, cuda_driver.TensorMap)
        return dataclasses.replace(a, meta=dataclasses.replace(a.meta, **fields)) if is_map else a

    return job | {
        "args": tuple(map(changed, job["args"])),
        "kernel": dataclasses.replace(job["kernel"], tensordesc_meta=metas),
    }


@pytest.fixture(scope="session")
def beside(stub: Machine, jobs: Jobs) -> Beside:
    """Name of a launch -> the driver calls that we make for it, and those that Triton's launcher makes."""
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        pytest.skip("Python.h is missing: Triton's launcher cannot be compiled")
    scalars = tuple(7 if a == -7 else a for a in jobs[SCALARS]["args"])  # Triton 3.6 refuses an i8 below zero
    metas = [{"elem_type": n} for n in range(16)] + [{"swizzle": n} for n in range(4)] + [{"fp4_padded": True}]
    wide = dataclasses.replace(jobs[CLUSTERED]["kernel"], num_ctas=16)
    launches = jobs | {SCALARS: jobs[SCALARS] | {"args": scalars}, "wide": jobs[CLUSTERED] | {"kernel": wide}}
    launches |= {str(meta): _with_meta(jobs[BOXES], **meta) for meta in metas}
    ours, theirs = (
        stub.run(script, list(launches.values()), STUB_VERSION="13020").of_each_job("launch", "encode", "attribute")
        for script in ("ours.py", "theirs.py")
    )
    return {name: (a, b) for name, a, b in zip(launches, ours, theirs, strict=True)}


@pytest.mark.parametrize("case", [SCALARS, BOXES, CLUSTERED, ADD, ATTENTION])
def test_a_launch_and_its_descriptors_are_those_of_tritons_launcher(beside: Beside, case: str) -> None:
    ours, theirs = ([c for c in calls if c["call"] != "attribute"] for calls in beside[case])
    assert ours == theirs != []


def test_every_element_type_and_swizzle_is_encoded_as_triton_encodes_it(beside: Beside) -> None:
    variants = {name: pair for name, pair in beside.items() if name.startswith("{")}
    assert len(variants) == 21
    for ours, theirs in variants.values():
        encoded = [c for c in theirs if c["call"] == "encode"]
        assert len(encoded) == 2
        assert [c for c in ours if c["call"] == "encode"] == encoded


def test_a_cluster_of_sixteen_is_allowed_as_tritons_launcher_does(beside: Beside) -> None:
    ours, theirs = beside["wide"]
    assert ours == theirs


# descriptors ----------------------------------------------------------------------------------------------------------


def test_a_host_descriptor_is_encoded_innermost_dimension_first_and_in_bytes(stub: Machine, jobs: Jobs) -> None:
    source, into = stub.run("ours.py", [jobs[BOXES]]).calls("encode")
    assert source == {
        "call": "encode",
        "type": 7,  # FLOAT32
        "address": machine.BASE,
        "sizes": [256, 96],
        "strides": [256 * 4],
        "box": [32, 16],  # 128 bytes, the most that one swizzled box holds of a row, and 16 rows
        "steps": [1, 1],
        "interleave": 0,
        "swizzle": 3,  # 128 bytes
        "promotion": 2,  # to lines of 128 bytes
        "fill": 1,  # NaN outside
    }
    assert into == source | {"address": machine.BASE + machine.STEP, "fill": 0}


def test_a_descriptor_becomes_its_map_then_sizes_then_strides(stub: Machine, jobs: Jobs) -> None:
    ran = stub.run("ours.py", [jobs[BOXES]], STUB_VERSION="13020")
    first = [bytes.fromhex(data) for _, data in ran.calls("launch")[0]["parameters"][:5]]
    map_, *rest = first
    assert map_ == struct.pack("<Q", machine.BASE) + b"\xff" * 120
    assert rest == [struct.pack(f, n) for f, n in (("<i", 96), ("<i", 256), ("<q", 256), ("<q", 1))]


@pytest.mark.parametrize(("version", "cleared"), [("13010", True), ("13020", False)])
@pytest.mark.parametrize(("rows", "small"), [(127, True), (129, False)])
def test_drivers_up_to_13_1_have_one_bit_of_a_small_map_cleared(
    stub: Machine, jobs: Jobs, version: str, cleared: bool, rows: int, small: bool
) -> None:
    source, *rest = jobs[BOXES]["args"]  # 1 KiB a row
    job = jobs[BOXES] | {"args": (dataclasses.replace(source, shape=(rows, 256)), *rest)}
    launch = stub.run("ours.py", [job], STUB_VERSION=version).calls("launch")[0]
    (word,) = struct.unpack_from("<Q", bytes.fromhex(launch["parameters"][0][1]), 8)
    assert word == (2**64 - 1) ^ (1 << 21 if cleared and small else 0)


@pytest.mark.parametrize("fields", [{"shape": (96,)}, {"strides": (1,)}, {"shape": (2,) * 6, "strides": (1,) * 6}])
def test_a_descriptor_whose_ranks_differ_raises_valueerror(stub: Machine, jobs: Jobs, fields: dict[str, Any]) -> None:
    source, *rest = jobs[BOXES]["args"]
    ran = stub.run("ours.py", [jobs[BOXES] | {"args": (dataclasses.replace(source, **fields), *rest)}])
    assert ran.errors == ["ValueError: a descriptor's rank"]
    assert ran.calls("launch") == []
