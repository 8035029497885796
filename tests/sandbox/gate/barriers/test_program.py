"""How the simulator reads TTGIR: small kernels written by hand, each accepted by Triton's own parser and verifier."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.gate.barriers import argument_search
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind
from pgo_agent.sandbox.gate.barriers.runs import read_and_simulate
from pgo_agent.sandbox.gate.barriers.terms import Number, Term, apply, evaluate, leaves

ONE = "!ttg.memdesc<1xi64, #shared, #smem, mutable>"
TWO = "!ttg.memdesc<2x1xi64, #shared, #smem, mutable>"
MODULE = """#blocked = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}}>
#shared = #ttg.swizzled_shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}}>
#smem = #ttg.shared_memory
module attributes {{"ttg.num-ctas" = {ctas} : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"}} {{
  {functions}
  tt.func public @k(%n: i32, %p: !tt.ptr<i32>, %q: !tt.ptr<i32>, %on: i1) {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %true = arith.constant true
    %bars = ttg.local_alloc : () -> {TWO}
    %x = ttg.memdesc_index %bars[%c0] : {TWO} -> {ONE}
    %y = ttg.memdesc_index %bars[%c1] : {TWO} -> {ONE}
    ttng.init_barrier %x, {count} : {ONE}
    ttng.init_barrier %y, {count} : {ONE}
{body}
    tt.return
  }}
}}
"""


def simulated(body: str, functions: str = "", count: int = 1, ctas: int = 1, valid: bool = True) -> Finding:
    """What is found in a kernel of this body. `arrive x`, `wait x, %phase` stand for the operations on barriers."""
    body = re.sub(r"\b(arrive|wait|inval) (%\w+)(.*)", _spelled, body)
    text = MODULE.format(body=body, functions=functions, count=count, ctas=ctas, ONE=ONE, TWO=TWO)
    assert not valid or accepted(text)
    return read_and_simulate(text)


def _spelled(m: re.Match[str]) -> str:
    count = ", 1" if m[1] == "arrive" else ""
    return f"ttng.{m[1]}_barrier {m[2]}{count}{m[3]} : {ONE}"


def accepted(text: str) -> bool:
    """Whether Triton's parser and verifier take a text."""
    from triton._C.libtriton import ir, nvidia

    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "k.ttgir"
        path.write_text(text)
        return bool(ir.parse_mlir_module(str(path), context).verify())


def specialized(default: str, partition: str) -> str:
    """Two roles that share both barriers, a number and two pointers."""
    types = f"{ONE}, {ONE}, i32, !tt.ptr<i32>, !tt.ptr<i32>"
    arguments = f"%x: {ONE}, %y: {ONE}, %n: i32, %p: !tt.ptr<i32>, %q: !tt.ptr<i32>"
    arguments = re.sub(r"%(\w+):", r"%b_\1:", arguments)
    return f"""
    ttg.warp_specialize(%x, %y, %n, %p, %q)
    default {{
      {default}
      ttg.warp_yield
    }}
    partition0({arguments}) num_warps(4) {{
      %c0_b = arith.constant 0 : i32
      %c1_b = arith.constant 1 : i32
      {partition}
      ttg.warp_return
    }} : ({types}) -> ()
"""


def test_two_roles_that_wait_for_each_other_first_are_a_circle() -> None:
    body = specialized("wait %x, %c0\n arrive %y", "wait %b_y, %c0_b\n arrive %b_x")
    found = simulated(body)
    assert found.kind is Kind.DEADLOCK
    assert re.search(
        r"default waits on %bars\[0\], .*, partition0 waits on %bars\[1\], .*: each waits for", found.sentence
    )
    assert simulated(specialized("arrive %y\n wait %x, %c0", "wait %b_y, %c0_b\n arrive %b_x")).kind is Kind.NONE


def test_a_partition_waits_with_the_parity_that_a_sign_extended_bit_stands_for() -> None:
    bit = "%t = arith.constant true\n %e = arith.extsi %t : i1 to i32\n"
    assert simulated(f"{bit} wait %x, %e").kind is Kind.NONE  # -1 is parity 1, which a fresh barrier lets pass
    assert simulated("wait %x, %c0").kind is Kind.DEADLOCK


def test_a_predicate_from_memory_is_undecided_and_names_the_operation_and_its_line() -> None:
    found = simulated(
        "%v = tt.load %p : !tt.ptr<i32>\n %on2 = arith.trunci %v : i32 to i1\n arrive %x, %on2\n wait %x, %c0"
    )
    assert found.kind is Kind.UNDECIDED
    said = "the predicate of ttng.arrive_barrier at line 18 is not known: it depends on the number loaded from p"
    assert found.sentence == said


