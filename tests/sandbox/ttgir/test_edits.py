"""Edits of TTGIR by labels: what they change, what goes along, what is refused and which edit is named."""

from collections import Counter
from collections.abc import Callable

import pytest
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.ttgir import triton_parser
from pgo_agent.sandbox.ttgir.edits import script, verify
from pgo_agent.sandbox.ttgir.edits.errors import BadEdit
from pgo_agent.sandbox.ttgir.edits.verify import Ask
from pgo_agent.sandbox.ttgir.triton_parser import Answer

from tests.sandbox.editing import BLOCKED, EARLY, SMALL, Kernel, kernel, of

# Label of a kernel -> script; Triton's parser reads what each of them makes.
GOOD = {
    "relaxed wait": ("pipelined", "set <<wait dots, 1>> pendings = 0"),
    "copies before the dot": ("pipelined", "move <<fill = .fill>>..<<tma copy db.*fill>> before <<wait full>>"),
    "another order of barriers": ("pipelined", "move <<init full.1>> before <<init full.0>>"),
    "an attribute inside of a line": ("pipelined", "set <<init full.1>> count = 2\nset <<expect>> size = 16384"),
    "an asynchronous dot": ("pipelined", "set <<acc .= dot>> isAsync = false"),
    "a loop earlier": ("pipelined", "move <<for i>> before <<more = >>"),
    "converts taken out": (
        "small",
        f"delete <<convert>>\ndelete <<convert|1>>\n"
        f"replace <<l .= >> with:\n  %t = arith.addf %v, %s : {BLOCKED}\n  %more = arith.addf %acc, %t : {BLOCKED}",
    ),
    "converts passed by": ("small", f"replace <<convert>>..<<convert|1>> with:\n  %back = math.absf %v : {BLOCKED}"),
    "an op put in": (
        "small",
        "insert after <<_conv = .*_conv>>:\n  %t = math.absf %$<<convert>> : tensor<512xf32, #wide>",
    ),
    "a load out of the loop": ("small", "move <<load arg0$|1>> before <<for i>>"),
    "a load behind the branch": ("small", "move <<scale = >> past <<if >>\nmove <<store scale>> before <<store l>>"),
    "a barrier into the other branch": (
        "small",
        "move <<sync|1>> at start of <<if >>\nmove <<sync>> at end of <<if >>",
    ),
    "a loop put in": (
        "small",
        "insert after <<scale = >>:\n  %l = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %other) -> (f32) : i32 {\n"
        "    %w = arith.addf %acc, %acc : f32\n    scf.yield %w : f32\n  }\n  tt.store %x, %l : !tt.ptr<f32>",
    ),
    "a cache policy": (
        "small",
        "set <<load arg0_ptrs>> evictionPolicy = evict_last\nset <<load arg0_ptrs>> isVolatile = true",
    ),
    "a sum handed over anew": (
        "odd",
        "replace <<k = k \\* 2 . 1>> with:\n  %new = arith.muli %$<<n2 = >>, %$<<n2 = >> : i64\n"
        "  %small = arith.trunci %new : i64 to i32\n  %k_37 = arith.addi %small, %small : i32",
    ),
    "producer's wait earlier": ("specialized", "move <<wait b_empty2>> before <<wait a_empty>>"),
    "consumer's wait later": ("specialized", "move <<wait a_full2>> after <<wait b_full|1>>"),
    "a partition's barrier": ("specialized", "insert at start of <<partition1>>:\n  gpu.barrier"),
    "the next value of a loop": (
        "specialized",
        "replace <<next n2>> with:\n  %by = arith.constant 2 : i64\n  scf.yield %by : i64",
    ),
}


@pytest.fixture(scope="module")
def made(add_contents: ContentStore) -> dict[str, tuple[Kernel, str, Answer]]:
    """The kernel of each good script, the text that it makes, and what Triton says of that."""
    kernels = {name: of(name) for name, _ in GOOD.values()}
    texts = [kernels[name].apply(said) for name, said in GOOD.values()]
    answers = triton_parser.ask_all(box.choose(), add_contents, 90, texts)
    return {k: (kernels[GOOD[k][0]], t, a) for k, t, a in zip(GOOD, texts, answers, strict=True)}


