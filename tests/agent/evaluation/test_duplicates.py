"""Code that is known is told before any GPU time; refusals of former runs hold for the very same code alone."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.evaluation import duplicates, screen
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.ttgir import normalize, reader

from tests.agent import searching
from tests.agent.searching import SOURCE, adding

FIRST = adding("tl.load(x_ptr + at, mask=inside) - tl.load(y_ptr + at, mask=inside)")
RENAMED = FIRST.replace("_add", "_difference").replace("inside", "within").replace("    z = ", "    # here\n    z = ")
OTHER = adding("tl.load(x_ptr + at, mask=inside) * tl.load(y_ptr + at, mask=inside)")
PLUS = SOURCE.replace("_add", "_plus")
Built = Callable[[Context, str], Candidate]  # what a text was built to


@dataclass(frozen=True)
class Builds:
    """A workspace whose content store holds the first build of each text, and what the record says of them."""

    root: Path
    of: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def builds(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Builds:
    root = tmp_path_factory.mktemp("novelty") / "w"
    shutil.copytree(prepared, root, symlinks=True)
    store = Store(root)
    ctx = searching.begin(store, "builds-1")
    made = {s: searching.built(ctx, s).build for s in (FIRST, RENAMED, OTHER, PLUS)}
    store.db.execute("DELETE FROM candidates")
    store.close()
    return Builds(root, made)


@pytest.fixture
def store(builds: Builds, tmp_path: Path) -> Iterator[Store]:
    """A copy of it, as each test has its own former runs."""
    shutil.copytree(builds.root, tmp_path / "w", symlinks=True)
    opened = Store(tmp_path / "w")
    yield opened
    opened.close()


@pytest.fixture
def before(store: Store) -> Context:
    return searching.begin(store, "before-1")


@pytest.fixture
def built(builds: Builds) -> Built:
    def of(ctx: Context, source: str) -> Candidate:
        (c,) = searching.propose(ctx, source)
        ctx.store.set_built(ctx.run.id, c.id, builds.of[source])
        return ctx.store.candidate(ctx.run.id, c.id)

    return of


def now(ctx: Context, source: str = SOURCE) -> Context:
    return searching.begin(ctx.store, "now-1", source)


def refuse(ctx: Context, c: Candidate, verdict: Verdict = Verdict.WRONG, stage: str = "numerics") -> Candidate:
    searching.judge(ctx, c, verdict, stage)
    return c


# names ----------------------------------------------------------------------------------------------------------------


def test_the_same_program_under_other_names_is_the_code_of_the_first(before: Context, built: Built) -> None:
    first, other = built(before, FIRST), built(before, RENAMED)
    judged = screen.verdict(before, other)
    assert judged is not None
    assert (judged.verdict, judged.reason) == (Verdict.NO_CHANGE, f"its code is that of candidate {first.id[:8]}")


def test_it_names_the_verdict_of_the_first_and_of_one_that_nothing_checked_it_takes_none(
    before: Context, built: Built
) -> None:
    first = refuse(before, built(before, FIRST), Verdict.SLOWER)
    judged = screen.verdict(before, built(before, RENAMED))
    assert judged is not None and judged.reason.endswith(", which is slower")
    assert judged.evidence[duplicates.SAME_AS] == first.id
    after = searching.begin(before.store, "after-1")
    refuse(after, built(after, FIRST), Verdict.BUILT, "interpreter")
    assert screen.verdict(after, built(after, RENAMED)) is None


def test_builds_that_differ_in_names_alone_have_one_ir_and_one_nameless_code(before: Context, built: Built) -> None:
    """The code is what is compared: it stands for the IR, and for the options that no IR holds."""
    found = [built(before, s) for s in (FIRST, RENAMED, OTHER)]
    irs, codes, named = ([f(before, c) for c in found] for f in (_irs, _codes, _named))
    assert irs[0] == irs[1] != irs[2] and codes[0] == codes[1] != codes[2]
    assert named[0] != named[1]


def _kernels(ctx: Context, c: Candidate, suffix: str) -> list[bytes]:
    kernels = ctx.store.contents.manifest(c.build.bundle)["kernels"].values()
    return [ctx.store.contents.get(k["files"][suffix], suffix) for k in kernels]


def _irs(ctx: Context, c: Candidate) -> set[str]:
    texts = (t.decode().replace("_difference", "_add") for t in _kernels(ctx, c, "ttgir"))
    return {normalize.digest(reader.parse(t)) for t in texts}


def _codes(ctx: Context, c: Candidate) -> set[str]:
    return {elf.code_id(image, named=False) for image in _kernels(ctx, c, "cubin")}


def _named(ctx: Context, c: Candidate) -> set[str]:
    return {elf.code_id(image) for image in _kernels(ctx, c, "cubin")}


def test_the_kernel_as_shipped_under_another_name_is_known_code(before: Context, built: Built) -> None:
    judged = screen.verdict(before, built(before, PLUS))
    assert judged is not None and judged.verdict == Verdict.NO_CHANGE
    assert "its code is that of configurations which are known" in judged.reason


def test_another_program_is_new(before: Context, built: Built) -> None:
    built(before, FIRST)
    assert screen.verdict(before, built(before, OTHER)) is None


# refusals of former runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.RACE])
def test_what_a_gpu_refused_of_the_same_target_is_refused_with_where_it_came_from(
    before: Context, built: Built, verdict: Verdict
) -> None:
    c = refuse(before, built(before, FIRST), verdict)
    ctx = now(before)
    judged = screen.verdict(ctx, built(ctx, RENAMED))
    said = f"its code is that of candidate {c.id[:8]} of run {before.run.id}, which was {verdict} there (numerics): why"
    assert judged == Judgement(verdict, duplicates.STAGE, judged.why) and judged.reason == said


@pytest.mark.parametrize(
    ("verdict", "stage"),
    [
        (Verdict.ACCEPTED, "confirm"),
        (Verdict.SLOWER, "time"),
        (Verdict.NO_CHANGE, "build"),
        (Verdict.CRASHED, "smoke"),
        (Verdict.TIMEOUT, "smoke"),
        (Verdict.WRONG, "interpreter"),
        (Verdict.WRONG, duplicates.STAGE),
    ],
)
def test_nothing_else_is_taken_from_memory(before: Context, built: Built, verdict: Verdict, stage: str) -> None:
    """What was right or slow is measured anew; what a GPU did not see, or a machine's bad day, is judged anew."""
    refuse(before, built(before, FIRST), verdict, stage)
    ctx = now(before)
    assert screen.verdict(ctx, built(ctx, RENAMED)) is None