def test_a_predicate_that_is_an_argument_is_tried_both_ways() -> None:
    found = simulated("arrive %x, %on\n wait %x, %c0")
    assert found.kind is Kind.DEADLOCK
    assert found.trace[-1] == "for example with on = 0"
    assert simulated("arrive %x, %on\n wait %x, %c0, %on").kind is Kind.NONE


LOOP = "%{r} = tt.load %{p} : !tt.ptr<i32>\n scf.for %i{r} = %{c0} to %{r} step %{c1} : i32 {{\n {inside} \n }}"


def ping_pong(default: str, partition: str) -> str:
    """Two roles with loops whose numbers of iterations are loaded from these pointers."""
    one = LOOP.format(
        r="n0", p=default, c0="c0", c1="c1", inside="%f = arith.andi %in0, %c1 : i32\n arrive %x\n wait %y, %f"
    )
    two = LOOP.format(
        r="n1",
        p=partition,
        c0="c0_b",
        c1="c1_b",
        inside="%f = arith.andi %in1, %c1_b : i32\n wait %b_x, %f\n arrive %b_y",
    )
    return specialized(one, two)


def test_a_number_of_iterations_from_memory_is_the_same_for_both_roles_where_the_address_is() -> None:
    assert simulated(ping_pong("p", "b_p")).kind is Kind.NONE
    found = simulated(ping_pong("p", "b_q"))
    assert found.kind is Kind.DEADLOCK
    assert any("the number loaded from p = " in line for line in found.trace)


def test_a_branch_on_data_counts_only_with_barriers_inside() -> None:
    branch = "%v = tt.load %p : !tt.ptr<i32>\n %if = arith.trunci %v : i32 to i1\n scf.if %if {{\n {} \n }}\n"
    assert simulated(branch.format("tt.store %q, %v : !tt.ptr<i32>") + "arrive %x\n wait %x, %c0").kind is Kind.NONE
    found = simulated(branch.format("arrive %x"))
    assert found.kind is Kind.UNDECIDED
    assert found.sentence.startswith("the condition of scf.if at line")


def test_what_a_branch_without_barriers_computes_is_followed() -> None:
    body = "%w = scf.if %on -> (i32) {\n scf.yield %c1 : i32\n } else {\n scf.yield %c0 : i32\n }\n wait %x, %w"
    found = simulated(body)
    assert found.kind is Kind.DEADLOCK
    assert found.trace[-1] == "for example with on = 0"


@pytest.mark.parametrize("number", ["arith.addi %n, %c0 : i32", "tt.load %p : !tt.ptr<i32>"])
def test_a_kernel_that_returns_early_is_followed_both_ways(number: str) -> None:
    early = f"%m = {number}\n %early = arith.cmpi sgt, %m, %c2 : i32\n cf.cond_br %early, ^bb1, ^bb2\n ^bb1:\n"
    body = early + " tt.return\n ^bb2:\n {}"
    assert simulated(body.format("arrive %x\n wait %x, %c0")).kind is Kind.NONE
    assert simulated(body.format("wait %x, %c0")).kind is Kind.DEADLOCK


def test_a_call_of_a_function_with_barriers_is_undecided_and_any_other_call_is_not() -> None:
    helper = "tt.func private @helper(%b: {0}) attributes {{noinline = true}} {{\n {1}\n tt.return\n }}"
    call = f"tt.call @helper(%x) : ({ONE}) -> ()"
    given = simulated(call, helper.format(ONE, ""))
    assert given.kind is Kind.UNDECIDED and "a call of a function that uses barriers" in given.sentence
    plain = "tt.func private @other(%a: i32) -> i32 attributes {noinline = true} {\n tt.return %a : i32\n }"
    called = "%r = tt.call @other(%n) : (i32) -> i32\n arrive %x\n wait %x, %c0"
    assert simulated(called, plain).kind is Kind.NONE
    waited = simulated(called.replace("%c0", "%r"), plain)
    assert waited.kind is Kind.UNDECIDED and "the phase of ttng.wait_barrier" in waited.sentence


def test_what_the_kernel_assumes_is_not_held_against_it() -> None:
    body = "%is = arith.cmpi sgt, %n, %c0 : i32\n {} \n arrive %x, %is\n wait %x, %c0"
    assert simulated(body.format("")).kind is Kind.DEADLOCK
    assert simulated(body.format("llvm.intr.assume %is : i1")).kind is Kind.NONE


def test_a_while_loop_is_followed() -> None:
    body = """%r = scf.while (%i = %c0) : (i32) -> i32 {
      %more = arith.cmpi slt, %i, %n : i32
      scf.condition(%more) %i : i32
    } do {
    ^bb0(%j: i32):
      %f = arith.andi %j, %c1 : i32
      arrive %x
      wait %x, FLIP
      %next = arith.addi %j, %c1 : i32
      scf.yield %next : i32
    }"""
    assert simulated(body.replace("FLIP", "%f")).kind is Kind.NONE
    assert simulated(body.replace("FLIP", "%c0")).kind is Kind.DEADLOCK


