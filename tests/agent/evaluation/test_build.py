"""A candidate is built for the public cases first; for the held-out ones only when the first look leaves it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.agent.evaluation import baseline, build
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.gate.reason import FAILS
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge

from tests.agent.proposed import proposed

ADD = Path(__file__).parents[2] / "kernels" / "add.py"


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """A run whose baseline stands."""
    store, subject, device = Store(tmp_path_factory.mktemp("building") / "w"), target.read(ADD), devices.find("h200")
    store.add_run("add-1", ADD, subject.digest, subject.source, device.key, RunSettings(), RunFacts())
    builder = Builder(subject, device, box.choose(), store.contents)
    found = Context(
        store, store.run("add-1"), subject, device, builder, None, None, GpuJudge(subject, gpu=None), lambda e: None
    )
    baseline.establish(found)
    yield found
    found.close()


def built(ctx: Context, old: str, new: str) -> Candidate:
    """A candidate that an embedded move might have written, after its first build."""
    assert ctx.target.source.count(old) == 1
    n = len(ctx.store.generations("add-1")) + 1
    source = ctx.target.source.replace(old, new)
    ctx.store.add_generation("add-1", n, "shipped", [proposed(source, f"c{n}")])
    ctx.store.set_built("add-1", f"c{n}", build.first(ctx, ctx.store.candidate("add-1", f"c{n}"), 2))
    return ctx.store.candidate("add-1", f"c{n}")


def cases(candidate: Candidate) -> set[str]:
    return set(candidate.build.choices)


def test_the_first_build_is_of_the_public_cases_and_the_second_adds_the_held_out_ones(ctx: Context) -> None:
    first = built(
        ctx, "z_ptr + at, tl.load(x_ptr + at, mask=inside) +", "z_ptr + at, 2.0 * tl.load(x_ptr + at, mask=inside) +"
    )
    assert cases(first) == {"CASES/1m", "CASES/16m"} and not first.build.whole
    whole, refused = build.complete(ctx, first)
    assert cases(whole) == {"CASES/1m", "CASES/16m", "HELD_OUT/odd"} and whole.build.whole
    assert refused is None
    assert set(ctx.store.contents.manifest(whole.build.bundle)["plans"]) == cases(whole)


def test_what_does_not_build_for_a_held_out_case_is_refused_by_the_second_build(ctx: Context) -> None:
    first = built(ctx, "    z = torch.empty_like(x)\n", "    assert x.numel() != 9991\n    z = torch.empty_like(x)\n")
    _, refused = build.complete(ctx, first)
    assert refused is not None
    assert (refused.verdict, refused.reason) == (Verdict.BUILD_ERROR, "fails to build for a held-out case")
    assert refused.why.for_model(["odd"]) == FAILS


@pytest.mark.slow
def test_a_lost_bundle_of_both_builds_comes_out_as_it_was(ctx: Context) -> None:
    whole, _ = build.complete(
        ctx,
        built(
            ctx,
            "z_ptr + at, tl.load(x_ptr + at, mask=inside) +",
            "z_ptr + at, 3.0 * tl.load(x_ptr + at, mask=inside) +",
        ),
    )
    name = whole.build.bundle
    ctx.store.contents.bundle(name).unlink()
    build.again(ctx, whole)
    assert ctx.store.contents.whole(name)
