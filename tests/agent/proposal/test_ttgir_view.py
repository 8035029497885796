"""Which kernel's TTGIR models are shown: its labels, what a script makes of it, and what is built on an edited one."""

from pathlib import Path

import pytest
from pgo_agent.agent.proposal import ttgir_view
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.search import steps
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.asked import asking, established

COVERED = coverage.of(cases=1)

FIRST = "The loads in the other order.\n```edits\nmove L5 before L4\n```"
SECOND = "It twice.\n```edits\ninsert after L6:\n    %twice = arith.addf %$L6, %$L6 : tensor<512xf32, #blocked>\n```"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return established(tmp_path_factory.mktemp("shown"))


def test_it_is_the_kernel_of_the_first_case_at_its_best_known_configuration(folder: Path) -> None:
    with asking(folder, [""]) as run:
        found = ttgir_view.shown(run.ctx, incumbent.SHIPPED)
        tuned = run.ctx.baseline().tuned["CASES/1m"]
        assert found is not None and found.config == tuned.config and found.name == "_add"
        assert found.build == found.replaces in run.ctx.store.contents.manifest(tuned.bundle)["kernels"]
        assert [line.label for line in found.view.lines] == [f"L{i}" for i in range(1, 8)]


def test_of_an_incumbent_that_is_ttgir_its_own_text_is_shown_and_edits_of_that_can_be_built(folder: Path) -> None:
    with asking(folder, [FIRST, SECOND]) as run:
        before = ttgir_view.shown(run.ctx, incumbent.SHIPPED)
        (first,) = run.propose()
        steps.build(run.ctx, 1)
        accepted = Judgement(Verdict.ACCEPTED, "confirm", plain("1.1x"), {"incumbent": incumbent.SHIPPED}, COVERED)
        run.ctx.store.set_verdict(run.ctx.run.id, first.id, accepted, 1.1, 1.0)
        after = ttgir_view.shown(run.ctx, incumbent.name(run.ctx))
        assert before is not None and after is not None
        assert after.replaces == before.build != after.build
        assert after.view.line("L4").text == before.view.line("L5").text != before.view.line("L4").text
        (second,) = run.propose()
        assert second.parent == first.id and f"// replaces: {before.build}" in second.source
        steps.build(run.ctx, 2)
        built = run.ctx.store.candidate(run.ctx.run.id, second.id)
        assert built.has_bundle, built.reason
        assert "%twice = arith.addf" in second.source and after.text.count("tt.load") == second.source.count("tt.load")