def test_barriers_in_a_cluster_are_undecided() -> None:
    found = simulated("arrive %x\n wait %x, %c0", ctas=2, valid=False)  # such a layout of barriers is another one
    assert found.kind is Kind.UNDECIDED
    assert "in a cluster of several CTAs" in found.sentence


def test_an_operation_on_a_barrier_that_is_not_known_is_undecided() -> None:
    found = simulated(f"%t = ttg.local_load %x : {ONE} -> tensor<1xi64, #blocked>")
    assert found.kind is Kind.UNDECIDED
    assert "ttg.local_load at line" in found.sentence
    inside = (
        f"scf.for %i = %c0 to %n step %c1 : i32 {{\n %t = ttg.local_load %x : {ONE} -> tensor<1xi64, #blocked>\n }}"
    )
    assert simulated(inside).kind is Kind.UNDECIDED


def test_assembly_that_may_be_a_barrier_is_undecided() -> None:
    assembly = (
        '%r = tt.elementwise_inline_asm "{} $0, $1;" '
        '{{constraints = "=r,r", packed_element = 1 : i32, pure = false}} %n : i32 -> i32'
    )
    assert simulated(assembly.format("bar.sync 1, 128; mov.b32")).kind is Kind.UNDECIDED
    assert simulated(assembly.format("mov.b32")).kind is Kind.NONE


def test_copies_of_every_thread_arrive_when_they_are_done() -> None:
    body = f"ttng.async_copy_mbarrier_arrive %x {{noIncrement}} : {ONE}\n wait %x, %c0"
    assert simulated(body, count=128).kind is Kind.NONE
    found = simulated(body, count=256)
    assert found.kind is Kind.DEADLOCK
    assert "128 of 256 arrivals came" in found.sentence
    counted = simulated(body.replace(" {noIncrement}", ""), count=128)
    assert counted.kind is Kind.UNDECIDED


def test_a_slot_beyond_the_array_is_not_a_barrier() -> None:
    found = simulated(f"%z = ttg.memdesc_index %bars[%c2] : {TWO} -> {ONE}\n arrive %z")
    assert found.kind is Kind.LIFETIME
    assert "%bars[2]" in found.sentence and "not initialised" in found.sentence


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_loop_runs_not_at_all_once_and_around_all_slots_twice_and_more(times: int) -> None:
    body = f"""%done = scf.for %i = %c0 to %n step %c1 iter_args(%m = %c0) -> (i32) : i32 {{
      %f = arith.andi %i, %c1 : i32
      arrive %y
      wait %y, %f
      %next = arith.addi %m, %c1 : i32
      scf.yield %next : i32
    }}
    %hangs = arith.constant {times} : i32
    %fine = arith.cmpi ne, %done, %hangs : i32
    arrive %x, %fine
    wait %x, %c0"""
    found = simulated(body)
    assert found.kind is Kind.DEADLOCK
    said = f"with {times} iteration{'s' * (times != 1)} of the loop at line 16"
    assert found.trace[-2:] == (said, f"for example with n = {times}")


def test_two_loops_one_in_the_other_run_each_number_of_times_together() -> None:
    body = """%all = scf.for %i = %c0 to %n step %c1 iter_args(%k = %c0) -> (i32) : i32 {
      %inner = scf.for %j = %c0 to %m step %c1 iter_args(%l = %k) -> (i32) : i32 {
        %f = arith.andi %l, %c1 : i32
        arrive %y
        wait %y, %f
        %next = arith.addi %l, %c1 : i32
        scf.yield %next : i32
      }
      scf.yield %inner : i32
    }
    %hangs = arith.constant 25 : i32
    %fine = arith.cmpi ne, %all, %hangs : i32
    arrive %x, %fine
    wait %x, %c0"""
    found = simulated(f"%m = tt.load %p : !tt.ptr<i32>\n {body}")
    assert found.kind is Kind.DEADLOCK
    assert found.trace[-1] == "for example with n = 5, the number loaded from p = 5"


