"""What a finished build says about itself without a GPU: the compiler's log, the TTGIR's pipeline, the SASS mix.

Codes are ptxas's own: C7510 to C7516 say that wgmma was serialized, C7602 that registers did not suffice. Counts of
SASS opcodes come from nvdisasm of the same Triton wheel. Nothing here is a measurement of time.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import tools

_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGS = re.compile(r"Used (\d+) registers")
_NOTE = re.compile(r"\b(C7[56]\d\d)\b")
_OPCODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.M)
_PENDINGS = re.compile(r"warp_group_dot_wait .*?pendings = (\d+)")
_BUFFERS = re.compile(r"ttg\.local_alloc\s*:\s*\(\)\s*->\s*!ttg\.memdesc<(\d)x\d+x")  # more digits: the rows of a tile
_DOT = re.compile(r"(?:warp_group_dot|tt\.dot) .* : [!.\w]+<(\d+)x(\d+)x.* \* [!.\w]+<\d+x(\d+)x")
_LABEL = re.compile(r"(\.L_\w+):")
_BRANCH = re.compile(r"\bBRA\b.*`\((\.L_\w+)\)")
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


def from_log(log: str) -> dict[str, Any]:
    """Registers, stack and spills in bytes, and the codes of ptxas's notes."""
    spills, regs = _SPILLS.search(log), _REGS.search(log)
    stack, stores, loads = (int(x) for x in spills.groups()) if spills else (0, 0, 0)
    return {
        "registers": int(regs[1]) if regs else 0,
        "stack_bytes": stack,
        "spill_store_bytes": stores,
        "spill_load_bytes": loads,
        "notes": sorted(set(_NOTE.findall(log))),
    }


def from_ttgir(text: str) -> dict[str, Any]:
    """Dots, the depth of the software pipeline, and how many dots each wait leaves in flight."""
    waits = [int(p) for p in _PENDINGS.findall(text)]
    depths = [int(d) for d in _BUFFERS.findall(text)]
    return {
        "dots": len(re.findall(r"(?:ttng\.warp_group_dot |ttng\.tc_gen5_mma |tt\.dot )", text)),
        "dot_waits": waits,
        "pipeline_depth": max(depths, default=1),
        "async_copies": len(re.findall(r"ttg\.async_copy_global_to_local|ttng\.async_tma_copy_global_to_local", text)),
        "warp_specialized": "ttg.warp_specialize" in text,
        "loop_flops": loop_flops(text),
    }


def loop_flops(text: str) -> int:
    """Useful tensor flops of one iteration of the first loop that holds dots, for a whole block; 0 without one."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if " scf.for " in line:
            indent = len(line) - len(line.lstrip())
            closing = " " * indent + "}"
            end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith(closing)), len(lines))
            dots = _DOT.findall("\n".join(lines[start + 1 : end]))
            if dots:
                return sum(2 * int(m) * int(k) * int(n) for m, k, n in dots)
    return 0


def from_sass(cubin: Path, nvdisasm: str) -> dict[str, Any]:
    """How often each opcode of interest stands in the SASS, the number of instructions, and the hottest loop."""
    sass = tools.output([nvdisasm, "-c", str(cubin)])
    count = Counter(_OPCODE.findall(sass))
    return {op: count[op] for op in OPCODES if count[op]} | {"all": sum(count.values()), "loop": hot_loop(sass)}


def hot_loop(sass: str) -> dict[str, int]:
    """The loop that does most tensor work for each instruction issued, of one warp (or warpgroup, for HGMMA).

    Loops are backward branches. Gives instructions, tensor flops, MUFU and barriers of one iteration; {} without loop.
    """
    lines = sass.splitlines()
    labels = {m[1]: i for i, line in enumerate(lines) if (m := _LABEL.match(line))}
    loops = [
        lines[labels[m[1]] : i + 1]
        for i, line in enumerate(lines)
        if (m := _BRANCH.search(line)) and labels.get(m[1], i) < i - 1
    ]
    profiles = [_profile("\n".join(body)) for body in loops]
    return max(profiles, key=lambda p: (p["tensor_flops"] / p["all"], p["all"]), default={})


def _profile(sass: str) -> dict[str, int]:
    count = Counter(_OPCODE.findall(sass))
    flops = sum(2 * int(m) * int(n) * int(k) for m, n, k in _GROUP_MMA.findall(sass))
    flops += sum(2 * int(m) * int(n) * int(k) for m, n, k in _WARP_MMA.findall(sass))
    return {
        "all": max(sum(count.values()), 1),
        "tensor_flops": flops,
        "mufu": count["MUFU"],
        "barriers": count["BAR"] + count["SYNCS"],
    }
