"""What prompts tell of a profile, by what their run may tell: alike in all else, to the byte.

Both kernels are really built and profiled; what only a GPU can tell (times, counters, a roof) is put beside it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.commands import optimize
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.summarize import summarize
from pgo_agent.agent.proposal import prompt as prompting
from pgo_agent.agent.proposal import ttgir_view
from pgo_agent.agent.proposal.prompt import layout
from pgo_agent.agent.proposal.prompt.other_profile import OneCase
from pgo_agent.agent.proposal.prompt.profile_told import bound_by
from pgo_agent.agent.proposal.prompt.sections import Section
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.baseline import Work
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import ProfileVisibility, RunSettings
from pgo_agent.agent.search import lent
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.profile import pseudocode
from pgo_agent.sandbox.profile.kernel_profile import Missing

from tests.agent.profiles import case as made_up_case
from tests.agent.profiles import counters, kernel, of_scopes, roof, scope, static, timed
from tests.conftest import TARGETS
from tests.shared_builds import lend

pytestmark = pytest.mark.long  # two runs are made, and lent to five
PROFILE = {"static", "profile"}  # the sections that are of a profile alone; beside lines of code stand its costs
BASE = RunSettings(judge="cpu", controlled=True, generations=0, alone=True, prompt_tokens=100_000)
ARMS: dict[str, dict[str, Any]] = {
    "none": {"profile_visibility": ProfileVisibility.NONE},
    "bound": {"profile_visibility": ProfileVisibility.BOUND},
    "counters": {"profile_visibility": ProfileVisibility.COUNTERS},
    "all": {},
    "another": {"profile_of": "momentum"},
}
SPILLING, MOMENTUM = TARGETS / "spilling.py", TARGETS / "momentum.py"


def context(store: Store, run: str, path: Path) -> Context:
    subject, device = target.read(path), devices.find("h200")
    own = Builder(subject, device, box.choose(), store.contents, 2)
    return Context(store, store.run(run), subject, device, own, None, None, GpuJudge(subject, gpu=None), lambda _: None)


def measured(ctx: Context, bound_by_compute: bool) -> None:
    """Put into the record of a run what a GPU would have told of its kernel."""
    for stored in profiles.of(ctx.store, ctx.run.id, "shipped"):
        whole = profiles.whole(ctx.store.contents, stored)
        assert whole is not None
        found = _on_a_gpu(ctx, whole, bound_by_compute)
        told = replace(stored, summary=summarize(found), profile=profiles.put(ctx.store.contents, found))
        profiles.update(ctx.store, ctx.run.id, told)


def _on_a_gpu(ctx: Context, whole: CaseProfile, bound_by_compute: bool) -> CaseProfile:
    (of_run,) = whole.kernels
    shown = ttgir_view.shown(ctx, "shipped")
    assert shown is not None
    first = next(line for line in shown.view.lines if "for " in line.text or "store" in line.text)
    at = replace(scope("dot wait", 13), first=first.ops[0].line, last=first.ops[0].line)
    clocked, counted = of_scopes(timed(at, 0.41)), counters(kernel=of_run.kernel)
    labels = shown.view.labels()
    counts = {label: i % 7 + 1 for i, label in enumerate(labels.values()) if i % 3}
    code = pseudocode.annotated(shown.view, counts, clocked.scopes, counted)
    done = replace(of_run, timeline=clocked, counters=counted)
    return replace(whole, kernels=(done,), roofline=roof(0.5, bound_by_compute), code={of_run.build: code})


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Context]]:
    """The lenders of two kernels."""
    store = Store(lend(tmp_path_factory.mktemp("told") / "workspace"))
    opened = list[Context]()
    for path, by_compute in ((SPILLING, True), (MOMENTUM, False)):
        optimize.start(path, BASE, store, lambda _: None)
        opened.append(context(store, store.run("last").id, path))
        measured(opened[-1], by_compute)
    yield opened
    for ctx in opened:
        ctx.close()
    store.close()


@pytest.fixture(scope="module")
def told(contexts: list[Context]) -> dict[str, list[Section]]:
    """Arm -> the sections of its first prompt."""
    store, (lender, other) = contexts[0].store, (ctx.run.id for ctx in contexts)
    sections = {}
    for arm, changes in ARMS.items():
        asked = replace(BASE, generations=2, baseline_of=lender, **changes)
        asked = replace(asked, profile_of=other if asked.profile_of else "")
        run = store.run(lender)
        store.add_run(f"of-{arm}", SPILLING, run.digest, run.source, run.device, asked, run.facts, run.contract)
        ctx = context(store, f"of-{arm}", SPILLING)
        lent.take_over(ctx)
        facts = prompting.gather(ctx)
        assert prompting.prompt(facts).dropped == ()
        sections[arm] = layout.sections(facts)
        ctx.close()
    return sections


def beside(sections: list[Section]) -> list[tuple[str, str]]:
    """All that a prompt says outside of its profile: names and texts, lines of code without what stands beside."""
    texts = [(s.name, s.text) for s in sections if s.name not in PROFILE]
    return [(name, uncosted(text) if name == "code" else text) for name, text in texts]


def uncosted(text: str) -> str:
    mark = next(line for line in text.splitlines() if line.startswith("--- "))
    before, code, after = text.split(mark)
    rows = pseudocode.apart(code.strip("\n"))
    return "\n".join([before, *(row for row, _ in rows), after])


def profile(sections: list[Section], name: str = "profile") -> str:
    return next((s.text for s in sections if s.name == name), "")


@pytest.mark.parametrize("arm", [a for a in ARMS if a != "none"])
def test_prompts_of_all_arms_are_the_same_to_the_byte_outside_of_the_profile(
    told: dict[str, list[Section]], arm: str
) -> None:
    assert beside(told[arm]) == beside(told["none"])


def test_who_is_told_nothing_reads_no_figure_of_a_profile(told: dict[str, list[Section]]) -> None:
    assert {s.name for s in told["none"]}.isdisjoint(PROFILE)
    (code,) = (s.text for s in told["none"] if s.name == "code")
    assert not re.search(r" {3}\d", code) and "P50 " not in code.partition("---")[2]


def test_the_framing_has_the_right_bound_and_no_number(told: dict[str, list[Section]]) -> None:
    (line,) = profile(told["bound"]).splitlines()[1:]
    assert line.endswith(": Bound by compute.") and profile(told["bound"], "static") == ""


def test_counters_alone_tell_every_figure_of_nsight_compute_and_of_no_other_pass(
    told: dict[str, list[Section]],
) -> None:
    text = profile(told["counters"])
    for figure in ("sm 40.0 %", "short scoreboard 30.0 %", "L2 hit rate 80.0 %", "moved 200 MB", "line 12: 66.7 %"):
        assert figure in text
    assert "roof" not in text and "spill" not in text and "timeline" not in text
    assert profile(told["counters"], "static") == ""


def test_the_whole_profile_has_the_summary_and_costs_beside_lines_of_code(told: dict[str, list[Section]]) -> None:
    assert "Bound by compute: 50% of the roof" in profile(told["all"]) and "spill" in profile(told["all"])
    (code,) = (s.text for s in told["all"] if s.name == "code")
    assert "41.0 %" in code and profile(told["all"], "static")


def test_another_kernels_profile_is_told_in_the_names_and_lines_of_this_one(told: dict[str, list[Section]]) -> None:
    text = profile(told["another"]) + profile(told["another"], "static")
    assert "Bound by memory: 50% of the roof" in text
    assert not re.search("_step|momentum", "".join(s.text for s in told["another"]))
    registers = [re.search(r"(\d+) registers", profile(told[a], "static")) for a in ("all", "another")]
    assert registers[0] and registers[1] and registers[0][1] != registers[1][1]
    kernel_lines = range(1, len(SPILLING.read_text().splitlines()) + 1)
    assert all(int(n) in kernel_lines for n in re.findall(r"\bline (\d+)", text))


def test_the_kernel_that_takes_the_time_gets_the_findings_of_the_one_that_took_it_elsewhere() -> None:
    small, large = {"tensor": 0, "float": 4}, {"tensor": 8, "float": 40}
    own = made_up_case(kernel(static(kernel="_first", kinds=small)), kernel(static(kernel="_main", kinds=large)))
    other = made_up_case(kernel(static(kernel="_theirs", kinds=large)), kernel(static(kernel="_last", kinds=small)))
    assert OneCase(own, other, "spill in _theirs\nspill in _last").lines == ["spill in _main", "spill in _first"]


def test_a_baseline_of_another_text_or_compiler_is_not_taken_over(contexts: list[Context]) -> None:
    store, lender = contexts[0].store, contexts[0].run
    asked = replace(BASE, generations=2, baseline_of=lender.id)
    others = {"text of the target": ("0" * 64, lender.facts)}
    others["version of Triton"] = lender.digest, replace(lender.facts, triton="9.9")
    for name, (digest, facts) in others.items():
        store.add_run(name, SPILLING, digest, lender.source, lender.device, asked, facts, lender.contract)
        ctx = context(store, name, SPILLING)
        with pytest.raises(UsageFault, match=f"of another {name}"):
            lent.take_over(ctx)
        assert store.run(name).baseline is None
        ctx.close()


def test_what_work_is_bound_by_is_known_without_a_time_and_not_without_work(contexts: list[Context]) -> None:
    for ctx, bound in zip(contexts, ("compute", "memory"), strict=True):
        (stored,) = profiles.of(ctx.store, ctx.run.id, "shipped")
        whole = profiles.whole(ctx.store.contents, stored)
        assert whole is not None
        untimed = replace(whole, roofline=Missing("roofline", "no GPU is visible here"))
        assert bound_by(ctx.baseline(), untimed, ctx.device) == bound
        idle = {"CASES": dict.fromkeys(ctx.baseline().work["CASES"], Work(0, 0))}
        assert bound_by(replace(ctx.baseline(), work=idle), untimed, ctx.device) == ""