@pytest.mark.parametrize(("times", "kind"), [(33, Kind.DEADLOCK), (32, Kind.NONE)])
def test_the_third_of_three_nested_loops_runs_often_where_those_around_it_do_not(times: int, kind: Kind) -> None:
    ring = "!ttg.memdesc<16x1xi64, #shared, #smem, mutable>"
    body = f"""%ring = ttg.local_alloc : () -> {ring}
    %slot = ttg.memdesc_index %ring[%c0] : {ring} -> {ONE}
    %m = tt.load %p : !tt.ptr<i32>
    %o = tt.load %q : !tt.ptr<i32>
    %hangs = arith.constant {times} : i32
    %fine = arith.cmpi ne, %o, %hangs : i32
    %all = scf.for %h = %c0 to %n step %c1 iter_args(%a = %c0) -> (i32) : i32 {{
      %of_n = scf.for %i = %c0 to %m step %c1 iter_args(%b = %a) -> (i32) : i32 {{
        %of_m = scf.for %j = %c0 to %o step %c1 iter_args(%l = %b) -> (i32) : i32 {{
          %f = arith.andi %l, %c1 : i32
          arrive %y, %fine
          wait %y, %f
          %next = arith.addi %l, %c1 : i32
          scf.yield %next : i32
        }}
        scf.yield %of_m : i32
      }}
      scf.yield %of_n : i32
    }}"""
    assert simulated(body).kind is kind


def test_a_loop_without_end_in_sight_is_undecided() -> None:
    body = "%many = arith.constant 1000000 : i32\n"
    body += "scf.for %i = %c0 to %many step %c1 : i32 {\n arrive %x\n wait %x, %i\n }"
    found = simulated(body)
    assert found.kind is Kind.UNDECIDED
    assert "operations" in found.sentence


def test_a_text_that_cannot_be_read_is_undecided() -> None:
    found = read_and_simulate("module {\n")
    assert found.kind is Kind.UNDECIDED and "cannot be read" in found.sentence


def test_nothing_that_is_said_calls_a_kernel_safe() -> None:
    found = simulated("arrive %x\n wait %x, %c0")
    assert found.kind is Kind.NONE and not found.found
    assert "safe" not in found.sentence and "not a proof" in found.sentence


# numbers --------------------------------------------------------------------------------------------------------------

LEAVES = [Term("arg", (), 32, "n"), Term("arg", (), 32, "m", 16), Term("pid", (), 32, "program_id(x)")]
LEAVES += [Term("programs", (), 32, "num_programs(x)"), Term("arg", (), 1, "on")]
BINARY = (
    "addi",
    "subi",
    "muli",
    "divsi",
    "ceildivsi",
    "remsi",
    "minsi",
    "maxsi",
    "andi",
    "xori",
    "cmpi.slt",
    "cmpi.eq",
)


@st.composite
def terms(draw: st.DrawFn) -> Term:
    made: list[Number] = [*LEAVES, *draw(st.lists(st.integers(0, 130), min_size=1, max_size=3))]
    for _ in range(draw(st.integers(1, 5))):
        op = draw(st.sampled_from([*BINARY, "trips", "select"]))
        arity = 3 if op in ("trips", "select") else 2
        found = apply(op, tuple(draw(st.sampled_from(made)) for _ in range(arity)), 32)
        if found is not None:
            made.append(found)
    return draw(st.sampled_from([t for t in made if isinstance(t, Term)]))


@given(terms(), st.integers(0, 9))
def test_arguments_that_are_chosen_give_the_wanted_number_and_could_be_launched_with(term: Term, wanted: int) -> None:
    choice = argument_search.solve(term, wanted, {})
    if choice is None:
        return
    assert evaluate(term, choice) == wanted
    assert leaves(term) >= set(choice)
    assert all(n >= 0 and n % leaf.step == 0 and n < 1 << max(leaf.width - 1, 1) for leaf, n in choice.items())
    programs = {leaf.op: n for leaf, n in choice.items() if leaf.op in ("pid", "programs")}
    assert programs.get("pid", 0) < programs.get("programs", 1 << 31)


@pytest.mark.parametrize(
    ("op", "args", "width", "value"),
    [
        ("divsi", (-7, 2), 32, -3),
        ("remsi", (-7, 2), 32, -1),
        ("floordivsi", (-7, 2), 32, -4),
        ("ceildivsi", (7, 2), 32, 4),
        ("divsi", (7, 0), 32, None),
        ("addi", (2**31 - 1, 1), 32, -(2**31)),
        ("xori", (1, 1), 1, 0),
        ("trunci", (3,), 1, 1),
        ("extsi.i1", (1,), 32, -1),
        ("extui.i1", (1,), 32, 1),
        ("cmpi.ult", (-1, 1), 1, 0),
        ("cmpi.slt", (-1, 1), 1, 1),
        ("trips", (0, 7, 2), 64, 4),
        ("trips", (5, 0, 1), 64, 0),
        ("select", (0, 4, 5), 32, 5),
    ],
)
def test_arithmetic_is_that_of_mlir(op: str, args: tuple[int, ...], width: int, value: int | None) -> None:
    assert apply(op, args, width) == value
