"""What the SASS of builds is made of: how often each opcode stands in it, and the loop that does the tensor work.

nvdisasm spends half a second on its tables before it reads a kernel, and then some 20 ms on a thousand instructions. So
the code of many kernels is laid end to end and disassembled as one image (`--binary`, in 12.8 to 13.1), which prints
branches with their addresses. Nothing here is a measurement of time.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.compiler import nvidia_tools
from pgo_agent.sandbox.json_codec import JsonObject

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(.*)$", re.M)
_OPCODE = re.compile(r"(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
_BRANCH = re.compile(r"\bBRA\b.*\b0x([0-9a-f]+)\s*;")
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
Line = tuple[int, str]  # address in the image, and the instruction


def mixes(cubins: Sequence[Path], arch: int, nvdisasm: str) -> list[JsonObject]:
    """Return for each cubin how often each opcode of interest stands in it, the number of instructions, and the hottest
    loop.

    Where nvdisasm refuses the image of several, each is disassembled by itself: what it then refuses has none.
    """
    codes = [b"".join(elf.code(p.read_bytes())) for p in cubins]
    listed = _listed(codes, arch, nvdisasm)
    if len(codes) > 1 and not all(listed):
        listed = [_listed([code], arch, nvdisasm)[0] for code in codes]
    return [_mix(lines) for lines in listed]


def _listed(codes: Sequence[bytes], arch: int, nvdisasm: str) -> list[list[Line]]:
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
        result.append([line for line in lines if start <= line[0] < end])
        start = end
    return result


def _name(arch: int) -> str:
    return f"SM{arch}" if arch < 90 else f"SM{arch}a"


def _mix(lines: Sequence[Line]) -> JsonObject:
    count = _opcodes(lines)
    return {op: count[op] for op in OPCODES if count[op]} | {"all": sum(count.values()), "loop": hot_loop(lines)}


def _opcodes(lines: Sequence[Line]) -> Counter[str]:
    return Counter(m[1] for _, text in lines if (m := _OPCODE.match(text)))


def hot_loop(lines: Sequence[Line]) -> dict[str, int]:
    """Return the loop that does most tensor work for each instruction issued, of one warp (or warpgroup, for HGMMA).

    Loops are backward branches. Gives instructions, tensor flops, MUFU and barriers of one iteration; {} without loop.
    """
    index = {address: i for i, (address, _) in enumerate(lines)}
    loops = [
        lines[begin : i + 1]
        for i, (_, text) in enumerate(lines)
        if (m := _BRANCH.search(text)) and (begin := index.get(int(m[1], 16), i)) < i
    ]
    profiles = [_profile(body) for body in loops]
    return max(profiles, key=lambda p: (p["tensor_flops"] / p["all"], p["all"]), default={})


def _profile(body: Sequence[Line]) -> dict[str, int]:
    count, text = _opcodes(body), "\n".join(text for _, text in body)
    flops = sum(2 * int(m) * int(n) * int(k) for m, n, k in _GROUP_MMA.findall(text))
    flops += sum(2 * int(m) * int(n) * int(k) for m, n, k in _WARP_MMA.findall(text))
    return {
        "all": max(sum(count.values()), 1),
        "tensor_flops": flops,
        "mufu": count["MUFU"],
        "barriers": count["BAR"] + count["SYNCS"],
    }
