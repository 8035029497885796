"""Instrumented twins of real kernels: bundles of the same launches that record, and that pass for nothing else."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder, limits_of
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile.timeline import instrumented_build, scope_sets
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.instrument import instrument
from pgo_agent.sandbox.profile.timeline.instrumented_build import InstrumentationPlan, InstrumentedBuild, KernelRef
from pgo_agent.sandbox.profile.timeline.scope_sets import Why
from pgo_agent.sandbox.ttgir import reader

from tests.sandbox import tracing
from tests.sandbox.profile.test_timeline_decode import Encoder
from tests.shared_builds import lend

ROOT = Path(__file__).parents[3]
GEMM, FORWARD, BACKWARD = (ROOT / "kernels" / f"{n}.py" for n in ("gemm", "fa_fwd", "fa_bwd"))
SPECIALIZED = ROOT / "evals" / "corpus" / "targets" / "attention_specialized.py"
BUILT = {  # a public case of each
    "gemm": (GEMM, "8k"),
    "attention": (FORWARD, "d128-4k-causal"),
    "backward": (BACKWARD, "d128-4k-causal"),
    "specialized": (SPECIALIZED, "d128-4k"),
}
STACK = 64  # bytes of registers that the records of eight scopes may push out


def placed(path: Path, case: str, contents: ContentStore, cases: str = "CASES") -> tuple[Builder, list[KernelRef]]:
    """A builder, and each kernel that one case of a target launches."""
    subject = target.read(path)
    builder = Builder(subject, devices.find("h200"), box.choose(), contents)
    built = builder.build(subject.source, {cases: [case]}, 1)
    assert built.ok, built.failures
    ((name, (choice,)),) = built.choices.items()
    return builder, [KernelRef(built.bundle, name, choice.label, k) for k in choice.kernels]


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Builder, KernelRef]:
    builder, (place,) = placed(GEMM, "even", ContentStore(lend(tmp_path_factory.mktemp("shelf"))), "SMALL")
    return builder, place


def accepted(builder: Builder, made: InstrumentedBuild) -> validate.Bundle:
    contents = builder.contents
    return validate.load(
        contents.bundle(made.bundle), contents.artefacts, replace(limits_of(builder.device), records=True)
    )


def test_a_twin_launches_what_the_plain_bundle_does_and_passes_for_no_candidate(
    gemm: tuple[Builder, KernelRef],
) -> None:
    builder, place = gemm
    made, refused = instrumented_build.build(builder, place, per_pass=32)
    assert not refused
    calibrating, whole = made
    assert {s.kind for s in calibrating.numbers.values()} == {Kind.ROLE, Kind.EMPTY}
    assert set(whole.numbers.values()) == set(whole.plan.scopes.scopes)
    bundle = accepted(builder, whole)
    plain = validate.load(builder.contents.bundle(place.bundle), builder.contents.artefacts, limits_of(builder.device))
    (ours,), (theirs,) = (b.plans[place.case][place.choice].launches for b in (bundle, plain))
    assert (ours.grid, ours.args, ours.kernel) == (theirs.grid, theirs.args, whole.kernel)
    with pytest.raises(BadBundle, match="profile scratch"):
        validate.load(builder.contents.bundle(whole.bundle), builder.contents.artefacts, limits_of(builder.device))


def test_a_twin_that_disturbs_is_divided_into_two_that_share_its_scopes_out(gemm: tuple[Builder, KernelRef]) -> None:
    builder, place = gemm
    (_, whole), _ = instrumented_build.build(builder, place, per_pass=32)
    halves, refused = instrumented_build.build(builder, place, plans=instrumented_build.halves(whole.plan))
    assert not refused and len(halves) == 2
    roles, inner = (
        [{s.name for s in h.plan.scopes.scopes if (s.kind is Kind.ROLE) == role} for h in (*halves, whole)]
        for role in (True, False)
    )
    assert roles[0] == roles[1] == roles[2]
    assert inner[0] | inner[1] == inner[2] and not inner[0] & inner[1] and all(inner)
    assert instrumented_build.build(builder, place, plans=[]) == ([], [])


def test_an_instrumented_kernel_reads_the_clock_twice_for_each_scope_and_writes_the_header_that_is_decoded(
    gemm: tuple[Builder, KernelRef],
) -> None:
    builder, place = gemm
    (_, whole), _ = instrumented_build.build(builder, place, per_pass=32)
    ptx = builder.contents.get(accepted(builder, whole).kernels[whole.kernel].files["ptx"], "ptx").decode()
    assert len(re.findall(r"%clock;", ptx)) == 2 * len(whole.plan.scopes.scopes)
    stored = {m[2]: int(m[1] or 0) for m in re.finditer(r"st\.global\.b32 \t\[%rd\d+(?:\+(\d+))?\], (\S+);", ptx)}
    assert stored[str(0xDEADBEEF - (1 << 32))] == 0
    assert stored[str(whole.warps * instrumented_build.USUAL * instrumented_build.ENTRY)] == 12
    assert len(Encoder(0, whole.warps, instrumented_build.USUAL).raw()) == whole.block_bytes


def test_a_grid_that_is_too_large_for_the_scratch_is_a_reason(gemm: tuple[Builder, KernelRef]) -> None:
    builder, place = gemm
    small = replace(builder, device=replace(builder.device, memory=20_000))
    made, refused = instrumented_build.build(small, place)
    assert not made and {r.why for r in refused} == {Why.SCRATCH}


def test_scopes_that_do_not_compile_together_are_recorded_by_two_builds(gemm: tuple[Builder, KernelRef]) -> None:
    builder, place = gemm
    manifest = builder.contents.manifest(place.bundle)["kernels"][place.kernel]
    module = reader.parse(builder.contents.get(manifest["files"]["ttgir"], "ttgir").decode())
    _, whole = planned = scope_sets.plan_scopes(module, 32)
    size = manifest["num_warps"] * 512 * instrumented_build.ENTRY
    records = {"size": size, "shared": builder.device.smem_block}
    told = (builder.contents.build(place.kernel) or {})["options"] | {"records": records, "lines": True}
    text = instrument(module, whole)
    assert isinstance(text, str)
    builder.contents.put_build(builder.key(text.encode(), told), {"error": "error: ptxas ran out of registers"})
    made, refused = instrumented_build.build(builder, place, plans=[InstrumentationPlan(s, 512) for s in planned])
    assert not refused
    _, first, second = made
    frames = first.plan.scopes.named.keys() & second.plan.scopes.named.keys()
    assert {whole.named[n].kind for n in frames} == {Kind.ROLE}
    assert {**first.plan.scopes.named, **second.plan.scopes.named} == whole.named


ODD = """
@triton.jit
def _early(src, dst, n, K, BLOCK: tl.constexpr):
    if n < 5:
        return
    at = tl.arange(0, BLOCK)
    x = tl.load(src + at).to(tl.float32)
    k = 0
    while k < K:
        if k % 2 == 0:
            x -= tl.load(src + at + k * BLOCK)
        else:
            tl.store(dst + at, x)
        k += 1
    tl.store(dst + at, tl.exp(x))