@pytest.mark.parametrize("name", GOOD)
def test_triton_reads_what_a_good_script_makes(name: str, made: dict[str, tuple[Kernel, str, Answer]]) -> None:
    before, text, answer = made[name]
    assert text != before.text
    assert answer.error is None


@pytest.mark.parametrize("name", ["odd", "pipelined", "specialized", "small"])
def test_an_empty_script_gives_the_text_byte_for_byte(name: str) -> None:
    assert of(name).apply("") == of(name).text


@pytest.mark.parametrize("name", ["cp_async", "gemm_specialized", "attention"])
def test_compiled_kernels_are_edited_by_their_lines(name: str, ttgir: Callable[[str], str], ask: Ask) -> None:
    before = kernel(ttgir(name))
    assert before.apply("") == before.text
    wait = next(line for line in before.view.lines if line.ops and "pendings" in line.ops[0].attributes)
    edits = script.parse(f"set {wait.label} pendings = 3")
    text = verify.verified(before.module, before.view, edits, ask)
    assert [a for a, b in zip(before.text.splitlines(), text.splitlines(), strict=True) if a != b] == [
        before.text.splitlines()[wait.ops[0].line - 1]
    ]


# what an edit changes -------------------------------------------------------------------------------------------------


def test_setting_an_attribute_changes_its_value_alone() -> None:
    before = of("pipelined")
    text = before.apply("set <<wait dots, 1>> pendings = 0")
    assert text == before.text.replace("{pendings = 1 : i32}", "{pendings = 0 : i32}")


def test_an_attribute_is_added_where_the_op_knows_it() -> None:
    text = SMALL.apply("set <<load arg0_ptrs>> evictionPolicy = evict_last\nset <<for i>> tt.num_stages = 3")
    assert "%v = tt.load %p evictionPolicy = evict_last : tensor" in text
    assert "} {tt.num_stages = 3 : i32}" in text
    again = kernel(text).apply("set <<for i>> num_stages = 4\nset <<load arg0_ptrs>> evictionPolicy = evict_first")
    assert "evictionPolicy = evict_first : tensor" in again
    assert "} {tt.num_stages = 4 : i32}" in again


def test_a_move_keeps_every_line_and_carries_the_views_that_it_alone_uses() -> None:
    before = of("pipelined")
    text = before.apply("move <<fill = .fill>>..<<tma copy db.*fill>> before <<wait full>>")
    assert Counter(text.splitlines()) == Counter(before.text.splitlines())
    said = [line.text for line in kernel(text).view.lines if line.loops]
    assert said.index(next(t for t in said if t.startswith("tma copy db"))) < said.index("wait full[read], phase")


def test_a_shared_view_comes_earlier_with_the_first_op_that_needs_it() -> None:
    text = of("pipelined").apply("move <<init full.1>> before <<init full.0>>")
    view = kernel(text).view
    inits = [line.text for line in view.lines if line.text.startswith("init")]
    assert inits == ["init full[1], 1 arrival", "init full[0], 1 arrival", "init full[2], 1 arrival"]


@pytest.mark.parametrize(
    "said",
    [
        "move <<load arg0$|1>> after <<sync>>",
        "replace <<load arg0$|1>>..<<sync>> with:\n  gpu.barrier\n  %fixed = tt.load %x : !tt.ptr<f32>",
    ],
)
def test_arithmetic_without_a_line_comes_behind_the_later_op_that_it_uses(said: str) -> None:
    text = SMALL.apply(said)
    names = ["gpu.barrier", "tt.load", "tt.splat", "arith.addf", "arith.addf", "scf.yield"]
    loop = next(op for op in kernel(text).module.walk() if op.name == "scf.for")
    assert [op.name for op in loop.regions[0].ops][-6:] == names


