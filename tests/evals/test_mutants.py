"""`pgo-agent eval mutants`: which mutants there are, what their results mean, and a sample that meets the real gate."""

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.gate import entries
from pgo_agent.evals.mutants import bits, generate, outcomes, report, run, source, ttgir
from pgo_agent.evals.mutants.generate import Base, Mutant
from pgo_agent.evals.mutants.outcomes import Explained
from pgo_agent.evals.mutants.results import Results
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.ttgir import reader

from tests.evals.rows import kept_schema

NO_GPU = RunSettings(judge="cpu", device="h200")
PLACES = [(f.stem, f.parents[1]) for c in (entries.CORPUS, generate.OWN) for f in sorted((c / "targets").glob("*.py"))]


@pytest.fixture
def addition(tmp_path: Path) -> Base:
    """Holds out a size of 20 blocks, not of 196: in the interpreter that is most of what a mutant takes."""
    text = (generate.OWN / "targets" / "vector_add.py").read_text().replace("n=99991", "n=9991")
    (tmp_path / "corpus" / "targets").mkdir(parents=True)
    (tmp_path / "corpus" / "targets" / "vector_add.py").write_text(text)
    return Base("vector_add", "vector_add", tmp_path / "corpus", text, ".py")


def named(base: Base, after: str, operator: str) -> Mutant:
    return next(m for m in base.mutants if m.change and (m.change.after, m.change.operator) == (after, operator))


