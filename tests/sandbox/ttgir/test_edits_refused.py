"""Edits that must not be: each is refused by a sentence that names it."""

import pytest
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.edits import apply
from pgo_agent.sandbox.ttgir.edits.errors import BadEdit

from tests.sandbox.editing import SMALL, of


@pytest.mark.parametrize(
    ("name", "said", "number", "problem"),
    [
        ("small", "delete <<sync>>\nmove L99 before L3", 2, "there is no line L99; the labels are L1..L18"),
        ("specialized", "delete C3", 1, "the labels are L1.."),
        ("small", "move <<load arg0_ptrs>> before <<arg0_ptrs = >>", 1, "uses %p"),
        ("small", "move <<load arg0_ptrs>> after <<convert>>", 1, "uses %v of L5 (tt.load), which comes later"),
        ("small", "move <<load arg0$|1>> before <<store scale>>", 1, "in a block that it does not see"),
        ("pipelined", "move <<more3>> before <<for i>>", 1, "uses %acc_20 of L29 (scf.for), which stands in a block"),
        ("small", "move <<scale = >> at start of <<else>>\nmove <<store scale>> before <<if >>", 2, "does not see"),
        ("specialized", "move <<wait a_empty>> at start of <<partition1>>", 1, "does not see"),
        ("specialized", "move <<wait a_full\\[read>> before <<wait a_full2>>", 1, "does not see"),
        ("small", "delete <<load arg0_ptrs>>", 1, "still uses %v of L5 (tt.load), which is taken away"),
        ("small", "delete <<for i>>", 1, "L18 (tt.store) still uses %sum"),
        ("small", "delete <<sync>>\ndelete <<sync>>", 2, "already taken away by edit 1"),
        ("small", "move <<sync>> before <<convert>>\ndelete <<sync>>", 2, "already changed by edit 1"),
        ("small", "move <<sync>> before <<convert>>\nmove <<sync>> after <<convert>>", 2, "already moved by edit 1"),
        ("small", "move <<sync>> before <<convert>>\ndelete <<for i>>", 2, "already changed by edit 1"),
        ("small", "delete <<sync>>\nmove <<convert>> before <<sync>>", 2, "already taken away by edit 1"),
        ("small", "delete <<sync>>\nset <<sync>> tt.x = 1", 2, "already taken away by edit 1"),
        ("small", "set <<sync>> tt.x = 1\nset <<sync>> tt.x = 2", 2, "edit 1 sets tt.x of L9 already"),
        ("small", "delete <<if >>\ninsert at start of <<else>>:\n  gpu.barrier", 2, "already taken away by edit 1"),
        ("specialized", "delete <<next n2>>", 1, "cannot be taken away"),
        ("specialized", "move <<next n2>> before <<wait a_empty>>", 1, "ends its block and cannot be moved"),
        ("specialized", "insert after <<next n2>>:\n  gpu.barrier", 1, "ends its block, nothing can follow it"),
        ("specialized", "replace <<next n2>> with:\n  gpu.barrier", 1, "must end with scf.yield of 1 values"),
        ("specialized", "replace <<next n2>> with:\n  scf.yield", 1, "must end with scf.yield of 1 values"),
        ("small", "insert after <<sync>>:\n  tt.return", 1, "tt.return ends a block"),
        ("small", "replace <<sync>> with:\n  gpu.barrier\n  scf.yield", 1, "scf.yield ends a block"),
        (
            "small",
            "insert after <<scale>>:\n  %l = scf.for %i = %c0 to %n step %c1 iter_args(%a = %other) -> (f32) : i32 {\n"
            "    scf.yield %a, %a : f32, f32\n  }",
            1,
            "needs scf.yield with 1 values at the end of its block, not 2",
        ),
        (
            "small",
            "insert at start of <<else>>:\n  scf.if %once {\n    tt.return\n    gpu.barrier\n  }",
            1,
            "behind one that ends",
        ),
        ("small", "move <<for i>> before <<sync>>", 1, "cannot be moved into itself"),
        ("small", "move <<sync>> after <<sync>>", 1, "cannot be moved beside itself"),
        ("small", "move L1 before L3", 1, "is the function itself"),
        ("small", "move <<sync>> before L1", 1, "nothing can stand before L1; write 'at start of L1'"),
        ("small", "move <<sync>> after <<for i>>", 1, "unclear; write 'at start of L4' for before L5, or 'past L4'"),
        ("small", "delete <<else>>", 1, "stands for no op"),
        ("small", "move <<arg0_ptrs = >>..<<convert>> after <<scale>>", 1, "ends inside of L4, which goes on to L10"),
        (
            "small",
            "insert after <<sync>>:\n  tt.store %x, %nothing : !tt.ptr<f32>",
            1,
            "uses %nothing, which nothing gives",
        ),
        ("small", "insert before <<sync>>:\n  tt.store %x, %other : !tt.ptr<f32>", 1, "uses %other of L11 (math.sqrt)"),
        ("small", "insert before <<sync>>:\n  tt.store %x, %$<<sync>> : !tt.ptr<f32>", 1, "gives no result"),
        ("pipelined", "insert before <<free full>>:\n  tt.x %$<<wait dots, 1>> : i32", 1, "write %$L36#0 to %$L36#2"),
        (
            "small",
            "insert after <<sync>>:\n  %l = math.absf %v : tensor<512xf32, #narrow>",
            1,
            "there is no #narrow; there are #blocked, #wide",
        ),
        (
            "small",
            "replace <<load arg0_ptrs>> with:\n  %v = tt.load %x : !tt.ptr<f32>",
            1,
            "it gives %v as f32, what it replaces as",
        ),
        ("small", "replace <<convert>>..<<convert|1>> with:\n  gpu.barrier", 1, "still uses %back"),
        ("small", "replace <<sync>>, <<sync|1>> with:\n  gpu.barrier", 1, "its lines stand in several blocks"),
        (
            "small",
            "set <<load arg0_ptrs>> num_stages = 3",
            1,
            "has no num_stages; it has cacheModifier, evictionPolicy",
        ),
        (
            "pipelined",
            "set <<acc .= dot>> order = array<i32: 0, 1>",
            1,
            "write: set L35 ttg.memdesc_trans order = array<i32: 0, 1>",
        ),
        ("pipelined", "set <<acc .= dot>> local_load x = 1", 1, "has no local_load; it has"),
        ("small", "set <<else>> tt.x = 1", 1, "stands for no op"),
        ("pipelined", "set <<wait dots>> pendings = {", 1, "is no value of an attribute"),
    ],
)
def test_what_must_not_be_is_refused_and_the_edit_is_named(name: str, said: str, number: int, problem: str) -> None:
    with pytest.raises(BadEdit) as refused:
        of(name).apply(said)
    assert problem in str(refused.value)
    assert refused.value.edit is not None
    assert refused.value.edit.number == number
    assert str(refused.value).startswith(f"edit {number} (line ")


def test_a_view_of_another_module_is_no_view_for_an_edit() -> None:
    other = reader.parse(f"{SMALL.text}\n")
    with pytest.raises(ValueError, match="of another module"):
        apply.apply(other, SMALL.view, [])
