"""Scripts as models write them: understood where they mean one thing, refused by a sentence that says what to write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.ttgir.edits import script
from pgo_agent.sandbox.ttgir.edits.grammar import Anchor
from pgo_agent.sandbox.ttgir.edits.reference import reference
from pgo_agent.sandbox.ttgir.edits.script import BadScript, Delete, Edit, Insert, Move, Replace, SetAttribute

OP = "%x = arith.addi %a, %b : i32"


@pytest.mark.parametrize(
    "said",
    [
        "move L31 before L28",
        "MOVE l31 BEFORE l28",
        "1. move L31 before L28",
        "2) move L31 before L28;",
        "- move L31 before L28.",
        "* **move `L31` before `L28`**",
        "Edit 1: move L31 before L28",
        "move line L31 before line L28",
        "move the op L31 to before L28",
        'move "L31" above [L28]',
        "hoist L31 above L28  # the copy starts earlier than L40",
        "move L31 before L28 // why not",
        "move L31 before L28 (so that the copy starts earlier)",
        "move L31 before L28 — so that the copy starts earlier",
        "Here is the script:\n\n```\nmove L31 before L28\n```\nIt hides latency.",
        "# Edits\n\n```text\n\n1. `move L31 before L28`\n\n```",
        "> move L31 right before L28",
    ],
)
def test_a_move_is_understood_whatever_stands_around_it(said: str) -> None:
    (edit,) = script.parse(said)
    assert isinstance(edit, Move)
    assert (edit.spans, edit.place) == ((("L31", "L31"),), Anchor("before", "L28"))


@pytest.mark.parametrize(
    "said",
    [
        "L31..L33",
        "L31...L33",
        "L31-L33",
        "L31 - L33",
        "L31–L33",  # noqa: RUF001
        "L31 to L33",
        "L31 through L33",
        "L31:L33",
        "L31..33",
        "lines L31 to L33",
        "from L31 to L33",
        "`L31`..`L33`",
    ],
)
def test_a_range_is_understood_however_it_is_written(said: str) -> None:
    (edit,) = script.parse(f"move {said} after L40")
    assert isinstance(edit, Move)
    assert (edit.spans, edit.place) == ((("L31", "L33"),), Anchor("after", "L40"))
    assert script.parse(f"delete {said}")[0] == Delete(1, 1, edit_text(f"delete {said}"), (("L31", "L33"),))


def edit_text(said: str) -> str:
    return script.parse(said)[0].text


def test_lines_can_be_listed() -> None:
    (edit,) = script.parse("remove lines L3, L5 and A7..A9")
    assert isinstance(edit, Delete)
    assert edit.spans == (("L3", "L3"), ("L5", "L5"), ("A7", "A9"))


@pytest.mark.parametrize(
    "said",
    [
        "set L31 pendings = 1",
        "set L31 pendings=1",
        "set L31: pendings = 1",
        "set L31.pendings = 1",
        "set pendings of L31 to 1",
        "set pendings = 1 on L31",
        "set attribute pendings on line L31 to 1",
        "set `L31` `pendings` = `1`",
        "change L31 pendings to 1.",
        "set L31 {pendings = 1}",
        "set L31 pendings := 1  # relax",
    ],
)
def test_an_attribute_is_understood_however_it_is_written(said: str) -> None:
    (edit,) = script.parse(said)
    assert isinstance(edit, SetAttribute)
    assert (edit.label, edit.op, edit.name, edit.value) == ("L31", "", "pendings", "1")


@pytest.mark.parametrize(
    ("said", "op", "name", "value"),
    [
        ("set L31 ttng.warp_group_dot_wait pendings = 1", "ttng.warp_group_dot_wait", "pendings", "1"),
        ("set L35 memdesc_trans order = array<i32: 0, 1>", "memdesc_trans", "order", "array<i32: 0, 1>"),
        ("set L35 isAsync = true", "", "isAsync", "true"),
        ("set L35 alignment = 16 : i32", "", "alignment", "16 : i32"),
        ('set L35 tt.note = "a b"', "", "tt.note", '"a b"'),
    ],
)
def test_ops_and_values_are_taken_as_they_stand(said: str, op: str, name: str, value: str) -> None:
    (edit,) = script.parse(said)
    assert isinstance(edit, SetAttribute)
    assert (edit.op, edit.name, edit.value) == (op, name, value)


@pytest.mark.parametrize(
    "said",
    [
        f"insert after L20:\n    {OP}\n    gpu.barrier",
        f"insert after L20\n{OP}\ngpu.barrier\n",
        f"insert after L20:\n```mlir\n{OP}\n\n  gpu.barrier\n```",
        f"1. Insert after `L20`:\n   ```\n   {OP}\n   gpu.barrier\n   ```\n",
        f"```\ninsert after L20:\n  {OP}\n  gpu.barrier\n```",
        f"insert after L20: {OP}\n  gpu.barrier",
        f"insert below L20 (a sum):\n\n  {OP}\n  gpu.barrier\n\nThat is all.",
    ],
)
def test_a_block_is_understood_in_fences_and_without(said: str) -> None:
    (edit,) = script.parse(said)
    assert isinstance(edit, Insert)
    assert edit.place == Anchor("after", "L20")
    assert [str(op).strip() for op in script.ops(edit.block)] == [OP, "gpu.barrier"]


@pytest.mark.parametrize(
    "header", ["replace L2..L4 with:", "replace lines L2-L4 by", "Replace L2 to L4 with the following:"]
)
def test_what_is_replaced_has_a_block_and_the_next_edit_ends_it(header: str) -> None:
    replace, delete = script.parse(f"{header}\n  {OP}\n  scf.if %c {{\n    gpu.barrier\n  }}\ndelete L9")
    assert isinstance(replace, Replace) and isinstance(delete, Delete)
    assert replace.spans == (("L2", "L4"),)
    assert [op.name for op in script.ops(replace.block)] == ["arith.addi", "scf.if"]
    assert (delete.number, delete.line) == (2, 6)


def test_places_inside_and_behind_of_what_opens_a_block_have_words_of_their_own() -> None:
    places = ["at the start of L29", "at end of L29", "past L29", "after the end of L29"]
    found = [e.place.where for e in script.parse("\n".join(f"move L3 {p}" for p in places)) if isinstance(e, Move)]
    assert found == ["start", "end", "past", "past"]


@pytest.mark.parametrize(
    ("said", "number", "problem"),
    [
        ("move line 31 before L28", 1, "a label such as L31 was expected"),
        ("move the load before the dot", 1, "a label such as L31 was expected"),
        ("move L31", 1, "write where to: move L3 before L2"),
        ("move L31 to L28", 1, "write 'before L28'"),
        ("move L31 to L33", 1, "write where to"),
        ("move L33..L31 after L40", 1, "is no range of lines"),
        ("move L31..A33 after L40", 1, "is no range of lines"),
        ("move L31 before L28..L30", 1, "write where to"),
        ("move L31 before L28; delete L3", 1, "write one edit a line"),
        ("move L31 before L28 and L30 after L4", 1, "write one edit a line"),
        ("delete L4\nswap L3 and L4", 2, "there is no edit that begins with 'swap'"),
        ("L31: set pendings = 1", 1, "there is no edit that begins with 'L31:'"),
        ("First, move L31 before L28", 1, "there is no edit that begins with 'First,'"),
        ("delete L4\nThis frees what L5 needs.", 2, "put what explains an edit behind '#'"),
        ("- L31 wait dots, 1 may fly\n+ L31 wait dots, 0 may fly", 1, "there is no edit that begins with"),
        ('{"edits": ["move L3 before L2"]}', 1, "there is no edit that begins with"),
        ("set L31 pendings", 1, "set L31 pendings = 1"),
        ("set pendings = 1", 1, "set L31 pendings = 1"),
        ("set L31 pendings = 1, num = 2", 1, "write a line for each"),
        ("set L31 pendings = 1 and L32 pendings = 2", 1, "write a line for each"),
        ("insert L20:\n  gpu.barrier", 1, "insert before L3: or insert after L3:"),
        ("insert after L20:", 1, "it has no block"),
        ("delete L4\ninsert after L20:\nmove L3 before L2", 2, "it has no block"),
        ("insert after L20:\nacc += dot(a, b)", 1, "it has no block"),
        ("insert after L20:\n```\nacc += dot(a, b)\n```", 1, "its block, line 1: an op was expected"),
        ("insert after L20:\n```\ngpu.barrier\n", 1, "fence of its block is never closed"),
        ("insert after L20:\n  gpu.barrier {", 1, "its block"),
        ("insert after L20:\n  gpu.barrier\n  }\n  tt.func private @f() {", 1, "its brackets do not match"),
        ("replace L2..L4", 1, "it has no block"),
        ("replace L2 with L3", 1, "is more than the edit needs"),
        ("gpu.barrier", 1, "TTGIR stands outside of a block"),
        ("I would rather change nothing.", 1, "the script holds no edit"),
        ("delete", 1, "a label such as L31 was expected"),
        ("delete L4 if it is unused by L5", 1, "write one edit a line"),
    ],
)
def test_what_is_not_clear_is_refused_by_a_sentence_that_names_the_edit(said: str, number: int, problem: str) -> None:
    with pytest.raises(BadScript) as refused:
        script.parse(said)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"edit {number} (line ")
    assert refused.value.edit.text in said


def test_an_empty_script_has_no_edits() -> None:
    assert script.parse("") == script.parse("\n```\n```\n# nothing to do\n") == []


def test_the_reference_is_short_and_its_examples_are_scripts() -> None:
    lines = reference().splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 120


WORDS = [
    "move",
    "set",
    "delete",
    "insert",
    "replace",
    "swap",
    "L3",
    "L4..L6",
    "l7-9",
    "A2",
    "before",
    "after",
    "at end of",
]
WORDS += [
    "with:",
    ":",
    "=",
    "pendings",
    "1",
    "to",
    "and",
    ",",
    "`",
    "```",
    "#",
    "{",
    "}",
    "%x",
    "gpu.barrier",
    OP,
    "1.",
    "-",
]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=14), st.sampled_from([" ", "\n", ""]))
def test_any_text_is_read_or_refused_with_its_edit(words: list[str], between: str) -> None:
    try:
        found = script.parse(between.join(words))
    except BadScript as e:
        assert isinstance(e.edit, Edit)
        assert e.problem
    else:
        assert [e.number for e in found] == list(range(1, len(found) + 1))
