"""The corpora as texts: each entry says what it is, fits its target, and is a candidate of its own. None is run."""

import ast
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pgo_agent.evals.gate import entries, ttgir_edits
from pgo_agent.evals.gate.entries import Entry
from pgo_agent.evals.gate.ttgir_edits import BrokenCorpus
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.target import Target

from tests.conftest import ROOT

IDEAS = range(1, 49)  # numbers of the table of known reward hacks
CORPUS = entries.load()
IMPOSSIBLE = tomllib.loads((entries.CORPUS / "impossible.toml").read_text())["impossible"]  # to be tried at all


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus with the real targets and nothing else."""
    for group in entries.GROUPS:
        (tmp_path / group).mkdir()
    (tmp_path / "targets").symlink_to(entries.CORPUS / "targets")
    return tmp_path


def one(corpus: Path, text: str, group: str = "wrong", suffix: str = ".edit") -> Entry:
    (corpus / group / f"it{suffix}").write_text(text)
    (found,) = entries.load(corpus)
    return found


def nothing() -> str:
    raise AssertionError("no TTGIR is asked for")


def own_ttgir(of: Target) -> str:
    return ttgir_edits.own(Builder(of, devices.find("h200"), box.choose(), ContentStore(of.path.parent / "shelf")))


HEAD = "# does: errs\n# target: rms_norm\n# stage: results\n"


def edit(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


# the shipped corpora --------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_entry_fits_its_target_and_no_two_are_the_same_candidate(tmp_path: Path) -> None:
    targets = {n: entries.place(n, tmp_path) for n in {e.target for e in CORPUS}}
    seen: dict[str, str] = {t.source: n for n, t in targets.items()}
    for e in CORPUS:
        if e.stages == ("read",):
            with pytest.raises(UsageFault):
                entries.given_file(e, targets[e.target], tmp_path, nothing)
        elif e.suffix != ".ttgir-edit":
            source = entries.given_file(e, targets[e.target], tmp_path, nothing).source
            assert source not in seen, f"{e.name} is {seen[source]}"
            seen[source] = e.name


@pytest.mark.slow
def test_every_edit_of_ttgir_fits_what_its_target_builds_and_no_two_are_the_same(tmp_path: Path) -> None:
    edits = [e for e in CORPUS if e.suffix == ".ttgir-edit"]
    targets = {n: entries.place(n, tmp_path) for n in sorted({e.target for e in edits})}
    with ThreadPoolExecutor(2) as pool:
        own = dict(zip(targets, pool.map(own_ttgir, targets.values()), strict=True))
    texts = [entries.given_file(e, targets[e.target], tmp_path, lambda of=e.target: own[of]).source for e in edits]
    assert len(set(texts)) == len(texts) > 0


def test_there_are_at_least_as_many_honest_entries_as_bad_ones() -> None:
    assert 2 * sum(e.honest for e in CORPUS) >= len(CORPUS)


def test_every_known_cheat_is_tried_or_said_to_be_impossible() -> None:
    tried = {i for e in CORPUS for i in e.ideas}
    listed = {i for row in IMPOSSIBLE for i in row["ideas"]}
    assert tried | listed == set(IDEAS)


@pytest.mark.parametrize("row", IMPOSSIBLE, ids=lambda row: str(row["ideas"]))
def test_what_is_impossible_names_tests_that_there_are(row: dict[str, list[str]]) -> None:
    assert row["idea"] and row["why"] and row["shown_by"]
    for node in row["shown_by"]:
        file, name = node.split("::")
        defined = {n.name for n in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(n, ast.FunctionDef)}
        assert name in defined, node


def test_every_file_of_a_group_is_an_entry() -> None:
    files = {f"{g}/{f.stem}" for g in entries.GROUPS for f in (entries.CORPUS / g).iterdir() if f.is_file()}
    assert files == {re.sub(r"\[.*", "", e.name) for e in CORPUS}


# how they are read ----------------------------------------------------------------------------------------------------


def test_an_edit_that_no_longer_fits_is_no_refusal_but_an_error(corpus: Path, tmp_path: Path) -> None:
    entry = one(corpus, HEAD + edit("    y = nothing of the kind", "    y = x"))
    with pytest.raises(BrokenCorpus, match="wrong/it does not fit rms_norm any more: the SEARCH text of edit 1"):
        entries.given_file(entry, entries.place("rms_norm", tmp_path), tmp_path, nothing)


def test_an_edit_that_changes_nothing_is_an_error(corpus: Path, tmp_path: Path) -> None:
    entry = one(corpus, HEAD + edit("    return y", "    return  y"))
    with pytest.raises(BrokenCorpus, match="changes nothing"):
        entries.given_file(entry, entries.place("rms_norm", tmp_path), tmp_path, nothing)


@pytest.mark.parametrize(
    ("head", "group"),
    [
        ("# target: rms_norm\n# stage: results\n", "wrong"),
        ("# does: errs\n# stage: results\n", "wrong"),
        ("# does: errs\n# target: rms_norm\n", "wrong"),
        ("# does: errs\n# target: rms_norm\n# stage: somewhere\n", "wrong"),
        ("# does: right\n# target: rms_norm\n# stage: results\n", "honest"),
        (HEAD + "# colour: red\n", "wrong"),
        (HEAD + "# a remark\n", "wrong"),
        (HEAD + "# vary NOWHERE: 1 | 2\n", "wrong"),
        ("# does: errs\n# of: honest/nothing\n# stage: results\n", "wrong"),
    ],
)
def test_a_head_that_says_nothing_clear_is_an_error(corpus: Path, head: str, group: str) -> None:
    with pytest.raises(BrokenCorpus, match=f"{group}/it"):
        one(corpus, head + edit("    return y", "    return x"), group)


def test_varied_values_are_entries_of_their_own(corpus: Path) -> None:
    (corpus / "wrong" / "it.edit").write_text(
        HEAD + "# vary ANSWER: x | w\n" + edit("    return y", "    return ANSWER")
    )
    found = entries.load(corpus)
    assert [e.name for e in found] == ["wrong/it[x]", "wrong/it[w]"]
    assert ["return x" in e.text for e in found] == [True, False]


def test_ttgir_is_an_entry_whose_own_comments_stay(corpus: Path) -> None:
    text = HEAD.replace("#", "//") + "// replaces: _rms_norm\nmodule {}\n"
    entry = one(corpus, text, "races", ".ttgir")
    assert (entry.stages, entry.text) == (("results",), "// replaces: _rms_norm\nmodule {}\n")


TTGIR = "%1 = ttg.async_wait %0 {num = 2 : i32}\n%2 = ttg.async_wait {num = 0 : i32}\n"


def match(old: str, new: str, times: str = "") -> str:
    return f"<<<<<<< MATCH{times}\n{old}\n=======\n{new}>>>>>>> REPLACE\n"


def test_edits_of_ttgir_take_what_was_matched_with_them_and_follow_one_another() -> None:
    edits = match(r"(num) = 2", "\\1 = 4\n") + match(r"^(%\d) = ttg\.async_wait (.*)", "\\1 = \\2\n", " 2")
    assert ttgir_edits.edited("it", edits, TTGIR) == "%1 = %0 {num = 4 : i32}\n%2 = {num = 0 : i32}\n"


def test_an_edit_of_ttgir_may_take_a_line_away() -> None:
    assert ttgir_edits.edited("it", match(r"^.*num = 2.*\n", ""), TTGIR) == TTGIR.split("\n", 1)[1]


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (match("num = 3", "num = 4\n"), "edit 1 matches 0 times, not 1"),
        (match("num = 2", "num = 4\n") + match("num = 2", "\n"), "edit 2 matches 0 times, not 1"),
        (match("async_wait", "wait\n"), "matches 2 times, not 1"),
        (match("async_wait", "wait\n", " 3"), "matches 2 times, not 3"),
        (match("num = 2", "num = 2\n"), "edit 1 changes nothing"),
        (match("(num", "\n"), "is no regular expression"),
        (match("num = 2", "\\1\n"), "is no replacement"),
        ("num = 2\n", "write each edit as"),
        (match("num = 2", "num = 4\n") + "and so on\n", "write each edit as"),
    ],
)
def test_an_edit_of_ttgir_that_does_not_fit_is_an_error(edits: str, said: str) -> None:
    with pytest.raises(BrokenCorpus, match=f"^it: .*{re.escape(said)}"):
        ttgir_edits.edited("it", edits, TTGIR)


@pytest.mark.slow
def test_a_target_of_several_kernels_has_no_ttgir_of_its_own(tmp_path: Path) -> None:
    found = entries.place("softmax", tmp_path)
    path = tmp_path / "two.py"
    path.write_text(found.source + "\nCASES = CASES | {'other': SMALL[next(iter(SMALL))]}\n")
    with pytest.raises(BrokenCorpus, match="launches 2 kernels, not one"):
        own_ttgir(target.read(path))


def test_a_shipped_kernel_takes_the_corpus_cases_and_keeps_the_rest(tmp_path: Path) -> None:
    found = entries.place("gemm", tmp_path)
    shipped = (ROOT / "kernels" / "gemm.py").read_text()
    kept = shipped[shipped.index("@triton.autotune") : shipped.index("def reference")]
    assert kept.split("# ---")[0] in found.source and found.source.count("CONFIGS = [") == 1
    assert '"8k"' not in found.source and "M=2048" in found.source


def test_a_target_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BrokenCorpus, match="no target is called nothing"):
        entries.place("nothing", tmp_path)
