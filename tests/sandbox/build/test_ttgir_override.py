"""build/ttgir_override.py: a TTGIR text takes the place of one kernel's own, where it says so and nothing of the launch
changes."""

import re
from typing import Any

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate import edit_kind
from pgo_agent.sandbox.gate.evidence import Evidence, side
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

from tests.sandbox.conftest import ADD

CASES = {"SMALL": ["even", "ragged"]}  # two texts each: `ragged` is not divisible by 16


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Builder, Built]:
    builder = Builder(
        target.read(ADD), devices.find("h200"), box.choose(), ContentStore(tmp_path_factory.mktemp("shelf"))
    )
    built = builder.build(builder.target.source, CASES, None)
    assert built.ok and not built.failures, built.failures
    return builder, built


def own(workshop: tuple[Builder, Built]) -> str:
    """The text of the first kernel of `even`, which says what it is."""
    builder, built = workshop
    (key,) = built.choices["SMALL/even"][0].kernels
    files = builder.contents.manifest(built.bundle)["kernels"][key]["files"]
    return f"// replaces: {key[:16]}\n{builder.contents.get(files['ttgir'], 'ttgir').decode()}"


def put(workshop: tuple[Builder, Built], text: str) -> Built:
    builder, _ = workshop
    return builder.build(builder.target.source, CASES, None, ttgir=text)


def inspected(workshop: tuple[Builder, Built], built: Built) -> Evidence:
    contents = workshop[0].contents
    ours, theirs = (side(contents, contents.manifest(b.bundle), b.replaced) for b in (built, workshop[1]))
    return edit_kind.stage(ours, theirs)


def test_the_unmodified_text_gives_the_same_code(workshop: tuple[Builder, Built]) -> None:
    built = put(workshop, own(workshop))
    assert built.replaced["code_id"] == built.replaced["new_code_id"]
    assert built.choices["SMALL/even"][0].plan_id == workshop[1].choices["SMALL/even"][0].plan_id
    assert inspected(workshop, built).verdict == Verdict.NO_CHANGE


def test_an_edited_text_is_what_gets_compiled(workshop: tuple[Builder, Built]) -> None:
    built = put(workshop, own(workshop).replace("arith.addf", "arith.subf"))
    assert built.ok
    assert built.replaced["code_id"] != built.replaced["new_code_id"]
    assert inspected(workshop, built).found["edit"] == "arithmetic"


def test_an_edit_that_leaves_the_arithmetic_alone_is_schedule_only(workshop: tuple[Builder, Built]) -> None:
    text = re.sub(r"(tt\.load %\w+, %\w+) :", r"\1 evictionPolicy = evict_first :", own(workshop), count=1)
    built = put(workshop, text)
    assert built.ok, built.failures
    assert inspected(workshop, built).found["edit"] == "schedule-only"
    without = workshop[0].contents.manifest(built.replaced["bundle"])["plans"]["SMALL/even"]
    assert without == {o.label: _plan(workshop, o.label) for o in built.choices["SMALL/even"]}


def test_cases_that_are_built_later_keep_their_own_kernel_where_they_do_not_launch_the_replaced_one(
    workshop: tuple[Builder, Built],
) -> None:
    (builder, before), text = workshop, own(workshop).replace("arith.addf", "arith.subf")
    key = put(workshop, text).replaced["key"]
    even, ragged = (
        builder.build(builder.target.source, {"SMALL": [case]}, None, ttgir=text, replaced=key)
        for case in ("even", "ragged")
    )
    assert even.replaced["key"] == key and not ragged.replaced
    assert ragged.choices["SMALL/ragged"] == before.choices["SMALL/ragged"]


@pytest.mark.slow
def test_findings_name_the_lines_of_the_text_that_was_given(workshop: tuple[Builder, Built]) -> None:
    text = own(workshop).replace("arith.addf", "arith.subf")
    built = put(workshop, text)
    kernel = workshop[0].contents.manifest(built.bundle)["kernels"][built.replaced["by"]]
    assert workshop[0].contents.get(kernel["files"]["ttgir"], "ttgir").decode().splitlines() == text.splitlines()


@pytest.mark.slow
def test_a_text_that_is_written_in_another_way_is_printed_anew(workshop: tuple[Builder, Built]) -> None:
    text = own(workshop).replace("arith.addf", "arith.subf").replace("    tt.return", "tt.return // the end\n\n")
    built = put(workshop, text.replace("%c1024_i32 =", "%c1024_i32\n  ="))
    assert built.ok, built.failures
    assert inspected(workshop, built).found["edit"] == "arithmetic"


def test_the_case_that_launches_it_keeps_no_other_plan_and_the_other_case_keeps_all(
    workshop: tuple[Builder, Built],
) -> None:
    built = put(workshop, own(workshop).replace("arith.addf", "arith.subf"))
    assert {case: len(options) for case, options in built.choices.items()} == {"SMALL/even": 1, "SMALL/ragged": 2}


def test_a_text_that_could_be_for_two_kernels_is_asked_which(workshop: tuple[Builder, Built]) -> None:
    _, text = own(workshop).split("\n", 1)
    (failure,) = put(workshop, text).failures
    assert failure.kind == "rejected"
    assert "2 kernels have its name and arguments" in failure.message
    assert "// replaces: " in failure.message and "even at BLOCK=1024" in failure.message


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("@_add", "@_sum", "the kernel's name must stay"),
        ("{tt.divisibility = 16 : i32}", "{tt.divisibility = 8 : i32}", "its arguments must stay"),
        pytest.param("%arg3: i32", "%arg3: i64", "line ", marks=pytest.mark.slow),  # MLIR: it is used as i32
        pytest.param('"ttg.num-ctas" = 1', '"ttg.num-ctas" = 2', "", marks=pytest.mark.slow),
        ("// replaces: ", "// replaces: 0123456789", "the launcher launches no kernel 0123456789"),
        pytest.param("tt.return", "tt.retur", "custom op 'tt.retur' is unknown", marks=pytest.mark.slow),
    ],
)
def test_what_the_launch_depends_on_must_stay(workshop: tuple[Builder, Built], old: str, new: str, says: str) -> None:
    built = put(workshop, own(workshop).replace(old, new, 1))
    assert not built.ok
    assert says in built.failures[0].message


@pytest.mark.slow
def test_an_error_names_the_line_of_the_text(workshop: tuple[Builder, Built]) -> None:
    text = own(workshop).replace("tt.return", "tt.retur")
    (failure,) = put(workshop, text).failures
    assert failure.line is not None
    assert "tt.retur" in text.splitlines()[failure.line - 1]


@pytest.mark.slow
def test_a_held_out_case_is_not_named_to_a_proposer(workshop: tuple[Builder, Built]) -> None:
    builder, _ = workshop
    text = own(workshop).replace("// replaces: ", "// replaces: 0123456789")
    wanted: dict[str, Any] = {"SMALL": ["even"], "HELD_OUT": None}
    (failure,) = builder.build(builder.target.source, wanted, None, ttgir=text).failures
    assert "a held-out case" in failure.message and "odd" not in failure.message


def _plan(workshop: tuple[Builder, Built], label: str) -> Any:
    """A plan of the kernel as it stands."""
    return workshop[0].contents.manifest(workshop[1].bundle)["plans"]["SMALL/even"][label]