@triton.jit
def _nothing(src):
    pass


def early(x):
    y = torch.empty(1024, device=x.device)
    _early[(1,)](x, y, 7, 9, 64)
    return y


def nothing(x):
    y = torch.empty(1024, device=x.device)
    _nothing[(1,)](y)
    return y
"""


@pytest.mark.slow
def test_early_returns_branches_and_while_loops_are_recorded_and_a_kernel_of_nothing_is_a_reason(
    tmp_path: Path,
) -> None:
    made = tracing.build(tmp_path, ODD)
    assert made.ok and not made.failures, made.failures
    builder = tracing.builder(tmp_path, tracing.write(tmp_path, ODD))
    (early,), (nothing,) = (made.choices[f"CASES/{n}"] for n in ("early", "nothing"))
    twins, refused = instrumented_build.build(
        builder, KernelRef(made.bundle, "CASES/early", early.label, early.kernels[0])
    )
    kinds = {s.kind for t in twins for s in t.numbers.values()}
    assert not refused and kinds == {Kind.EMPTY, Kind.LOOP, Kind.LOAD, Kind.BODY, Kind.STORE}
    found = instrumented_build.build(
        builder, KernelRef(made.bundle, "CASES/nothing", nothing.label, nothing.kernels[0])
    )
    assert (found[0], [r.why for r in found[1]]) == ([], [Why.NOTHING])


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_every_scope_of_a_shipped_kernel_is_recorded_by_some_twin_without_many_spills(
    name: str, tmp_path: Path
) -> None:
    builder, places = placed(*BUILT[name], ContentStore(lend(tmp_path)))
    for place in places:
        made, refused = instrumented_build.build(builder, place)
        assert made and not refused
        plain = (builder.contents.build(place.kernel) or {})["static"]
        for one in made:
            accepted(builder, one)
            assert set(one.numbers.values()) == set(one.plan.scopes.scopes)
            assert one.static["spill_store_bytes"] <= plain["spill_store_bytes"] + STACK
            assert one.static["shared"] == plain["shared"]


@pytest.mark.slow
def test_every_role_of_a_warp_specialized_kernel_reads_the_clock(tmp_path: Path) -> None:
    builder, (place,) = placed(SPECIALIZED, "d128-4k", ContentStore(lend(tmp_path)))
    made, _ = instrumented_build.build(builder, place)
    roles = {"kernel", "default", "partition0", "partition1"}
    assert all({s.role for s in t.plan.scopes.scopes if s.kind is Kind.ROLE} == roles for t in made)
    for one in made:
        assert one.warps == 12
        ptx = builder.contents.get(accepted(builder, one).kernels[one.kernel].files["ptx"], "ptx").decode()
        assert len(re.findall(r"%clock;", ptx)) >= 2 * len(one.plan.scopes.scopes)
