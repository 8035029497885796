"""Instructions of scopes, counted in real instrumented builds, are those that the plain build has at the same place."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import PASSES, ContentStore
from pgo_agent.sandbox.profile import (
    assemble_static,
    instruction_path,
    instructions_per_cycle,
    machine_loops,
    nvidia,
    sass,
)
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.instructions_per_cycle import Count, Counts
from pgo_agent.sandbox.profile.timeline import instrumented_build, scope_sets
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.instrumented_build import InstrumentationPlan, InstrumentedBuild, KernelRef
from pgo_agent.sandbox.profile.timeline.scope_sets import ScopeSet
from pgo_agent.sandbox.profile.timeline.types import Lost, Pass, ScopeTime, Spread, Timed, Timeline
from pgo_agent.sandbox.ttgir import reader

from tests.sandbox import tracing
from tests.sandbox.profile.test_instrumented_build import BUILT, FORWARD, GEMM, SPECIALIZED, placed
from tests.shared_builds import lend

pytestmark = pytest.mark.long  # disassembles builds of every kind

NEVER_A_RECORDS = ("tensor", "float", "special", "convert", "exchange", "shared")  # kinds of instructions
MOST_OF_A_RECORD = 11  # instructions between the reads of any empty scope that was seen, and one


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A GEMM's plain listing, and the counts of all its twins by their scopes."""
    builder, (place,) = placed(GEMM, "even", ContentStore(lend(tmp_path_factory.mktemp("shelf"))), "SMALL")
    bench = Workbench(builder)
    found = counted(bench, place)
    plain = nvidia.listing(bench, place.kernel)
    return SimpleNamespace(bench=bench, place=place, counts=found, plain=plain, loop=loop_of(plain))


def counted(bench: Workbench, place: KernelRef) -> tuple[Counts, ...]:
    """Of every build that times a kernel."""
    made, _ = instrumented_build.build(bench.builder, place)
    return instructions_per_cycle.counts(bench, [t.kernel for t in made])


def loop_of(plain: nvidia.Listing) -> Counter[str]:
    """Opcodes of the only loop of a build."""
    (body,) = machine_loops.loops(plain.instructions)
    return Counter(assemble_static.opcodes(plain.instructions[i] for i in body))


def of_kind(found: Sequence[Counts], kind: Kind) -> list[Count]:
    return [s for c in found for s in c.scopes if f" {kind} " in s.scope and f" {kind} wait " not in s.scope]