# which there are ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "corpus"), PLACES, ids=[n for n, _ in PLACES])
def test_every_mutant_of_a_target_is_a_file_of_its_own_with_the_same_contract(
    name: str, corpus: Path, tmp_path: Path
) -> None:
    text = entries.place(name, tmp_path, corpus).source
    made = source.mutants(text)
    assert len({m.text for m in made} | {text}) == len({m.name for m in made}) + 1 == len(made) + 1 > 20
    for m in made[:: max(1, len(made) // 8)]:
        ast.parse(m.text)
        assert target.same_contract(m.text, text)


def test_each_kind_of_change_is_made_somewhere(tmp_path: Path) -> None:
    some = [(n, c) for n, c in PLACES if n in ("attention_specialized", "gemm", "softmax", "locked_sum")]
    made = {m.operator for n, c in some for m in source.mutants(entries.place(n, tmp_path, c).source)}
    assert made == set(source.OPERATORS)


def test_a_mask_a_bound_and_an_offset_are_among_what_changes(addition: Base) -> None:
    made = {(m.change.operator, m.change.after) for m in addition.mutants if m.change}
    assert {
        ("mask", "tl.store(OUT + at, x + y)"),
        ("mask", "x = tl.load(X + at, mask=at < n)"),
        ("comparison", "tl.store(OUT + at, x + y, mask=at <= n)"),
        ("operand", "at = tl.arange(0, BLOCK)"),
        ("arithmetic", "tl.store(OUT + at, x - y, mask=at < n)"),
        ("grid", "_add[(((n) // (512)),)](x, y, out, n, BLOCK=512, num_warps=4)"),
        ("tile", "_add[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=256, num_warps=4)"),
        ("arguments", "_add[(triton.cdiv(n, 512),)](x, out, y, n, BLOCK=512, num_warps=4)"),
    } <= made


RING = """module {
  tt.func public @k(%arg0: i32, %arg1: !ttg.async.token) {
    %c0_i32 = arith.constant 0 : i32
    %0 = ttg.async_commit_group tokens %arg1
    %1 = ttg.async_wait %0 {num = 2 : i32}
    ttng.init_barrier %b, 2 : !ttg.memdesc<1xi64, #s, #smem, mutable>
    ttng.wait_barrier %b, %c0_i32, %p : !ttg.memdesc<1xi64, #s, #smem, mutable>
    ttng.fence_async_shared {bCluster = false}
    %2 = arith.cmpi slt, %arg0, %c0_i32 : i32
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("operator", "line"),
    [
        ("wait", "    %1 = ttg.async_wait %0 {num = 4 : i32}"),
        ("commit", "    %1 = ttg.async_wait %arg1 {num = 2 : i32}"),
        ("count", "    ttng.init_barrier %b, 1 : !ttg.memdesc<1xi64, #s, #smem, mutable>"),
        ("phase", "    %other = arith.xori %c0_i32, %turned : i32"),
        ("comparison", "    %2 = arith.cmpi sle, %arg0, %c0_i32 : i32"),
    ],
)
def test_what_keeps_a_kernel_in_step_is_changed_in_its_ttgir(operator: str, line: str) -> None:
    made = [m for m in ttgir.mutants(RING) if m.operator == operator]
    assert any(line in m.text.splitlines() and line not in RING.splitlines() for m in made)
    for m in made:
        reader.parse(m.text)


def test_waits_barriers_and_fences_are_left_out_in_turn() -> None:
    gone = [set(RING.splitlines()) - set(m.text.splitlines()) for m in ttgir.mutants(RING) if m.operator == "dropped"]
    assert [next(iter(lines)).split()[0] for lines in gone] == ["ttng.wait_barrier", "ttng.fence_async_shared"]


def test_a_sample_takes_as_many_of_each_base_and_follows_from_its_seed(addition: Base) -> None:
    other = Base("other", "vector_add", generate.OWN, addition.text, ".py")
    drawn = [generate.chosen([addition, other], None, (), 10, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [m.base.name for m in drawn[0]].count("other") == 5


def test_an_operator_that_there_is_not_is_a_mistake_of_usage(addition: Base) -> None:
    with pytest.raises(UsageFault, match="no operator is called nothing"):
        generate.chosen([addition], None, ("nothing",), None, 0)


# what meets the gate --------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_sample_of_mutants_is_caught_and_what_is_known_is_not_judged_again(addition: Base, tmp_path: Path) -> None:
    bad = generate.chosen([addition], None, ("arithmetic", "operand", "statement"), 8, 7)
    kept = Results(tmp_path / "results.jsonl")
    run.run(bad, NO_GPU, kept, lambda _: None)
    found = report.of_rows(kept.rows)
    for line in (*kept.rows.values(), found.summary()):
        jsonschema.validate(line, kept_schema("eval-mutants"))
    assert found.unsound == [] and found.summary()["fates"]["caught"] == len(bad) == 8, found.summary()

    again: list[Any] = []
    run.run(bad, NO_GPU, Results(tmp_path / "results.jsonl"), again.append, again.append)
    assert again == []


@pytest.mark.long
def test_a_lock_that_locks_nothing_is_not_called_right_where_programs_run_one_after_another(tmp_path: Path) -> None:
    text = entries.place("locked_sum", tmp_path, generate.OWN).source
    base = Base("locked_sum", "locked_sum", generate.OWN, text, ".py")
    kept = Results(None)
    run.run([next(m for m in base.mutants if m.change and m.change.operator == "sync")], NO_GPU, kept, lambda _: None)
    found = report.of_rows(kept.rows)
    assert found.summary()["fates"]["caught"] == 1, found.summary()


@pytest.mark.long
def test_bits_tell_a_kernel_of_other_results_from_one_of_the_same(addition: Base, tmp_path: Path) -> None:
    place = entries.place("vector_add", tmp_path, generate.OWN).path
    turned = addition.text.replace("x + y, mask", "y + x, mask")
    other = addition.text.replace("x + y, mask", "x + y + 0.001, mask")
    for text, equal in ((turned, True), (other, False)):
        folder = tmp_path / str(equal)
        folder.mkdir()
        found = bits.compare(place, addition.text, text, NO_GPU, folder)
        assert (found["equal"] == found["of"]) is equal and found["of"] > 18, found


def test_a_name_that_no_base_has_is_a_mistake_of_usage(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pgo_agent.agent.cli.main", "eval", "mutants", "nothing/like/it"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "nothing that is mutated is called nothing/like/it" in done.stderr


# what results mean ----------------------------------------------------------------------------------------------------

ROW = {
    "what": "mutant", "mutant": "b:mask@1.1", "base": "b", "operator": "mask", "before": "x", "after": "y",
    "verdict": "checked", "stage": "interpreter", "reason": "", "plans": "other", "bits": None, "measured": False,
    "seconds": 1.0,
}  # fmt: skip
ITSELF = ROW | {"mutant": "b:itself", "operator": "", "plans": "own"}
KNOWN = [Explained(("b",), "mask", ("y",), "equal", "a reason")]
ON_GPU = [Explained(("*",), "mask", (), "gpu", "a reason")]
DIFFER = {"bits": {"equal": 1, "of": 2, "differ": ["even, seed 0"]}}


@pytest.mark.parametrize(
    ("row", "known", "fate"),
    [
        ({}, [], "survived"),
        ({"verdict": "no_change"}, [], "survived"),
        ({"verdict": "wrong"}, [], "caught"),
        ({"verdict": "wrong"}, KNOWN, "caught"),
        ({"plans": "own"}, [], "same code"),
        ({"plans": ""}, [], "survived"),
        ({"verdict": "built"}, [], "not decided"),
        ({"verdict": "slower", "measured": True, "stage": "time"}, [], "survived"),
        ({"verdict": "undecided", "measured": True, "stage": "time"}, [], "survived"),
        ({"verdict": "undecided", "measured": True, "stage": "race"}, [], "not decided"),
        ({}, KNOWN, "explained"),
        (DIFFER, KNOWN, "survived"),
        ({"after": "z"}, KNOWN, "survived"),
        ({"base": "c"}, KNOWN, "survived"),
        ({"before": "another"}, [replace(KNOWN[0], before=("x",))], "survived"),
        ({}, ON_GPU, "explained"),
        ({"verdict": "accepted", "measured": True, "stage": "confirm"}, ON_GPU, "survived"),
    ],
)
def test_a_mutant_is_called(row: dict[str, Any], known: list[Explained], fate: str) -> None:
    assert outcomes.fate(ROW | row, ITSELF, known) == fate


def test_a_survivor_a_refused_base_and_a_refused_equal_one_end_with_one() -> None:
    assert outcomes.unsound(ITSELF | {"verdict": "wrong"}, [])
    assert outcomes.unsound(ROW | {"verdict": "wrong"}, KNOWN) and not outcomes.unsound(ROW | {"verdict": "wrong"}, [])
    caught = {"b:itself": ITSELF, "b:mask@1.1": ROW | {"verdict": "wrong"}}
    assert report.of_rows(caught).code == 0
    assert report.of_rows(caught | {"b:mask@1.2": ROW | {"mutant": "b:mask@1.2"}}).code == 1
    assert report.of_rows(caught | {"b:itself": ITSELF | {"verdict": "race"}}).code == 1


def test_a_result_that_was_cut_off_is_judged_anew(addition: Base, tmp_path: Path) -> None:
    file, m = tmp_path / "results.jsonl", addition.mutants[0]
    whole = json.dumps(ROW | {"mutant": m.name, "digest": m.digest})
    file.write_text(f"{whole}\n{whole[:40]}")
    assert Results(file).known(m) and file.read_text() == f"{whole}\n"
    file.write_text(whole.replace(m.digest, "0" * 16) + "\n")
    assert not Results(file).known(m)


@pytest.mark.long
def test_every_explanation_is_clear_and_is_of_a_mutant_that_there_is(tmp_path: Path) -> None:
    known = [e for e in outcomes.explained() if e.after]

    def named(name: str, _: str) -> bool:
        return any(e.of(name) for e in known)

    bases = [*generate.targets(tmp_path, named), *generate.honest(tmp_path, named), *generate.bases("ttgir/", NO_GPU)]
    made = {b.name: {(m.change.operator, m.change.after) for m in b.mutants if m.change} for b in bases}
    for e in known:
        own = set().union(*(changes for name, changes in made.items() if e.of(name)))
        assert all((e.operator, after) in own for after in e.after), e
    assert all(e.operator in generate.OPERATORS for e in outcomes.explained())
