"""AMDGCN assembly as LLVM prints it: instructions with lines and branches, the kernel's metadata, what opcodes are for.

Opcodes by prefix, after AMD's "CDNA3" and "CDNA4 Instruction Set Architecture". The text has no addresses; an
instruction's place is its index. It says nothing of live registers.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from pgo_agent.sandbox.profile.backend import Instruction, Kind

_LABEL = re.compile(r"^(\.L\w+):")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_INSTRUCTION = re.compile(r"^\s+([a-z]\w*)\s*([^;]*)")
_FIELD = re.compile(r"^\s+(?:- )?\.(\w+):\s+(\d+)\s*$", re.M)
_ENTRY = re.compile(r"^\s*\.section\s+\.AMDGPU|^\s*\.amdgpu_metadata|^\s*\.section\s+\.rodata|^\.Lfunc_end")
PREFIXES: Sequence[tuple[str, Kind]] = (  # the first that fits
    ("v_mfma_", "tensor"),
    ("v_smfmac_", "tensor"),
    ("v_wmma_", "tensor"),
    ("v_accvgpr_", "move"),
    ("ds_bpermute", "exchange"),
    ("ds_permute", "exchange"),
    ("ds_swizzle", "exchange"),
    ("v_permlane", "exchange"),
    ("v_readlane", "exchange"),
    ("v_readfirstlane", "exchange"),
    ("v_writelane", "exchange"),
    ("ds_", "shared"),
    ("scratch_", "spill"),
    ("buffer_", "global"),
    ("global_", "global"),
    ("flat_", "global"),
    ("s_load", "move"),
    ("s_buffer_load", "move"),
    ("s_barrier", "sync"),
    ("s_waitcnt", "sync"),
    ("s_sleep", "sync"),
    ("s_setprio", "sync"),
    ("s_sethalt", "sync"),
    ("s_nop", "sync"),
    ("s_branch", "control"),
    ("s_cbranch", "control"),
    ("s_endpgm", "control"),
    ("s_setpc", "control"),
    ("s_swappc", "control"),
    ("s_getpc", "control"),
    ("s_mov", "move"),
    ("s_cmov", "move"),
    ("s_cselect", "move"),
    ("v_mov", "move"),
    ("v_cndmask", "move"),
    ("v_perm_", "move"),
    ("v_swap", "move"),
    ("v_pk_mov", "move"),
    ("v_exp_", "special"),
    ("v_log_", "special"),
    ("v_rcp_", "special"),
    ("v_rsq_", "special"),
    ("v_sqrt_", "special"),
    ("v_sin_", "special"),
    ("v_cos_", "special"),
    ("v_cvt_", "convert"),
    ("s_", "integer"),
)
_FLOATS = re.compile(r"_(f16|f32|f64|bf16|dot2c?_f32)\b|_(f16|f32|f64|bf16)_")
_WIDTH = re.compile(r"_(ubyte|sbyte|byte|ushort|sshort|short|dwordx2|dwordx3|dwordx4|dword)")
_BYTES = {"byte": 1, "short": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}


def kind(opcode: str) -> Kind:
    """Return what an opcode is for."""
    result = next((k for prefix, k in PREFIXES if opcode.startswith(prefix)), None)
    if result:
        return result
    if not opcode.startswith("v_"):
        return "other"
    return "float" if _FLOATS.search(opcode) else "integer"


def access_bytes(opcode: str) -> int:
    """Return the bytes that one lane loads or stores in device memory; 0 for other opcodes."""
    return _bytes(opcode) if kind(opcode) == "global" else 0


def scratch_bytes(opcode: str) -> int:
    """Return the bytes that one lane keeps in scratch, or takes from there; 0 for other opcodes."""
    return _bytes(opcode) if kind(opcode) == "spill" else 0


def _bytes(opcode: str) -> int:
    width = _WIDTH.search(opcode)
    return _BYTES[width[1] if width[1] in _BYTES else width[1][1:]] if width else 0


def metadata(text: str) -> dict[str, int]:
    """Return the kernel's figures: vgpr_count, agpr_count, sgpr_count, vgpr_spill_count, private_segment_fixed_size,
    ..."""
    _, _, block = text.partition(".amdgpu_metadata")
    return {name: int(value) for name, value in _FIELD.findall(block)}


def instructions(text: str, file: str = ".ttgir") -> tuple[Instruction, ...]:
    """Return the instructions of the first function, with lines of files whose name ends with `file`."""
    code, labels, jumps = list[Instruction](), dict[str, int](), dict[int, str]()
    files, line = dict[str, str](), 0
    for text_line in text.splitlines():
        if _ENTRY.match(text_line):
            break
        if file_entry := _FILE.match(text_line):
            files[file_entry[1]] = file_entry[2]
        elif loc := _LOC.match(text_line):
            line = int(loc[2]) if files.get(loc[1], "").endswith(file) else 0
        elif label := _LABEL.match(text_line):
            labels[label[1]] = len(code)
        elif instruction := _INSTRUCTION.match(text_line):
            opcode, operands = instruction[1], instruction[2].strip()
            if opcode in ("s_branch",) or opcode.startswith("s_cbranch"):
                jumps[len(code)] = operands
            code.append(_one(opcode, line, len(code)))
    return tuple(
        replace(i, targets=(labels[jumps[n]],)) if labels.get(jumps.get(n, ""), len(code)) < len(code) else i
        for n, i in enumerate(code)
    )


def _one(opcode: str, line: int, at: int) -> Instruction:
    ends = opcode.startswith(("s_endpgm", "s_setpc"))
    return Instruction(at, opcode, line, None, (), opcode != "s_branch", ends)