def test_other_code_is_not_refused_for_that(before: Context, built: Built) -> None:
    refuse(before, built(before, FIRST))
    ctx = now(before)
    assert screen.verdict(ctx, built(ctx, OTHER)) is None


def by_another_triton(ctx: Context, c: Candidate) -> None:
    """Says of a candidate's bundle that another version compiled it."""
    manifest = json.loads(
        json.dumps(ctx.store.contents.manifest(c.build.bundle)).replace('"triton": "3', '"triton": "2')
    )
    ctx.store.set_built(ctx.run.id, c.id, replace(c.build, bundle=ctx.store.contents.put_bundle(manifest)))


@pytest.mark.parametrize("change", ["text", "device", "compiler", "later", "cases"])
def test_a_refusal_holds_for_the_same_text_device_compiler_and_cases_alone(
    before: Context, built: Built, change: str
) -> None:
    ctx = now(before) if change == "later" else before
    c = refuse(before, built(before, FIRST))
    if change == "text":
        ctx = now(before, SOURCE.replace("import torch\n", "import torch  # changed\n", 1))
    elif change != "later":
        ctx = now(before)
    if change == "device":
        before.store.db.execute("UPDATE runs SET device = 'a100' WHERE id = ?", (before.run.id,))
    if change == "compiler":
        by_another_triton(before, c)
    if change == "cases":
        more = c.build.choices | {"CASES/16m": c.build.choices["CASES/1m"]}
        before.store.set_built(before.run.id, c.id, replace(c.build, choices=more))
    assert duplicates.refused_before(ctx, built(ctx, FIRST)) is None


def test_a_given_file_is_judged_whatever_is_remembered(before: Context, built: Built) -> None:
    refuse(before, built(before, FIRST))
    ctx = now(before)
    given = replace(built(ctx, FIRST), author="given")
    assert screen.verdict(ctx, given) is None


def test_a_refusal_whose_bundle_is_lost_is_none(before: Context, built: Built) -> None:
    c = refuse(before, built(before, FIRST))
    ctx = now(before)
    mine = built(ctx, RENAMED)
    assert duplicates.refused_before(ctx, mine) is not None
    before.store.set_built(before.run.id, c.id, replace(c.build, bundle="0" * 64))
    assert duplicates.refused_before(ctx, mine) is None
