"""What tools and MLIR print, read: SASS, AMD's assembly, loops of a control flow graph, occupancy."""

import networkx  # noqa: F401  (else its import counts among the milliseconds of a reader)
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.profile import amd, amdgcn, machine_loops, nvidia, sass
from pgo_agent.sandbox.profile.backend import Instruction, Resources

SASS = """
	.section	.text._k,"ax",@progbits
_k:
	//## File "/box/in/abc.ttgir", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
	//## File "/box/in/abc.ttgir", line 9
        /*0010*/              @!P1 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   HGMMA.64x128x16.F32 R24, gdesc[UR20], R24, gsb0 ;
	//## File "/usr/lib/python3/other.py", line 80
        /*0030*/               @P0 BRA `(.L_x_1) ;
        /*0040*/                   BRA.U UP0, `(.L_x_1) ;
        /*0050*/                   EXIT ;
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);
.L_x_3:
"""
LIVE = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;           // |    1  |        |        |         |
        /*0010*/              @!P1 LDG.E.128 R4, desc[UR4][R2.64] ; // |   12  |   1    |    4   |         |
        /*0020*/                   HGMMA.64x128x16.F32 R24, gdesc[UR20], R24, gsb0 ; // |  140  | | | |
        /*0030*/               @P0 BRA `(.L_x_1) ;                  // |    8  |        |        |         |
"""
AMDGCN = """
	.text
k:
	.file	1 "/box/out" "kernel.ttgir"
	.file	2 "other.py"
	.loc	1 13 0 prologue_end
	s_load_dwordx2 s[2:3], s[0:1], 0x0
.LBB0_1:                                ; =>This Inner Loop Header
	.loc	1 20 5                          ; kernel.ttgir:20:5
	v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], v[0:15]
	buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen
	.loc	2 99 0
	s_cbranch_scc1 .LBB0_1
; %bb.2:
	s_endpgm
.Lfunc_end0:
	v_this_is_not_code v0
	.amdgpu_metadata
---
  - .agpr_count:     4
    .vgpr_count:     132
    .name:           k
	.end_amdgpu_metadata
"""


def test_sass_gives_lines_widths_branches_and_live_registers() -> None:
    found = sass.instructions(SASS, LIVE)
    assert [(i.address, i.opcode, i.line, i.live) for i in found[:4]] == [
        (0, "LDC", 7, 1),
        (0x10, "LDG.E.128", 9, 12),
        (0x20, "HGMMA.64x128x16.F32", 9, 140),
        (0x30, "BRA", 0, 8),
    ]
    assert [(i.targets, i.conditional, i.ends, i.live) for i in found[3:]] == [
        ((1,), True, False, 8),
        ((1,), True, False, None),
        ((), False, True, None),
        ((6,), False, False, None),
    ]
    assert found[2].commits


def test_an_indirect_branch_goes_where_nvdisasm_says() -> None:
    text = """
        /*0000*/                   BRX R2 -0x190                (*"BRANCH_TARGETS .L_x_1,.L_x_2,.L_x_1"*);
.L_x_1:
        /*0010*/                   NOP ;
.L_x_2:
        /*0020*/                   BRA P0, `(.L_x_1) ;
        /*0030*/                   EXIT ;
