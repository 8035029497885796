"""sandbox/profile/counters/metrics.py: metrics as shares, and counts of instructions on the lines that they are of.

The instructions are those of a kernel that is built here; every one is said to have been executed once, so that the
count of a line must be the number of its instructions, as the static pass counts them. No figure here was measured.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile.backend import Instruction, Workbench
from pgo_agent.sandbox.profile.counters import collect
from pgo_agent.sandbox.profile.counters import metrics as figures
from pgo_agent.sandbox.profile.counters.metrics import Code
from pgo_agent.sandbox.profile.counters.ncu import Absent
from pgo_agent.sandbox.profile.counters.ncu_report import Facts, Metric, Seen
from pgo_agent.sandbox.profile.counters.types import BankConflicts, Counters
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef

from tests.sandbox.conftest import ADD
from tests.sandbox.profiling import profile_static

LEAST = {"gpu__time_duration.sum": Metric(2000.0, "ns"), "smsp__inst_executed.sum": Metric(640.0, "inst")}


def facts(metrics: dict[str, Metric] | None = None, instructions: tuple[Seen, ...] = ()) -> Facts:
    return Facts("_add", LEAST | (metrics or {}), instructions)


def percent(**values: float) -> dict[str, Metric]:
    return {name.replace("_DOT_", "."): Metric(value, "%") for name, value in values.items()}


@pytest.fixture(scope="session")
def addition(add_contents: ContentStore, add_built: Built) -> SimpleNamespace:
    """The addition: its static profile, and its lines as the counters pass finds them."""
    subject = target.read(ADD)
    builder = Builder(subject, devices.find("h200"), box.choose(), add_contents)
    ((case, (choice,)),) = add_built.choices.items()
    place = KernelRef(add_built.bundle, case, choice.label, choice.kernels[0])
    profile = profile_static(Workbench(builder), subject.source, place.bundle, case)[place.kernel]
    assert isinstance(profile, StaticProfile)
    return SimpleNamespace(builder=builder, place=place, profile=profile, code=collect.code(builder, place, profile))


def once(instructions: tuple[Instruction, ...]) -> tuple[Seen, ...]:
    """Each executed once and sampled once, with a guard and operands as ncu prints them."""
    return tuple(Seen(i.address, f"@!P0 {i.opcode} R1, R2", 1, {"wait": 1}) for i in instructions)


def test_every_line_of_ttgir_and_source_counts_the_instructions_that_the_static_pass_finds_on_it(
    addition: SimpleNamespace,
) -> None:
    code, profile = addition.code, addition.profile
    c = figures.counters(facts(instructions=once(code.instructions)), "ncu", code)
    assert c.unlined == ""
    assert {n.line: n.executed for n in c.lines} == {n.line: n.instructions for n in profile.lines}
    assert {n.line: n.executed for n in c.source} == {n.line: n.instructions for n in profile.source}
    assert len([n for n in c.source if n.line]) >= 3
    assert sum(n.samples for n in c.lines) == c.executed == profile.instructions
    assert [i.opcode for i in c.code] == [i.opcode for i in code.instructions]


def test_without_the_static_profile_of_this_build_lines_are_those_of_the_ttgir_alone(
    addition: SimpleNamespace,
) -> None:
    seen = once(addition.code.instructions)
    for other in (None, replace(addition.profile, build="another"), replace(addition.profile, file="")):
        c = figures.counters(facts(instructions=seen), "ncu", collect.code(addition.builder, addition.place, other))
        assert c.lines and not c.source


def test_instructions_that_are_not_the_builds_are_given_no_lines(addition: SimpleNamespace) -> None:
    """Counted of another code, or at other addresses: a figure on a wrong line would be worse than none."""
    code = addition.code
    seen = once(code.instructions)
    shifted = tuple(replace(s, offset=s.offset + 16) for s in seen)
    between = tuple(replace(s, offset=s.offset + 8) for s in seen[:1])
    twice = Code(code.instructions * 2, code.sources)
    for wrong, of, why in (
        (shifted, code, "names other"),
        (between, code, "has none"),
        (seen, twice, "several functions"),
    ):
        c = figures.counters(facts(instructions=wrong), "ncu", of)
        assert why in c.unlined
        assert (c.lines, c.source) == ((), ())
        assert {i.line for i in c.code} == {0}
        assert c.executed == len(wrong)


def test_what_a_called_function_executes_counts_but_is_on_no_line(addition: SimpleNamespace) -> None:
    code = addition.code
    far = code.instructions[-1].address + 4096
    seen = (*once(code.instructions), Seen(far, "RET.REL.NODEC R20", 5, {"selected": 2}), Seen(-64, "", 1, {}))
    c = figures.counters(facts(instructions=seen), "ncu", code)
    assert c.unlined == "" and c.executed == len(code.instructions) + 6
    own = next((n.instructions for n in addition.profile.lines if n.line == 0), 0)
    assert next(n.executed for n in c.lines if n.line == 0) == own + 6
    assert sum(n.executed for n in c.lines) == c.executed


def test_per_cent_become_shares_and_bytes_are_added() -> None:
    metrics = percent(
        sm__throughput_DOT_avg_DOT_pct_of_peak_sustained_elapsed=80.0,
        sm__pipe_tensor_cycles_active_DOT_avg_DOT_pct_of_peak_sustained_active=60.0,
        lts__t_sector_hit_rate_DOT_pct=25.0,
        sm__warps_active_DOT_avg_DOT_pct_of_peak_sustained_active=12.5,
    ) | {"dram__bytes_read.sum": Metric(300.0, "byte"), "dram__bytes_write.sum": Metric(100.0, "byte")}
    c = figures.counters(facts(metrics), "ncu 2025.3.1", Code())
    assert c.speed_of_light == {"sm": 0.8, "tensor": 0.6}
    assert (c.duration_ns, c.executed, c.dram_bytes) == (2000.0, 640, 400.0)
    assert (c.l1_hit, c.l2_hit, c.warps_active, c.bank_conflicts) == (None, 0.25, 0.125, None)
    assert c.metrics == {name: m.value for name, m in facts(metrics).metrics.items()}
    assert Counters.from_json(c.as_json()) == c


def test_where_there_is_no_throughput_of_device_memory_those_of_reads_and_writes_add_up_to_it() -> None:
    parts = percent(
        dram__bytes_read_DOT_sum_DOT_pct_of_peak_sustained_elapsed=50.0,
        dram__bytes_write_DOT_sum_DOT_pct_of_peak_sustained_elapsed=12.5,
    )
    whole = percent(gpu__dram_throughput_DOT_avg_DOT_pct_of_peak_sustained_elapsed=75.0)
    assert figures.counters(facts(parts), "ncu", Code()).speed_of_light == {"dram": 0.625}
    assert figures.counters(facts(parts | whole), "ncu", Code()).speed_of_light == {"dram": 0.75}
    half = dict(list(parts.items())[:1])
    assert figures.counters(facts(half), "ncu", Code()).speed_of_light == {}


def test_bank_conflicts_want_all_their_counters_and_no_shared_memory_has_no_conflicts() -> None:
    names = [f"{figures.CONFLICTS}{of}.sum" for of in ("_op_ld", "_op_st", "")] + [figures.PASSES]

    def conflicts(*values: float) -> BankConflicts | None:
        metrics = {n: Metric(v, "") for n, v in zip(names, values, strict=False)}
        return figures.counters(facts(metrics), "ncu", Code()).bank_conflicts

    assert conflicts(30.0, 10.0, 50.0, 200.0) == BankConflicts(30.0, 10.0, 0.25)
    assert conflicts(0.0, 0.0, 0.0, 0.0) == BankConflicts(0.0, 0.0, 0.0)
    assert conflicts(30.0, 10.0, 50.0) is None


def test_a_figure_in_a_unit_that_nobody_knows_is_left_out() -> None:
    known, unknown = ({"dram__bytes_read.sum": Metric(1.0, u)} for u in ("byte", "Gbyte"))
    written = {"dram__bytes_write.sum": Metric(1.0, "byte")}
    assert figures.counters(facts(known | written), "ncu", Code()).dram_bytes == 2.0
    assert figures.counters(facts(unknown | written), "ncu", Code()).dram_bytes is None
    a_second = {"dram__bytes.sum.per_second": Metric(5e6, "byte/s")}  # for two microseconds
    assert figures.counters(facts(unknown | a_second), "ncu", Code()).dram_bytes == pytest.approx(10.0)
    with pytest.raises(Absent, match="no duration"):
        figures.counters(facts({"gpu__time_duration.sum": Metric(2.0, "usecond")}), "ncu", Code())


def test_stalls_are_shares_of_all_samples_the_largest_first() -> None:
    seen = (Seen(0, "MOV R1, R2", 4, {"wait": 1, "barrier": 6}), Seen(16, "EXIT", 4, {"barrier": 1}))
    c = figures.counters(facts(instructions=seen), "ncu", Code(unlined="nobody knows its lines"))
    assert list(c.stalls.items()) == [("barrier", 0.875), ("wait", 0.125)]
    assert [i.samples for i in c.code] == [7, 1]
    assert figures.counters(facts(), "ncu", Code()).stalls == {}
