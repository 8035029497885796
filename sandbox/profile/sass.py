"""SASS as nvdisasm prints it: instructions with lines, branches and live registers, and what each opcode is for.

Reads the output of `nvdisasm -g -c` and of `nvdisasm -c -plr -lrm count` (12.8 to 13.1). Opcodes after the instruction
set reference in NVIDIA's "CUDA Binary Utilities" (Ampere to Blackwell); one that is not known counts as `other`.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pgo_agent.sandbox.profile.backend import Instruction, Kind

_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);(.*)$")
_LABEL = re.compile(r"^(\.L_\w+):")
_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_TARGET = re.compile(r"\.L_\w+")
_CLOCK = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?C?S2U?R[\w.]*\s+\w+, SR_CLOCKLO\b")
_LIVE = re.compile(r"//\s*\|\s*(\d*)\s*\|")
_ASYNCHRONOUS, _COMMITS = frozenset({"HGMMA", "QGMMA", "IGMMA", "BGMMA"}), "gsb0"
_CONDITIONAL = frozenset({"BRA", "JMP"})  # with a condition among their operands
_BRANCHES = _CONDITIONAL | {"BRX", "JMX"}  # of the indirect ones nvdisasm lists the targets
_ENDS = frozenset({"EXIT", "RET"})

KINDS: Mapping[Kind, str] = {
    "tensor": "HGMMA QGMMA IGMMA BGMMA HMMA IMMA BMMA DMMA QMMA OMMA UTCHMMA UTCQMMA UTCIMMA UTCOMMA",
    "float": """FFMA FADD FMUL FMNMX FMNMX3 FSEL FSET FSETP FCHK FSWZADD FFMA2 FADD2 FMUL2 FFMA32I FADD32I FMUL32I
        HADD2 HFMA2 HMUL2 HMNMX2 HSET2 HSETP2 HADD2_32I HFMA2_32I HMUL2_32I DADD DFMA DMUL DSETP""",
    "special": "MUFU",
    "convert": "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND",
    "integer": """IMAD IADD IADD3 IADD32I IADD64 LEA LOP LOP3 LOP32I SHF SHL SHR ISETP IMNMX VIADD VIADDMNMX
        VIMNMX VIMNMX3 IABS SGXT BMSK POPC FLO BREV IDP IDP4A IMUL ISCADD VABSDIFF UIADD3 UIMAD ULEA ULOP3 ULOP
        USHF USHL USHR UISETP UFLO UPOPC USGXT UBMSK UBREV UIMNMX UVIADD UIABS""",
    "move": """MOV MOV32I SEL PRMT UMOV USEL UPRMT R2UR UR2R S2R S2UR CS2R CS2UR P2R R2P UP2UR UR2UP PLOP3 UPLOP3 PSETP
        LDC ULDC LDCU MOVM R2B B2R LEPC""",
    "exchange": "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT",
    "shared": "LDS STS LDSM STSM ATOMS",
    "global": """LDG STG LDGSTS LD ST ATOM ATOMG RED REDG CCTL CCTLL UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UBLKCP
        UBLKPF UBLKRED""",
    "spill": "LDL STL",
    "sync": """BAR SYNCS SYNCSU WARPSYNC DEPBAR LDGDEPBAR MEMBAR FENCE ERRBAR WARPGROUP WARPGROUPSET UTMACMDFLUSH
        UCGABAR_ARV UCGABAR_WAIT ACQBULK ARRIVES NANOSLEEP YIELD BSSY BSYNC BREAK BMOV USETMAXREG UTCBAR
        ENDCOLLECTIVE""",
    "control": "BRA BRX BRXU JMP JMX EXIT RET CALL NOP KILL BPT RPCMOV PREEXIT PMTRIG",
}  # what is none of these (tensor memory of Blackwell, textures) counts as other
_KIND: Mapping[str, Kind] = {opcode: k for k, opcodes in KINDS.items() for opcode in opcodes.split()}
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_ACCESSES = frozenset({"LDG", "STG", "LDGSTS", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG"})


def kind(opcode: str) -> Kind:
    """Return what an opcode is for; modifiers do not matter."""
    return _KIND.get(opcode.partition(".")[0], "other")


def access_bytes(opcode: str) -> int:
    """Return the bytes that one thread loads or stores in device memory; 0 for other opcodes. Without a width it is one
    word."""
    base, *modifiers = opcode.split(".")
    if base not in _ACCESSES:
        return 0
    return next((_WIDTHS[m] for m in modifiers if m in _WIDTHS), 4)


def instructions(sass: str, live: str = "", file: str = ".ttgir") -> tuple[Instruction, ...]:
    """Return the instructions of a listing with line numbers, joined with the live registers of the other listing.

    Lines are those of files whose name ends with `file`; an instruction keeps the last line named before it. Live
    registers are None where the other listing has no such instruction: it leaves out those that nothing reaches, and
    counts as another kernel's where it has one that this listing lacks.
    """
    code, labels, jumps, line = list[Instruction](), dict[str, int](), dict[int, list[str]](), 0
    for text in sass.splitlines():
        if location := _LINE.match(text):
            line = int(location[2]) if location[1].endswith(file) else 0
        elif label := _LABEL.match(text):
            labels[label[1]] = len(code)
        elif instruction := _INSTRUCTION.match(text):
            parsed, goes = _one(instruction, line)
            jumps |= {len(code): goes} if goes else {}
            code.append(parsed)
        elif text.lstrip().startswith(".section"):
            line = 0
    for at, goes in jumps.items():
        inside = (labels[label] for label in goes if labels.get(label, len(code)) < len(code))
        code[at] = replace(code[at], targets=tuple(dict.fromkeys(inside)))
    return _joined(code, live)


def _one(match: "re.Match[str]", line: int) -> tuple[Instruction, list[str]]:
    """Return the instruction, and the labels that it jumps to."""
    address, guard, opcode, operands, _ = match.groups()
    base = opcode.partition(".")[0]
    labels = _TARGET.findall(operands) if base in _BRANCHES else []
    conditional = bool(guard) or (base in _CONDITIONAL and not operands.startswith("`("))
    ends = base in _ENDS and not guard
    commits = _COMMITS in operands
    return Instruction(int(address, 16), opcode, line, None, (), conditional, ends, commits), labels


def clock_reads(sass: str) -> frozenset[int]:
    """Return the addresses of the instructions that read the low word of the SM's clock, as `Instruction.address` has
    them."""
    return frozenset(int(match[1], 16) for text in sass.splitlines() if (match := _CLOCK.match(text)))


def settled(code: Sequence[Instruction], dots: Collection[int]) -> tuple[Instruction, ...]:
    """Return the instructions, with every asynchronous tensor instruction on a line of `dots` where its group tells
    which.

    ptxas writes no line for some of them, mostly the first of a group, and the one before it then shows. A group ends
    where it is committed, and Triton commits after every dot: so the line that most of a group are on is that of all.
    Where ptxas serialized them (C7515) each is a group of its own, and those without a line stay on a wrong one.
    """
    result, group = list(code), list[int]()
    for at, i in enumerate(code):
        if i.opcode.partition(".")[0] in _ASYNCHRONOUS:
            group.append(at)
        if i.commits:
            lines = Counter(code[n].line for n in group if code[n].line in dots)
            for n in group if lines else ():
                result[n] = replace(code[n], line=lines.most_common(1)[0][0])
            group = []
    return tuple(result)


def _joined(code: Sequence[Instruction], live: str) -> tuple[Instruction, ...]:
    counted = [m for text in live.splitlines() if (m := _INSTRUCTION.match(text))]
    joined, at = list[Instruction](), 0
    for i in code:
        same = at < len(counted) and (int(counted[at][1], 16), counted[at][3]) == (i.address, i.opcode)
        registers = _LIVE.search(counted[at][5]) if same else None
        joined.append(replace(i, live=int(registers[1] or 0)) if registers else i)
        at += same
    return tuple(joined if at == len(counted) else code)
