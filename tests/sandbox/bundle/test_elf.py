"""The reader of cubins, attacked with damaged and foreign images: whatever it is given, only BadBundle comes out.

The images are real: Triton's own build of tests/kernels/add.py, and PTX assembled by Triton's ptxas.
"""

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.errors import BadBundle

FIELDS = {"offset": (0x28, "<Q"), "entry": (0x3A, "<H"), "count": (0x3C, "<H"), "names": (0x3E, "<H")}  # ELF header
PLAIN = ".visible .entry _add(.param .u64 x, .param .u32 n) { ret; }"
COUNTER = (
    ".visible .entry _add() { .reg .u32 a; ld.global.u32 a, [kept]; add.u32 a, a, 1; st.global.u32 [kept], a; ret; }"
)
HOST = Path("/bin/true").resolve()


def read_everything(image: bytes) -> None:
    """All that `check` asks of an image before it trusts it."""
    for name in elf.entries(image):
        elf.parameter_sizes(image, name)
    elf.keeps_state(image)
    elf.calls(image)
    elf.code_id(image)


def refused_or_read(image: bytes) -> None:
    try:
        read_everything(image)
    except BadBundle:
        return


# honest images --------------------------------------------------------------------------------------------------------


def test_a_real_cubin_names_its_one_kernel(add_image: bytes) -> None:
    assert elf.entries(add_image) == ["_add"]


def test_a_real_cubin_tells_its_parameters(add_image: bytes) -> None:
    pointer, integer = 8, 4
    assert elf.parameter_sizes(add_image, "_add") == [pointer, pointer, pointer, integer, pointer, pointer]


def test_a_real_cubin_keeps_no_state(add_image: bytes) -> None:
    assert not elf.keeps_state(add_image)


def test_the_parameters_of_a_kernel_that_is_not_there_are_refused(add_image: bytes) -> None:
    with pytest.raises(BadBundle, match="no kernel called other"):
        elf.parameter_sizes(add_image, "other")


def test_parameters_are_those_of_the_ptx(ptxas: Callable[[str], bytes]) -> None:
    kinds = {".u8": 1, ".b16": 2, ".f32": 4, ".u64": 8, ".align 64 .b8": 128}
    listed = ", ".join(f".param {k} p{i}{'[128]' if n == 128 else ''}" for i, (k, n) in enumerate(kinds.items()))
    image = ptxas(f".visible .entry wide({listed}) {{ ret; }}")
    assert elf.parameter_sizes(image, "wide") == list(kinds.values())


def test_a_kernel_without_parameters_has_none(ptxas: Callable[[str], bytes]) -> None:
    assert elf.parameter_sizes(ptxas(".visible .entry bare() { ret; }"), "bare") == []


def test_two_kernels_are_both_named(ptxas: Callable[[str], bytes]) -> None:
    image = ptxas(PLAIN + "\n.visible .entry other() { ret; }")
    assert sorted(elf.entries(image)) == ["_add", "other"]


# state that outlives a launch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declared",
    [
        ".visible .global .align 4 .u32 kept;",
        ".visible .global .align 4 .u32 kept = 5;",
        ".global .align 4 .u32 kept;",
        ".global .attribute(.managed) .align 4 .u32 kept;",
    ],
)
def test_a_device_variable_is_state(ptxas: Callable[[str], bytes], declared: str) -> None:
    assert elf.keeps_state(ptxas(f"{declared}\n{COUNTER}"))


def test_a_constant_is_no_state(ptxas: Callable[[str], bytes]) -> None:
    body = "{ .reg .u32 a; .reg .u64 p; ld.param.u64 p, [x]; ld.const.u32 a, [c]; st.global.u32 [p], a; ret; }"
    assert not elf.keeps_state(ptxas(f".const .align 4 .u32 c = 7;\n.visible .entry _add(.param .u64 x) {body}"))


def _declared(*constants: bytes) -> str:
    """Device variables that hold these bytes, in this order."""
    return "\n".join(
        f".visible .global .align 1 .b8 kept{i or ''}[{len(c)}] = {{{', '.join(map(str, c))}}};"
        for i, c in enumerate(constants)
    )


FTZ, SQRT = b"__CUDA_FTZ\0", b"__CUDA_PREC_SQRT\0"


@pytest.mark.parametrize("constants", [(FTZ,), (SQRT,), (FTZ, SQRT), (SQRT, FTZ)])
def test_what_libdevice_leaves_behind_is_no_state(ptxas: Callable[[str], bytes], constants: tuple[bytes, ...]) -> None:
    assert not elf.keeps_state(ptxas(f"{_declared(*constants)}\n{COUNTER}"))


@pytest.mark.parametrize(
    "constants",
    [(FTZ, FTZ), (FTZ, b"x"), (FTZ, SQRT, bytes(4)), (b"__CUDA_FTZ",), (bytes(3),), (FTZ[:5], FTZ[5:], SQRT[:4])],
)
def test_anything_else_beside_it_is_state(ptxas: Callable[[str], bytes], constants: tuple[bytes, ...]) -> None:
    assert elf.keeps_state(ptxas(f"{_declared(*constants)}\n{COUNTER}"))


# identity -------------------------------------------------------------------------------------------------------------


