"""bundle/ptx.py: no kernel may write where a global symbol lies, however its address gets there."""

from collections.abc import Callable

import pytest
from pgo_agent.sandbox.bundle import elf, ptx
from pgo_agent.sandbox.judge.launches import shared_memory

TABLE = ".global .align 4 .b8 __cudart_i2opi_f[24] = {65, 144, 67, 60};"
KERNEL = """
{declared}
.visible .entry k(.param .u64 .ptr .global .align 16 k_param_0, .param .u32 k_param_1)
.reqntid 128
{{
    .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .shared .align 8 .b8 kept[16];
    ld.param.b64 %rd1, [k_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    {body}
    @%p1 bra $L__BB0_2;
$L__BB0_2:
    st.global.b32 [%rd2], %r1;
    ret;
}}
"""
READS = {
    "as LLVM reads the table": "mov.b64 %rd3, __cudart_i2opi_f; add.s64 %rd4, %rd3, 4; ld.global.nc.b32 %r2, [%rd4];"
    " st.global.b32 [%rd2], %r2;",
    "by its name": "ld.global.u32 %r2, [__cudart_i2opi_f+4]; st.global.b32 [%rd2], %r2;",
    "nothing of it": "add.s32 %r2, %r1, 1;",
}
WRITES = {
    "by its name": "st.global.u32 [__cudart_i2opi_f+8], %r1;",
    "through a register": "mov.b64 %rd3, __cudart_i2opi_f; st.global.u32 [%rd3], %r1;",
    "through a sum": "mov.u64 %rd3, __cudart_i2opi_f; mad.wide.u32 %rd4, %r1, 4, %rd3; st.global.u32 [%rd4+4], %r1;",
    "through a generic address": "cvta.global.u64 %rd3, __cudart_i2opi_f; st.u32 [%rd3], %r1;",
    "under a predicate": "mov.u64 %rd3, __cudart_i2opi_f; @%p1 st.global.u32 [%rd3], %r1;",
    "by an atomic": "mov.u64 %rd3, __cudart_i2opi_f; atom.global.add.u32 %r2, [%rd3], 1;",
    "by a reduction": "red.global.add.u32 [__cudart_i2opi_f], 1;",
    "in a scope of its own": "{ .reg .u64 p; mov.u64 p, __cudart_i2opi_f; st.global.u32 [p], %r1; }",
    "in halves": "mov.u64 %rd3, __cudart_i2opi_f; mov.b64 {%r2, %r3}, %rd3; mov.b64 %rd4, {%r2, %r3};"
    " st.global.u32 [%rd4], %r1;",
    "by way of shared memory": "mov.u64 %rd3, __cudart_i2opi_f; st.shared.u64 [kept], %rd3;"
    " ld.shared.u64 %rd4, [kept]; st.global.u32 [%rd4], %r1;",
    "in a loop, where the address comes later": "$L__BB0_9: st.global.u32 [%rd5], %r1; mov.u64 %rd5, %rd2;"
    " mov.u64 %rd5, __cudart_i2opi_f; @%p1 bra $L__BB0_9;",
    "behind a comment": "/* mov.u64 %rd3, 0; */ mov.u64 %rd3, // the table\n __cudart_i2opi_f;"
    " st.global.u32 [%rd3], %r1;",
    "by a shuffled address": "mov.u64 %rd3, __cudart_i2opi_f; cvt.u32.u64 %r2, %rd3;"
    " shfl.sync.idx.b32 %r3, %r2, 0, 31, -1; cvt.u64.u32 %rd4, %r3; st.global.u32 [%rd4], %r1;",
}


def kernel(body: str, declared: str = TABLE) -> str:
    return KERNEL.format(declared=declared, body=body)


@pytest.mark.parametrize("how", READS)
def test_reading_a_table_is_no_store(how: str) -> None:
    assert ptx.stored_at(kernel(READS[how])) == ""


@pytest.mark.parametrize("how", WRITES)
def test_a_store_at_a_symbol_is_found(how: str, ptxas: Callable[[str], bytes]) -> None:
    assert ptxas(kernel(WRITES[how]))  # it could be launched
    assert ptx.stored_at(kernel(WRITES[how]))


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        (".visible .global .align 1 .b8 kept[11] = {95, 95};", "kept"),
        (".global .u32 a, kept;", "kept"),
        (".global .attribute(.managed) .align 4 .u32 kept;", "kept"),
        (".extern .global .align 4 .b8 kept[];", "kept"),
    ],
)
def test_every_symbol_of_global_memory_is_known_and_no_parameter(declared: str, name: str) -> None:
    assert name in ptx.symbols(kernel("", declared)) <= {"a", "kept"}
    assert ptx.symbols(kernel("", ".extern .shared .align 16 .b8 global_smem[];")) == set()


def test_registers_of_one_function_are_not_those_of_another() -> None:
    """LLVM numbers them anew in each; a kernel that calls a function with the table may store through the same name."""
    helper = ".func helper() { .reg .b64 %rd<9>; mov.b64 %rd2, __cudart_i2opi_f; ld.global.b32 %r9, [%rd2]; ret; }\n"
    assert ptx.stored_at(kernel("", TABLE + helper)) == ""


def test_what_overwrites_shared_memory_assembles_and_takes_a_size_and_a_seed(ptxas: Callable[[str], bytes]) -> None:
    image = ptxas(shared_memory.PTX[shared_memory.PTX.index(".extern") :])
    assert elf.entries(image) == ["scrub"]
    assert elf.parameter_sizes(image, "scrub") == [4, 4]