def test_what_is_hoisted_is_indented_anew_and_named_anew_where_its_name_is_taken() -> None:
    text = SMALL.apply("move <<load arg0$|1>> before <<for i>>")
    assert "\n    %fixed_1 = tt.load %x : !tt.ptr<f32>\n    %sum = scf.for" in text
    assert "%s = tt.splat %fixed_1 :" in text
    assert "\n      %fixed = tt.load %x" in text  # the branch's own


def test_a_new_result_whose_name_is_taken_gets_another() -> None:
    text = SMALL.apply(
        f"insert before <<l .= >>:\n  %v = math.absf %$<<load arg0_ptrs>> : {BLOCKED}\n  %w = math.sqrt %v : {BLOCKED}"
    )
    assert f"%v_1 = math.absf %v : {BLOCKED}" in text
    assert f"%w = math.sqrt %v_1 : {BLOCKED}" in text


def test_a_block_sees_what_an_earlier_block_gave() -> None:
    text = SMALL.apply(
        f"insert after <<load arg0_ptrs>>:\n  %w = math.absf %v : {BLOCKED}\n"
        f"insert after <<sync>>:\n  %z = math.absf %w : {BLOCKED}"
    )
    assert text.count("%w") == 2


def test_what_replaces_lines_gives_their_results_anew_and_the_rest_goes() -> None:
    before = of("pipelined")
    names = ["%acc_36", "%acc_37", "%acc_38"]
    ops = [op for op in before.module.walk() if op.results[:1] and op.results[0] in names]
    block = "".join(f"    {triton_parser.bare(str(op)).strip()}\n" for op in ops)
    text = before.apply(f"replace <<fill = .fill>> with:\n{block}")
    assert triton_parser.bare(text) == triton_parser.bare(before.text)


def test_labels_are_those_of_the_view_whatever_edits_before_moved() -> None:
    text = SMALL.apply("move <<sync>> before <<load arg0_ptrs>>\ninsert after <<sync>>:\n  gpu.barrier")
    assert len(kernel(text).view.lines) == len(SMALL.view.lines) + 1
    assert "{\n      gpu.barrier\n      gpu.barrier\n      %v = " in text


def test_of_several_blocks_only_the_first_comes_before_the_others(ask: Ask) -> None:
    before = kernel(EARLY)
    good = script.parse(before.script("move <<sync>> before <<load arg0|1>>\nmove <<load arg0>> before <<sync|1>>"))
    text = verify.verified(before.module, before.view, good, ask)
    assert "^bb2:  // pred: ^bb0\n    %v = tt.load" in text
    for bad in (
        "move <<load arg0|1>> before <<sync|1>>",
        "insert before <<sync|1>>:\n  tt.store %x, %w : !tt.ptr<f32>",
    ):
        with pytest.raises(BadEdit, match="%w"):
            before.apply(bad)


# Triton's own words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "number", "says"),
    [
        ("delete <<sync>>\ninsert before <<if >>:\n  tt.store %x, %n : !tt.ptr<f32>", 2, "expects different type"),
        ("delete <<sync>>\ninsert before <<if >>:\n  tt.stor %x, %other : !tt.ptr<f32>", 2, "unknown"),
        (
            "replace <<convert|1>> with:\n"
            "  %back = ttg.convert_layout %there : tensor<512xf32, #wide> -> tensor<512xf32, #wide>\ndelete <<sync>>",
            1,
            "of L10",
        ),
        ("set <<load arg0_ptrs>> evictionPolicy = sometimes\ndelete <<sync>>", 1, "evict"),
    ],
)
def test_what_triton_refuses_is_told_of_the_edit_that_caused_it(said: str, number: int, says: str, ask: Ask) -> None:
    with pytest.raises(BadEdit, match="Triton refuses it") as refused:
        verify.verified(SMALL.module, SMALL.view, script.parse(SMALL.script(said)), ask)
    assert refused.value.edit is not None
    assert refused.value.edit.number == number
    assert says in str(refused.value)
