"""The static profile of shipped kernels: lines of the source are the right ones, figures are what the hand counts."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.compiler import nvdisasm
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile import amd, sass, static
from pgo_agent.sandbox.profile.backend import Subject, Workbench
from pgo_agent.sandbox.profile.memo import Artefact
from pgo_agent.sandbox.profile.static_profile import Line, Problem, StaticProfile

from tests.sandbox.profiling import profile_static
from tests.shared_builds import lend

KERNELS = Path(__file__).parents[3] / "kernels"
Profiled = Callable[[str, str, str], SimpleNamespace]


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    """(kernel, case, backend) -> profile of the case's first configuration, built once; with what it was built by."""
    contents = ContentStore(lend(tmp_path_factory.mktemp("profiled")))

    @cache
    def built(name: str, case: str) -> SimpleNamespace:
        subject = target.read(KERNELS / f"{name}.py")
        bench = Workbench(Builder(subject, devices.find("h200"), box.choose(), contents, 2))
        made = bench.builder.build(subject.source, {"CASES": [case]}, 1)
        assert made.ok, made.failures
        return SimpleNamespace(bench=bench, source=subject.source, built=made, case=f"CASES/{case}")

    @cache
    def of(name: str, case: str, backend: str) -> SimpleNamespace:
        b = built(name, case)
        profiles = profile_static(b.bench, b.source, b.built.bundle, b.case, None, backend)
        profile = profiles[b.built.choices[b.case][0].kernels[-1]]
        assert isinstance(profile, StaticProfile), profile
        return SimpleNamespace(**vars(b), profile=profile)

    return of


@pytest.fixture
def attention(profiled: Profiled) -> SimpleNamespace:
    return profiled("fa_fwd", "d64-4k", "nvidia")


@pytest.fixture
def ragged(profiled: Profiled) -> SimpleNamespace:
    return profiled("gemm", "ragged", "nvidia")


@pytest.fixture
def on_amd(profiled: Profiled) -> SimpleNamespace:
    return profiled("fa_fwd", "d64-4k", "amd")


def texts(found: SimpleNamespace, kind: str) -> Iterator[tuple[str, Line]]:
    """The source of every line that became instructions of that kind."""
    lines = found.source.splitlines()
    for line in found.profile.source:
        if line.kinds.get(kind):
            yield lines[line.line - 1], line


def test_resources_are_those_of_the_build_that_is_timed(attention: SimpleNamespace) -> None:
    profile, own = attention.profile, attention.built.statics[attention.profile.build]
    assert profile.resources.registers == own["registers"] > 0
    assert profile.resources.shared_bytes == own["shared"]
    assert profile.same_code
    assert profile.instructions == own["sass"]["all"]
    assert (profile.kernel, profile.target, profile.file) == ("_fa_fwd", "sm_90", "fa_fwd.py")