"""
    found = sass.instructions(text)
    assert (found[0].targets, found[0].conditional, found[0].ends) == ((1, 2), False, False)
    assert (found[2].targets, found[2].conditional) == ((1,), True)


def test_live_registers_of_another_kernel_are_not_believed() -> None:
    other = LIVE.replace("LDG.E.128", "LDG.E.64")
    assert {i.live for i in sass.instructions(SASS, other)} == {None}
    assert {i.live for i in sass.instructions(SASS, "")} == {None}


def test_a_dot_without_a_line_is_put_on_the_line_of_its_group() -> None:
    lines = [(5, False), (8, False), (8, False), (8, True), (5, True), (3, True)]
    code = [Instruction(n, "HGMMA.64x8x16", line, None, commits=last) for n, (line, last) in enumerate(lines)]
    assert [i.line for i in sass.settled(code, {8, 3})] == [8, 8, 8, 8, 5, 3]


@pytest.mark.parametrize(
    ("opcode", "kind", "width"),
    [
        ("LDG.E.128", "global", 16),
        ("LDG.E.U16", "global", 2),
        ("LDGSTS.E.BYPASS.LTC128B.128", "global", 16),
        ("STG.E", "global", 4),
        ("UTMALDG.2D", "global", 0),
        ("LDL.LU", "spill", 0),
        ("LDS.128", "shared", 0),
        ("HGMMA.64x256x16.F32", "tensor", 0),
        ("MUFU.EX2", "special", 0),
        ("IMAD.MOV.U32", "integer", 0),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "sync", 0),
        ("NEWOPCODE.X", "other", 0),
    ],
)
def test_an_opcode_is_known_by_what_it_is_for(opcode: str, kind: str, width: int) -> None:
    assert (sass.kind(opcode), sass.access_bytes(opcode)) == (kind, width)


def test_no_opcode_is_of_two_kinds() -> None:
    listed = [opcode for text in sass.KINDS.values() for opcode in text.split()]
    assert sorted(listed) == sorted(set(listed))


def test_amdgcn_gives_lines_branches_kinds_and_metadata() -> None:
    found = amdgcn.instructions(AMDGCN)
    assert [(i.opcode, i.line) for i in found] == [
        ("s_load_dwordx2", 13),
        ("v_mfma_f32_32x32x16_f16", 20),
        ("buffer_load_dwordx4", 20),
        ("s_cbranch_scc1", 0),
        ("s_endpgm", 0),
    ]
    assert (found[3].targets, found[3].conditional, found[4].ends) == ((1,), True, True)
    assert [amdgcn.kind(i.opcode) for i in found] == ["move", "tensor", "global", "control", "control"]
    assert [amdgcn.access_bytes(i.opcode) for i in found] == [0, 0, 16, 0, 0]
    assert amdgcn.metadata(AMDGCN) == {"agpr_count": 4, "vgpr_count": 132}


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("v_pk_mul_f32", "float"),
        ("v_fma_f32", "float"),
        ("v_max3_f32", "float"),
        ("v_lshl_add_u32", "integer"),
        ("v_cndmask_b32_e32", "move"),
        ("v_exp_f32_e32", "special"),
        ("v_cvt_pk_f16_f32", "convert"),
        ("ds_read_b64_tr_b16", "shared"),
        ("ds_bpermute_b32", "exchange"),
        ("scratch_load_dwordx4", "spill"),
        ("s_waitcnt", "sync"),
        ("s_add_i32", "integer"),
    ],
)
def test_an_amd_opcode_is_known_by_what_it_is_for(opcode: str, kind: str) -> None:
    assert amdgcn.kind(opcode) == kind


LINES = st.lists(st.sampled_from([*SASS.splitlines(), *LIVE.splitlines(), *AMDGCN.splitlines()]) | st.text(max_size=40))


@given(LINES, LINES)
def test_readers_take_any_text(listing: list[str], live: list[str]) -> None:
    code = sass.instructions("\n".join(listing), "\n".join(live))
    assert all(t < len(code) for i in code for t in i.targets)
    other = amdgcn.instructions("\n".join(listing))
    assert all(t < len(other) for i in other for t in i.targets)
    machine_loops.loops(code), machine_loops.loops(other), amdgcn.metadata("\n".join(listing))


# loops ----------------------------------------------------------------------------------------------------------------


Edge = tuple[tuple[int, ...], bool, bool]


def _code(*edges: Edge) -> list[Instruction]:
    return [Instruction(n, "X", 0, None, *edge) for n, edge in enumerate(edges)]


PLAIN, END = ((), True, False), ((), False, True)


def test_a_nested_loop_is_inside_of_another() -> None:
    code = _code(PLAIN, PLAIN, PLAIN, ((2,), True, False), ((1,), True, False), END)
    assert machine_loops.loops(code) == ((1, 2, 3, 4), (2, 3))


def test_cold_code_that_jumps_back_makes_no_loop() -> None:
    code = _code(PLAIN, ((4,), True, False), PLAIN, END, PLAIN, ((2,), False, False))
    assert machine_loops.loops(code) == ()


def test_a_loop_may_be_laid_out_in_pieces() -> None:
    code = _code(PLAIN, ((4,), False, False), PLAIN, END, PLAIN, ((2,), True, False), ((4,), False, False))
    assert machine_loops.loops(code) == ((4, 5, 6),)


EDGE = st.tuples(st.lists(st.integers(0, 11), max_size=2).map(tuple), st.booleans(), st.booleans())


@settings(max_examples=300)
@given(st.lists(EDGE, min_size=1, max_size=12))
def test_every_way_into_a_loop_is_through_its_header(edges: list[Edge]) -> None:
    count = len(edges)
    code = _code(*((tuple(t for t in ts if t < count), c, e) for ts, c, e in edges))
    headers = [_entries(code, frozenset(body)) for body in machine_loops.loops(code)]
    assert all(len(entries) == 1 for entries in headers)


def _entries(code: list[Instruction], body: frozenset[int]) -> set[int]:
    """Where the body is entered on a way from the first instruction."""
    seen, left, entries = {0}, [0], {0} & body
    while left:
        at = left.pop()
        i = code[at]
        falls = [at + 1] if not i.ends and (not i.targets or i.conditional) and at + 1 < len(code) else []
        for goes in [*falls, *i.targets]:
            if goes in body and at not in body:
                entries.add(goes)
            if goes not in seen:
                seen.add(goes)
                left.append(goes)
    return entries


# occupancy ------------------------------------------------------------------------------------------------------------


def needs(registers: int, warps: int, shared: int, scalar: int = 0) -> Resources:
    return Resources(registers, scalar, 0, 0, 0, 0, shared, warps, 32)


@pytest.mark.parametrize(
    ("device", "registers", "warps", "shared", "blocks", "limiter"),
    [
        # 232 -> 7424 a warp, 8 warps of 65536 in fours; 230400 of 233472 bytes
        ("h200", 232, 8, 229376, 1, ("registers", "shared memory")),
        ("h200", 128, 4, 0, 4, ("registers",)),  # 4096 a warp: 16 warps
        ("h200", 44, 4, 256, 10, ("registers",)),  # 48 -> 1536: 42 warps, in fours 40
        ("h200", 32, 4, 0, 16, ("registers", "warps")),
        ("h200", 168, 4, 0, 3, ("registers",)),  # 5376: 12 warps
        ("h200", 255, 12, 0, 0, ("registers",)),  # 8 warps fit: it cannot be launched
        ("h200", 16, 1, 0, 32, ("blocks",)),
        ("h200", 32, 4, 49152, 4, ("shared memory",)),  # 50176 each of 233472
        ("a100", 32, 4, 49152, 3, ("shared memory",)),  # 50176 each of 167936
        ("rtx4090", 32, 4, 0, 12, ("warps",)),  # 48 warps of an SM
        ("rtx4090", 16, 1, 0, 24, ("blocks",)),
    ],
)
def test_occupancy_is_what_the_hand_counts(
    device: str, registers: int, warps: int, shared: int, blocks: int, limiter: tuple[str, ...]
) -> None:
    found = nvidia.occupancy_of(devices.find(device), needs(registers, warps, shared))
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert found.share == blocks * warps / (devices.find(device).threads_sm / 32)


@pytest.mark.parametrize(
    ("registers", "scalar", "warps", "shared", "blocks", "limiter"),
    [
        (256, 38, 8, 98304, 1, ("registers", "shared memory")),
        (144, 25, 4, 0, 3, ("registers",)),
        (40, 106, 4, 0, 7, ("scalar registers",)),
        (64, 100, 4, 0, 8, ("registers", "scalar registers", "warps")),
        (64, 16, 4, 65536, 2, ("shared memory",)),  # 66560 of 163840
        (24, 16, 2, 0, 16, ("blocks", "registers", "scalar registers", "warps")),
        (24, 16, 1, 0, 32, ("blocks", "registers", "scalar registers", "warps")),
    ],
)
def test_occupancy_of_a_compute_unit_is_what_the_hand_counts(
    registers: int, scalar: int, warps: int, shared: int, blocks: int, limiter: tuple[str, ...]
) -> None:
    found = amd.occupancy_of(needs(registers, warps, shared, scalar))
    assert (found.blocks, found.limiter) == (blocks, limiter)
