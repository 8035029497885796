"""What the SASS of builds is made of: how often each opcode stands in it, and the loop that does the tensor work.

That is read from the words of the code (`sass_words.py`). nvdisasm is asked of kernels with an instruction that is not
known there: it spends a quarter of a second of a core on its tables before it reads a kernel, so the code of many is
laid end to end and disassembled as one image (`--binary`, in 12.8 to 13.1), which prints branches with their addresses.
Nothing here is a measurement of time.
"""

import math
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.compiler import nvidia_tools, sass_words
from pgo_agent.sandbox.compiler.sass_words import WORD, Instruction
from pgo_agent.sandbox.json_codec import JsonObject

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(.*)$", re.M)
_OPCODE = re.compile(r"(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
_BRANCH = re.compile(r"\bBRA\b.*?\b0x([0-9a-f]+)\b")  # for 12.0 it says more behind it
_GROUP_MMA = re.compile(r"\b[HQ]GMMA\.(\d+)x(\d+)x(\d+)\b")  # of a warpgroup
_WARP_MMA = re.compile(r"\bHMMA\.(16)(8)(8|16)\b")  # of a warp
OPCODES = (
    "HGMMA",
    "QGMMA",
    "HMMA",
    "MUFU",
    "FFMA",
    "FMUL",
    "FADD",
    "LDGSTS",
    "UTMALDG",
    "UTMASTG",
    "LDG",
    "STG",
    "LDS",
    "STS",
    "LDSM",
    "STSM",
    "LDL",
    "STL",
    "BAR",
    "WARPGROUP",
    "SYNCS",
    "SHFL",
)


def of_words(cubin: bytes, arch: int) -> JsonObject | None:
    """Return what `mixes` does of one kernel; None where nvdisasm must be asked.

    Raises BadBundle for what is no cubin.
    """
    read = sass_words.read(b"".join(elf.code(cubin)), arch)
    return None if read is None else _mix(read)


def mixes(cubins: Sequence[Path], arch: int, nvdisasm: str) -> list[JsonObject]:
    """Return for each cubin how often each opcode of interest stands in it, the number of instructions, and the hottest
    loop, as nvdisasm reads it.

    Where nvdisasm refuses the image of several, each is disassembled by itself: what it then refuses has none.
    """
    codes = [b"".join(elf.code(p.read_bytes())) for p in cubins]
    listed = _listed(codes, arch, nvdisasm)
    if len(codes) > 1 and not all(listed):
        listed = [_listed([code], arch, nvdisasm)[0] for code in codes]
    return [_mix(read) for read in listed]


def _listed(codes: Sequence[bytes], arch: int, nvdisasm: str) -> list[list[Instruction]]:
    """Return the instructions of each, from one run of the tool; none for any where it stopped before the last of
    them."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as image:
        image.write(b"".join(codes))
        image.flush()
        text = nvidia_tools.output([nvdisasm, "--binary", _name(arch), image.name])
    lines = [(int(m[1], 16), m[2]) for m in _INSTRUCTION.finditer(text)]
    result, start = [], 0
    for code in codes:
        end = start + len(code)
        result.append([_instruction(text, start) for at, text in lines if start <= at < end])
        start = end
    return result


def _name(arch: int) -> str:
    return f"SM{arch}" if arch < 90 else f"SM{arch}a"


def _instruction(text: str, start: int) -> Instruction:
    """Return what a line says of an instruction of the kernel whose code begins at `start`."""
    opcode, branch = _OPCODE.match(text), _BRANCH.search(text)
    shape = _GROUP_MMA.search(text) or _WARP_MMA.search(text)
    return Instruction(
        opcode[1] if opcode else "",
        (int(branch[1], 16) - start) // WORD if branch else None,
        2 * math.prod(map(int, shape.groups())) if shape else 0,
    )


def _mix(read: Sequence[Instruction]) -> JsonObject:
    count = _opcodes(read)
    return {op: count[op] for op in OPCODES if count[op]} | {"all": len(read), "loop": hot_loop(read)}


def _opcodes(read: Sequence[Instruction]) -> Counter[str]:
    return Counter(instruction.opcode for instruction in read)


def hot_loop(read: Sequence[Instruction]) -> dict[str, int]:
    """Return the loop that does most tensor work for each instruction issued, of one warp (or warpgroup, for HGMMA).

    Loops are backward branches. Gives instructions, tensor flops, MUFU and barriers of one iteration; {} without loop.
    """
    ends = [(begin, end) for end, (_, begin, _) in enumerate(read) if begin is not None and 0 <= begin < end]
    profiles = [_profile(read[begin : end + 1]) for begin, end in ends]
    return max(profiles, key=lambda p: (p["tensor_flops"] / p["all"], p["all"]), default={})


def _profile(body: Sequence[Instruction]) -> dict[str, int]:
    count = _opcodes(body)
    return {
        "all": len(body),
        "tensor_flops": sum(instruction.flops for instruction in body),
        "mufu": count["MUFU"],
        "barriers": count["BAR"] + count["SYNCS"],
    }