def safe(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Those that no record has."""
    return {o: n for o, n in opcodes.items() if sass.kind(o) in NEVER_A_RECORDS}


def one_twin(builder: Builder, place: KernelRef, wanted: ScopeSet) -> InstrumentedBuild:
    manifest = builder.contents.manifest(place.bundle)["kernels"][place.kernel]
    module = reader.parse(builder.contents.get(manifest["files"]["ttgir"], "ttgir").decode())
    made = instrumented_build.one(builder, place, module, InstrumentationPlan(wanted))
    assert isinstance(made, InstrumentedBuild), made
    return made


def planned(builder: Builder, place: KernelRef) -> list[ScopeSet]:
    manifest = builder.contents.manifest(place.bundle)["kernels"][place.kernel]
    return scope_sets.plan_scopes(reader.parse(builder.contents.get(manifest["files"]["ttgir"], "ttgir").decode()), 8)


# counts of real builds ------------------------------------------------------------------------------------------------


def test_every_scope_of_every_build_is_counted_under_its_name(gemm: SimpleNamespace) -> None:
    made, _ = instrumented_build.build(gemm.bench.builder, gemm.place)
    assert [c.build for c in gemm.counts] == [t.kernel for t in made]
    for counted, one in zip(gemm.counts, made, strict=True):
        assert {s.scope for s in counted.scopes} == one.plan.scopes.named.keys()
        assert not counted.problem and not any(s.why for s in counted.scopes)


def test_an_empty_scope_executes_nothing(gemm: SimpleNamespace) -> None:
    (empty,) = of_kind(gemm.counts, Kind.EMPTY)
    assert empty == Count(empty.scope, {}, {}, (), "")


def test_the_dot_of_the_loop_is_all_tensor_instructions_of_the_plain_builds_loop(gemm: SimpleNamespace) -> None:
    (dot,) = of_kind(gemm.counts, Kind.DOT)
    assert dot.once["HGMMA"] == gemm.loop["HGMMA"] == 64 // 16  # 128 x 256 in two warpgroups, BLOCK_K of 64
    assert not dot.turn


def test_waits_are_the_waiting_instruction_alone(gemm: SimpleNamespace) -> None:
    for wait in of_kind(gemm.counts, Kind.DOT_WAIT):
        assert wait.once == {"WARPGROUP": 1}
    for wait in of_kind(gemm.counts, Kind.COPY_WAIT):
        assert wait.once == {"DEPBAR": 1, "BAR": 1}


def test_copies_and_stores_have_the_memory_instructions_of_the_plain_build(gemm: SimpleNamespace) -> None:
    before, inside = of_kind(gemm.counts, Kind.COPY)
    whole = assemble_static.opcodes(gemm.plain.instructions)
    assert inside.once["LDGSTS"] == gemm.loop["LDGSTS"]
    assert before.once["LDGSTS"] + inside.once["LDGSTS"] == whole["LDGSTS"]
    (store,) = of_kind(gemm.counts, Kind.STORE)
    assert store.once == {"STG": whole["STG"]}


def test_a_loop_without_records_in_it_turns_exactly_the_instructions_of_the_plain_builds(
    gemm: SimpleNamespace,
) -> None:
    (loop,) = of_kind(gemm.counts, Kind.LOOP)
    assert Counter(loop.turn) == gemm.loop
    assert loop.inside == ()


def test_the_role_has_every_instruction_of_the_plain_build_that_no_record_has(gemm: SimpleNamespace) -> None:
    plain = safe(assemble_static.opcodes(gemm.plain.instructions))
    for role in of_kind(gemm.counts, Kind.ROLE):
        assert Counter(safe(role.once)) + Counter(safe(role.turn)) == plain


def test_a_loop_turns_as_often_as_scopes_inside_of_it_that_another_build_recorded(gemm: SimpleNamespace) -> None:
    """With times and counts of executions that are chosen here, for every build that was made."""
    made, _ = instrumented_build.build(gemm.bench.builder, gemm.place)
    passed = []
    for one in made:
        times = [ScopeTime(s, Spread(9, 9, 9), 16.0 if s.depth else 1.0, 0, None, 9) for s in one.plan.scopes.scopes]
        numbers = {str(n): s.name for n, s in one.numbers.items()}
        passed.append(Pass(Timed(tuple(times), Lost(), ()), 1.0, True, {}, (), 0, one.warps, numbers, one.kernel))
    found = instructions_per_cycle.ipc(gemm.counts, Timeline(tuple(passed), {}, None, (), (), {}))
    assert isinstance(found, tuple)
    by_name = {s.scope: s.instructions for s in found}
    (loop,) = of_kind(gemm.counts, Kind.LOOP)
    assert by_name[loop.scope] == sum(loop.once.values()) + 16 * gemm.loop.total()
    (empty,) = of_kind(gemm.counts, Kind.EMPTY)
    assert by_name.keys() == {s.scope for c in gemm.counts for s in c.scopes} - {empty.scope}


def test_scopes_inside_of_a_turn_are_those_of_the_loops_body(gemm: SimpleNamespace) -> None:
    calibrating, _, _ = of_kind(gemm.counts, Kind.ROLE)
    assert [s.partition(" empty ")[0] for s in calibrating.inside] == ["kernel"]


def test_what_is_taken_off_is_no_more_than_what_a_record_costs(gemm: SimpleNamespace) -> None:
    """By the text of the listing: a stretch without branches is all that stands between its two clock reads."""
    dense = gemm.counts[1]
    text = nvidia.listing(gemm.bench, dense.build)
    lines = [(int(m[1], 16), m[2]) for m in re.finditer(r"/\*([0-9a-f]{4,})\*/ +(?:@!?U?P\w+ )?([A-Z]\w+)", text.sass)]
    reads = sorted(sass.clock_reads(text.sass))
    shown = [s for s in dense.scopes if not s.turn]
    assert len(reads) == 2 * len(dense.scopes) and len(shown) == len(dense.scopes) - 1  # the role holds the others
    for begin, end, scope in zip(reads[1:-1:2], reads[2:-1:2], shown, strict=True):
        between = Counter(opcode for at, opcode in lines if begin < at < end)
        assert not Counter(scope.once) - between
        assert 0 < between.total() - scope.instructions(0) < MOST_OF_A_RECORD


def test_counts_are_kept_on_the_shelf_and_read_back_as_they_were(gemm: SimpleNamespace) -> None:
    for one in gemm.counts:
        kept = gemm.bench.contents.record(PASSES, instructions_per_cycle.instructions.key(gemm.bench, one.build))
        assert Counts.from_json(kept["answer"]) == one == instructions_per_cycle.instructions(gemm.bench, one.build)


def test_a_build_that_is_not_there_is_a_problem(gemm: SimpleNamespace) -> None:
    found = instructions_per_cycle.instructions(gemm.bench, "0" * 64)
    assert (found.scopes, found.problem) == ((), "it is not in the content store")


@pytest.mark.slow
def test_a_scope_that_waits_for_a_barrier_is_refused_and_the_dots_beside_it_are_not(tmp_path: Path) -> None:
    builder, (place,) = placed(SPECIALIZED, "d128-4k", ContentStore(lend(tmp_path)))
    bench = Workbench(builder)
    every = {s.name: s for part in planned(builder, place) for s in part.scopes}
    chosen = [s for s in every.values() if s.role == "default" and s.kind in (Kind.BARRIER_WAIT, Kind.DOT, Kind.ROLE)]
    empties = [s for s in every.values() if s.kind is Kind.EMPTY]
    made = one_twin(builder, place, ScopeSet((*chosen, *empties)))
    counted = {s.scope: s for s in instructions_per_cycle.instructions(bench, made.kernel).scopes}
    assert counted.keys() == made.plan.scopes.named.keys()
    for s in chosen:
        if s.kind is Kind.DOT:
            assert (counted[s.name].once["HGMMA"], counted[s.name].why) == (8, "")  # 64 x 128 x 128 of a warpgroup
        else:
            assert (counted[s.name].once, counted[s.name].why) == ({}, instruction_path.WAITS)
    assert all(counted[s.name] == Count(s.name, {}, {}, (), "") for s in empties)


ODD = """
@triton.jit
def _twice(src, dst, K, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(src + at).to(tl.float32)
    for k in range(K):
        x = tl.exp(x) + tl.load(src + at + k * BLOCK)
    for k in range(K):
        if tl.max(x, 0) > k:
            x = x * tl.load(src + at + k * BLOCK)
    tl.store(dst + at, x)


def twice(x):
    y = torch.empty(1024, device=x.device)
    _twice[(1,)](x, y, 7, 1024)
    return y
"""


@pytest.mark.slow
def test_arithmetic_that_shows_the_line_of_a_record_before_it_is_still_the_kernels(tmp_path: Path) -> None:
    """In attention's epilogue dozens of instructions have no line of their own: the record's is the last told."""
    builder, (place,) = placed(FORWARD, "d64-4k", ContentStore(lend(tmp_path)))
    bench = Workbench(builder)
    made = one_twin(builder, place, planned(builder, place)[2])
    listing = nvidia.listing(bench, made.kernel)
    records = {op.line for op in reader.parse(listing.ttgir).walk() if op.name == "proton.record"}
    lineless = assemble_static.opcodes(i for i in listing.instructions if i.line in records)
    plain = assemble_static.opcodes(nvidia.listing(bench, place.kernel).instructions)
    bodies = of_kind([instructions_per_cycle.instructions(bench, made.kernel)], Kind.BODY)
    assert lineless["FSEL"] > 10
    for opcode in ("FSEL", "F2FP"):
        assert sum(s.once.get(opcode, 0) for s in bodies) == plain[opcode]


@pytest.mark.slow
def test_two_loops_and_a_branch_in_a_loop_are_refused_with_the_reason(tmp_path: Path) -> None:
    made = tracing.build(tmp_path, ODD)
    assert made.ok and not made.failures, made.failures
    (twice,) = made.choices["CASES/twice"]
    builder = tracing.builder(tmp_path, tracing.write(tmp_path, ODD))
    place = KernelRef(made.bundle, "CASES/twice", twice.label, twice.kernels[0])
    seen = [s for c in counted(Workbench(builder), place) for s in c.scopes]
    first, second = (s for s in seen if " loop " in s.scope)
    assert (first.why, bool(first.turn)) == ("", True)
    assert second.why == instruction_path.BRANCHES
    assert {s.why for s in seen if " role " in s.scope} == {"it holds 2 loops"}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_empty_scopes_are_empty_and_tensor_instructions_are_all_found_in_every_shipped_kernel(
    name: str, tmp_path: Path
) -> None:
    builder, places = placed(*BUILT[name], ContentStore(lend(tmp_path)))
    bench = Workbench(builder)
    for place in places:
        plain = assemble_static.opcodes(nvidia.listing(bench, place.kernel).instructions)
        seen = counted(bench, place)
        scoped = [s for c in seen for s in c.scopes if not s.why]
        assert all(s == Count(s.scope, {}, {}, (), "") for s in scoped if " empty " in s.scope)
        dots = sum(s.once.get("HGMMA", 0) for s in scoped if re.search(r" dot \d+$", s.scope))
        assert dots == plain.get("HGMMA", 0) or any(c.problem for c in seen)