@pytest.mark.parametrize("side", ["attention", "on_amd"])
def test_source_lines_are_the_right_ones(side: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(side)
    assert all("tl.dot" in text for text, _ in texts(found, "tensor"))
    assert all("tl.load" in text or "tl.store" in text for text, _ in texts(found, "global"))
    special = [text for text, line in texts(found, "special") if line.kinds["special"] > 2]
    assert special and all(re.search(r"exp2|log2|/ l_i", text) for text in special)
    assert sum(line.instructions for line in found.profile.source) == found.profile.instructions


def test_lines_and_kinds_add_up(attention: SimpleNamespace) -> None:
    p = attention.profile
    assert p.instructions == sum(p.kinds.values()) == sum(p.opcodes.values()) == len(p.curve)
    assert p.instructions == sum(line.instructions for line in p.lines)
    assert "other" not in p.kinds


def test_the_loop_has_as_many_tensor_instructions_as_its_tiles_need(attention: SimpleNamespace) -> None:
    (loop,) = attention.profile.loops
    # 2 warpgroups of 64 rows: q k^T is 128 columns over 64 in steps of 16, p v is 64 columns over 128
    assert loop.kinds["tensor"] == 64 // 16 + 128 // 16
    assert (loop.depth, loop.waits) == (0, False)
    lines = attention.source.splitlines()
    assert lines[loop.source[0] - 1].strip().startswith("for start in range(lo, hi")
    assert "acc = tl.dot" in lines[loop.source[1] - 1]


def test_most_registers_live_in_the_loop_and_fewer_than_there_are(attention: SimpleNamespace) -> None:
    p = attention.profile
    assert p.peak and p.peak.loop == p.loops[0].ttgir
    assert p.peak.live == max(n for n in p.curve if n is not None) == p.loops[0].live
    assert p.resources.registers // 2 < p.peak.live <= p.resources.registers
    assert 0 < p.peak.source <= len(attention.source.splitlines())


def test_pipeline_accesses_and_conversions_are_read_off(attention: SimpleNamespace) -> None:
    p = attention.profile
    assert (p.pipeline.depth, p.pipeline.dots) == (3, 2)
    assert {a.op for a in p.accesses if a.loop} == {"ttg.async_copy_global_to_local"}
    assert all(a.width == 16 and not a.narrow and not a.uncoalesced for a in p.accesses if a.bytes > 512)
    assert {c.through for c in p.conversions} <= {"nothing", "shared memory", "shuffles", "registers"}
    assert any(c.shared for c in p.conversions if c.bytes == 128 * 64 * 2)  # the epilogue's
    assert p.unproven == ()


def test_occupancy_is_limited_by_what_the_hand_finds(attention: SimpleNamespace) -> None:
    p = attention.profile
    a_warp = -(-p.resources.registers * 32 // 256) * 256
    assert p.occupancy.limits["registers"] == 65536 // a_warp // 4 * 4 // 8
    assert p.occupancy.limits["shared memory"] == 233472 // (p.resources.shared_bytes + 1024)
    assert p.occupancy.blocks == 1 and p.occupancy.limiter == ("registers",)


def test_a_profile_comes_back_from_json_and_from_the_shelf_at_once(attention: SimpleNamespace) -> None:
    assert StaticProfile.from_json(attention.profile.as_json()) == attention.profile
    f = attention
    started = time.perf_counter()
    again = profile_static(f.bench, f.source, f.built.bundle, f.case)
    assert time.perf_counter() - started < 0.1
    assert again == {f.profile.build: f.profile}


def test_loads_of_rows_that_are_not_aligned_are_narrow(ragged: SimpleNamespace) -> None:
    loads = [a for a in ragged.profile.accesses if a.op == "tt.load"]
    assert loads and all(a.narrow and a.width == 2 and a.thread_run == 2 for a in loads)
    lines = ragged.source.splitlines()
    assert all("tl.load" in lines[a.source - 1] for a in loads)
    assert len(ragged.profile.unproven) >= 1


def test_live_registers_are_known_where_all_255_are_taken(ragged: SimpleNamespace) -> None:
    p = ragged.profile
    assert p.resources.registers == 255
    assert p.peak and 200 < p.peak.live <= 255
    assert p.resources.spill_store_bytes > 0
    assert p.kinds["spill"] > 0


def test_only_the_declared_registers_differ_in_the_copy_that_is_listed(ragged: SimpleNamespace) -> None:
    contents = ragged.bench.contents
    image = contents.get(contents.build(ragged.profile.build)["kernel"]["files"]["cubin"], "cubin")
    copy = nvdisasm.redeclared(image)
    assert [(a, b) for a, b in zip(image, copy, strict=True) if a != b] == [(255, 254)]
    assert {s.name for s, t in zip(elf.sections(image), elf.sections(copy), strict=True) if s != t} == {".nv.info"}
    assert nvdisasm.redeclared(copy) == copy


def test_a_kernel_that_the_source_does_not_make_has_lines_of_its_ttgir_only(attention: SimpleNamespace) -> None:
    subject = Subject(attention.profile.build, None)
    p = static.static(attention.bench, subject, "nvidia")
    assert isinstance(p, StaticProfile)
    assert (p.file, p.source, p.opcodes) == ("", (), attention.profile.opcodes)
    assert {line.op for line in p.lines if line.kinds.get("tensor")} == {"ttng.warp_group_dot"}
    assert p.peak and attention.profile.peak and p.peak == replace(attention.profile.peak, source=0)


def test_dots_stand_on_lines_of_dots_only(attention: SimpleNamespace) -> None:
    dots = {line.op for line in attention.profile.lines if line.kinds.get("tensor")}
    assert dots == {"ttng.warp_group_dot"}


@pytest.mark.parametrize(
    ("case", "label", "backend", "named"),
    [
        ("CASES/none", None, "nvidia", "CASES/d64-4k"),
        ("CASES/d64-4k", "BLOCK_M=1", "nvidia", "BLOCK_M=128"),
        ("CASES/d64-4k", None, "abacus", "nvidia, amd"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    attention: SimpleNamespace, case: str, label: str | None, backend: str, named: str
) -> None:
    with pytest.raises(UsageFault, match=named):
        profile_static(attention.bench, attention.source, attention.built.bundle, case, label, backend)


@pytest.mark.slow
def test_every_role_of_a_specialized_kernel_has_its_loop(tmp_path: Path) -> None:
    subject = target.read(KERNELS.parent / "evals" / "corpus" / "targets" / "attention_specialized.py")
    bench = Workbench(Builder(subject, devices.find("h200"), box.choose(), ContentStore(lend(tmp_path))))
    built = bench.builder.build(subject.source, {"SMALL": None}, 1)
    ((case, _),) = built.choices.items()
    (p,) = profile_static(bench, subject.source, built.bundle, case).values()
    assert isinstance(p, StaticProfile)
    lines = subject.source.splitlines()
    heads = [lines[loop.source[0] - 1].strip() for loop in p.loops if loop.ttgir and not loop.waits]
    assert sorted(heads) == ["for j in range(1, blocks):"] * 2 + ["for j in range(S // N):"]
    waits = [lines[loop.source[0] - 1] for loop in p.loops if loop.waits]
    assert waits and all("mbarrier.wait" in line for line in waits)
    assert (p.resources.warps, p.pipeline.warp_specialized) == (12, True)
    assert p.pipeline.requested == (240, 24)
    (problem,) = profile_static(bench, subject.source, built.bundle, case, None, "amd").values()
    assert isinstance(problem, Problem) and "threads per warp" in problem.reason


# AMD ------------------------------------------------------------------------------------------------------------------


def test_amd_compiles_the_traced_kernel_and_tells_its_resources(on_amd: SimpleNamespace) -> None:
    p = on_amd.profile
    assert (p.target, p.backend, p.kernel, p.file) == ("gfx950", "amd", "_fa_fwd", "fa_fwd.py")
    assert 0 < p.resources.registers <= 512 and 0 < p.resources.scalar_registers <= 106
    assert p.resources.shared_bytes > 0 and p.resources.lanes == 64
    assert p.kinds["tensor"] > 0 and any(o.startswith("v_mfma") for o in p.opcodes)
    (loop,) = p.loops
    assert loop.kinds["tensor"] > 0 and loop.ttgir


def test_amd_occupancy_by_registers_is_what_llvm_prints(on_amd: SimpleNamespace) -> None:
    (origin,) = {s.origin for s in static.subjects_of(on_amd.bench, on_amd.source, on_amd.built.bundle, on_amd.case)}
    made = amd.assembled(on_amd.bench, origin.ttir, origin.warps, origin.ctas, amd.ARCH)
    printed = re.search(r"; Occupancy: (\d+)", made.files[2].read(on_amd.bench.contents).decode())
    limits = on_amd.profile.occupancy.limits
    assert printed
    waves = min(limits["registers"], limits["scalar registers"]) * on_amd.profile.resources.warps // amd.SIMDS
    assert waves == int(printed[1])


def test_what_amd_cannot_compile_is_a_problem_and_no_fault(on_amd: SimpleNamespace) -> None:
    contents = on_amd.bench.contents
    (subject,) = static.subjects_of(on_amd.bench, on_amd.source, on_amd.built.bundle, on_amd.case)
    assert subject.origin
    broken = subject.origin.ttir.read(contents).replace(b"tt.dot", b"tt.dott")
    spoilt = replace(subject, origin=replace(subject.origin, ttir=Artefact.put(contents, broken, "ttir")))
    found = static.static(on_amd.bench, spoilt, "amd")
    assert isinstance(found, Problem) and "tt.dott" in found.reason
    unknown = static.static(on_amd.bench, Subject(subject.build, None), "amd")
    assert isinstance(unknown, Problem) and "TTIR" in unknown.reason


def test_no_instruction_of_a_shipped_kernel_is_of_an_unknown_kind(
    attention: SimpleNamespace, ragged: SimpleNamespace, on_amd: SimpleNamespace
) -> None:
    assert not [f.profile.kernel for f in (attention, ragged, on_amd) if "other" in f.profile.kinds]
    assert sass.kind("NOTHING") == "other"