def test_the_code_id_is_that_of_the_build(add_image: bytes, add_built: object) -> None:
    assert elf.code_id(add_image) in vars(add_built)["codes"].values()


def test_the_code_id_is_stable(add_image: bytes) -> None:
    assert elf.code_id(add_image) == elf.code_id(bytes(bytearray(add_image)))


def test_the_code_id_ignores_bytes_that_no_section_holds(add_image: bytes) -> None:
    assert elf.code_id(add_image + b"appended") == elf.code_id(add_image)


def test_the_code_id_changes_with_any_byte_of_the_code(add_image: bytes) -> None:
    (code,) = (s.data for s in elf.sections(add_image) if s.name == ".text._add")
    at = add_image.index(code)
    ids = {elf.code_id(add_image)}
    for i in range(0, len(code), 16):  # one bit of each instruction
        ids.add(elf.code_id(add_image[: at + i] + bytes([add_image[at + i] ^ 1]) + add_image[at + i + 1 :]))
    assert len(ids) == 1 + len(code) // 16


def test_the_code_id_changes_with_the_parameters(ptxas: Callable[[str], bytes]) -> None:
    assert elf.code_id(ptxas(PLAIN)) != elf.code_id(ptxas(PLAIN.replace(".u32 n", ".u64 n")))


def test_the_code_id_changes_with_the_shared_memory(ptxas: Callable[[str], bytes]) -> None:
    body = ".visible .entry k() {{ .shared .b32 s[{}]; st.shared.u32 [s], 1; ret; }}"
    assert elf.code_id(ptxas(body.format(64))) != elf.code_id(ptxas(body.format(128)))


# foreign and damaged images -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "image",
    [b"", b"\x7fELF", b"//\n// Generated by LLVM\n.version 8.7\n.target sm_90a\n" * 9, bytes(4096), b"PK\x03\x04" * 99],
    ids=["nothing", "a magic number alone", "PTX text", "zeros", "a zip file"],
)
def test_what_is_no_elf_is_refused(image: bytes) -> None:
    with pytest.raises(BadBundle, match="not a cubin: no 64-bit ELF"):
        read_everything(image)


@pytest.mark.skipif(HOST.read_bytes()[:4] != b"\x7fELF", reason="/bin/true is no ELF here")
def test_a_program_of_the_host_is_refused() -> None:
    with pytest.raises(BadBundle, match="an ELF for another machine"):
        read_everything(HOST.read_bytes())


def test_a_32_bit_elf_is_refused(add_image: bytes) -> None:
    with pytest.raises(BadBundle, match="no 64-bit ELF"):
        read_everything(add_image[:4] + b"\x01" + add_image[5:])


@pytest.mark.parametrize("kept", range(0, 64, 7))
def test_an_image_cut_in_its_header_is_refused(add_image: bytes, kept: int) -> None:
    with pytest.raises(BadBundle):
        read_everything(add_image[:kept])


@settings(max_examples=200)
@given(data=st.data())
def test_a_truncated_image_is_refused_or_read(add_image: bytes, data: st.DataObject) -> None:
    refused_or_read(add_image[: data.draw(st.integers(0, len(add_image)))])


@settings(max_examples=200)
@given(data=st.data())
def test_flipped_bits_are_refused_or_read(add_image: bytes, data: st.DataObject) -> None:
    damaged = bytearray(add_image)
    for bit in data.draw(st.lists(st.integers(0, 8 * len(damaged) - 1), min_size=1, max_size=8)):
        damaged[bit // 8] ^= 1 << bit % 8
    refused_or_read(bytes(damaged))


@settings(max_examples=200)
@given(data=st.data())
def test_overwritten_section_headers_are_refused_or_read(add_image: bytes, data: st.DataObject) -> None:
    damaged = bytearray(add_image)
    start, count = struct.unpack_from("<Q", damaged, 0x28)[0], struct.unpack_from("<H", damaged, 0x3C)[0]
    for at in data.draw(st.lists(st.integers(0, 8 * count - 1), min_size=1, max_size=3)):
        word = data.draw(st.sampled_from([0, 1, len(damaged), 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]))
        struct.pack_into("<Q", damaged, start + 8 * at, word)
    refused_or_read(bytes(damaged))


@pytest.mark.parametrize("value", [0, 1, 2**15, 2**16 - 1, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("field", FIELDS)
def test_an_absurd_elf_header_is_refused_or_read(add_image: bytes, field: str, value: int) -> None:
    at, form = FIELDS[field]
    damaged = bytearray(add_image)
    struct.pack_into(form, damaged, at, value % (1 << 8 * struct.calcsize(form)))
    refused_or_read(bytes(damaged))


@settings(max_examples=200)
@given(table=st.binary(max_size=164))
def test_a_damaged_parameter_table_is_refused_or_read(add_image: bytes, table: bytes) -> None:
    (info,) = (s.data for s in elf.sections(add_image) if s.name == ".nv.info._add")
    refused_or_read(add_image.replace(info, table + info[len(table) :]))


def test_reading_leaves_the_image_alone(add_image: bytes) -> None:
    before = hashlib.sha256(add_image).hexdigest()
    read_everything(add_image)
    assert hashlib.sha256(add_image).hexdigest() == before
