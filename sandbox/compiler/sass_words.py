"""Reads opcodes, branches and shapes of tensor instructions from the words of SASS themselves, without nvdisasm.

An instruction is 128 bits (compute capability 7.5 and later). Its opcode is bit 91 above bits 11 to 0, the same in all
architectures. The codes and fields below are those of nvdisasm 12.8 to 13.1, seen in builds for 8.0, 8.9, 9.0, 10.0 and
12.0. Who meets a code or a form that is not among them knows nothing of the kernel: `sass_mix.py` then asks nvdisasm.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

WORD = 16  # bytes of an instruction


class Instruction(NamedTuple):
    opcode: str  # without modifiers; empty: one that nobody counts
    target: int | None = None  # of a branch: the number of the instruction that it goes to
    flops: int = 0  # of a tensor instruction


_COUNTED: Mapping[str, tuple[int, ...]] = {
    "BAR": (0xB1D,),
    "BRA": (0x947, 0x1547, 0x1947),
    "FADD": (0x221, 0x421),
    "FFMA": (0x223, 0x423, 0x623, 0x823, 0xA23, 0x1C23),
    "FMUL": (0x220, 0x820, 0xA20, 0x1C20),
    "HGMMA": (0x19F0, 0x1DF0),
    "HMMA": (0x23C,),
    "LDG": (0x1981,),
    "LDGSTS": (0x1FAE,),
    "LDL": (0x983,),
    "LDS": (0x984, 0x1984),
    "LDSM": (0x83B, 0x183B),
    "MUFU": (0x308, 0x908, 0x1D08),
    "QGMMA": (0x19F3,),
    "SHFL": (0x389, 0x589, 0x989, 0xF89),
    "STG": (0x1986,),
    "STL": (0x387,),
    "STS": (0x388, 0x1988),
    "STSM": (0x844,),
    "SYNCS": (0x9B1, 0x15A7, 0x15B2, 0x19A7, 0x19B1),
    "UTMALDG": (0x15B4,),
    "UTMASTG": (0x13B5,),
    "WARPGROUP": (0x9C5,),
}
_OTHERS = """
    202 207 208 209 20b 20c 210 211 212 213 217 219 224 225 227 228 229 22a 22b 230 231 232 234 235 23e
    240 245 246 248 249 24a 24b 276 27a 2ca 2cc 300 301 302 305 306 307 309 310 31c 348 355 356 38c 3a1
    3a8 3a9 3c2 3c4 3c6 402 424 431 435 446 5ab 624 625 802 803 805 806 807 808 809 80b 80c 810 811 812
    816 817 819 81a 81c 824 825 827 82f 835 836 846 848 84c 876 882 886 89c 918 919 91a 91b 941 942 944
    945 946 948 949 94d 950 95c 95d 98f 992 9ab 9af 9b7 9c3 a02 a0c a10 a11 a12 a13 a24 a25 ab9 b82 124a
    125a 125c 1287 128c 1290 1291 1292 1297 12a4 12a5 12a6 12bd 12bf 13e9 15e3 15ea 17ac 184a 1856 1887
    188c 1890 1892 1897 1899 189a 18a4 18a5 1980 1985 198c 198e 19a6 19a8 19b9 19c8 19e3 19ea 19ed 19ee
    1c02 1c07 1c0c 1c10 1c11 1c12 1c13 1c17 1c24 1c25 1c35 1c36 1c48 1c4a 1c82 1d00 1d06 1e24 1e25 1e46
    """  # that nobody counts, in hexadecimal
_OPCODES = {code: name for name, codes in _COUNTED.items() for code in codes} | {
    int(code, 16): "" for code in _OTHERS.split()
}
# Of tensor instructions: the bits of the upper half that hold their types, and K of types whose shape is known.
_GROUP, _WARP = 0xFFF << 8 | 7 << 23, 0x7FFFF << 8
_SHAPES: Mapping[str, tuple[int, Mapping[int, int]]] = {
    "HGMMA": (_GROUP, {0x800: 16, 0x1800: 16, 0x2800: 8}),  # fp16, bf16, tf32
    "QGMMA": (_GROUP, {0x800: 32}),
    "HMMA": (_WARP, {0x1000: 8, 0x1800: 16, 0x41000: 8, 0x41800: 16, 0x81000: 8}),  # fp16, bf16, tf32
}


def read(code: bytes, arch: int) -> list[Instruction] | None:
    """Return the instructions of a kernel's code; None where one of them is not known."""
    result = list[Instruction]()
    for number, (low, high) in enumerate(struct.iter_unpack("<QQ", code[: len(code) // WORD * WORD])):
        name = _OPCODES.get(low & 0xFFF | (high >> 27 & 1) << 12)
        if name is None or (flops := _flops(name, low, high)) is None:
            return None
        result.append(Instruction(name, number + 1 + _distance(low, high, arch) if name == "BRA" else None, flops))
    return result


def _flops(name: str, low: int, high: int) -> int | None:
    """Return the flops of an instruction, of one warp or warpgroup; None where those of its types are not known."""
    if name not in _SHAPES:
        return 0
    mask, types = _SHAPES[name]
    m, n = (16, 8) if name == "HMMA" else (64, 8 * ((low >> 53 & 0x1F) + 1))
    k = types.get(high & mask)
    return None if k is None else 2 * m * n * k


def _distance(low: int, high: int, arch: int) -> int:
    """Return how many instructions a branch goes beyond the next one: a signed field, whose lowest byte stands apart
    since 9.0."""
    field = low >> 34 | (high & 0x3FFFF) << 30
    field -= (field >> 47) << 48
    return (field << 8 | low >> 16 & 0xFF if arch >= 90 else field) * 4 // WORD
