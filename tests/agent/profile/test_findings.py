"""Kernels with one known defect each: what their static profile's summary names first is that defect, on its line."""

from pathlib import Path

import pytest
from pgo_agent.agent.commands import profile, profile_subject
from pgo_agent.agent.profile.quoted_numbers import unfounded
from pgo_agent.agent.profile.summarize import summarize
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings

from tests.agent.defects import COLUMNS, DOTS, HEALTHY, STATIC, VARIANTS, WIDE, Variant

slow = pytest.mark.slow
FAST = frozenset({"too few stages", "dots"})
NARROW = Variant(COLUMNS, (("STRIDE = tl.constexpr(1)", "STRIDE = tl.constexpr(64)"),), "x = tl.load")
LOAD = "tl.load(x_ptrs + at)"
TEXTS = {  # to be built, not run: their sums are others than the reference
    "narrow access": NARROW,
    "dots without wgmma": Variant(DOTS, (("TILE=128", "TILE=32"),), "acc = tl.dot"),
    "little for a thread": Variant(WIDE, (("TILE=8192", "TILE=256"),), "x = tl.load"),
    "converted operands": Variant(
        DOTS,
        ((LOAD, f"{LOAD}.to(tl.float8e5).to(tl.float16)"), ("tl.range(0, K,", "tl.range(0, 1024,")),  # it runs for sure
        "acc = tl.dot",
    ),
    "atomics": Variant(WIDE, (("tl.store(Z +", "tl.atomic_add(Z +"),), "tl.atomic_add"),
    "small grid": Variant(DOTS, (("BLOCKS = 2112", "BLOCKS = 100"),)),
}
KNOWN = {**{name: VARIANTS[name] for name in sorted(STATIC)}, **TEXTS}


def some(names: dict[str, Variant]) -> list[object]:
    """The fast ones as they are, the others marked slow."""
    return [pytest.param(n, marks=[] if n in FAST else [slow]) for n in names]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("findings") / "w")


def summarized(store: Store, folder: Path, variant: Variant) -> Summary:
    (folder / "target.py").write_text(variant.text)
    subject = profile_subject.of(folder / "target.py", store, None)
    (case,) = profile.profile(subject, RunSettings(), None, "nvidia", store).cases
    summary = summarize(case)
    assert unfounded(summary.text, case) == []
    return summary


@pytest.mark.long
@pytest.mark.parametrize("name", some(HEALTHY))
def test_nothing_stands_out_in_a_kernel_without_a_defect(name: str, store: Store, tmp_path: Path) -> None:
    summary = summarized(store, tmp_path, HEALTHY[name])
    assert summary.bottlenecks == ()
    assert "No known defect stands out." in summary.text


@pytest.mark.parametrize("name", some(KNOWN))
def test_the_first_bottleneck_of_a_summary_names_the_defect(name: str, store: Store, tmp_path: Path) -> None:
    summary = summarized(store, tmp_path, KNOWN[name])
    first = summary.bottlenecks[0].finding
    assert first.defect == name, summary.text
    assert summary.text.splitlines()[1].startswith(f"- {name} (static")
    lines = KNOWN[name].text.splitlines()
    assert KNOWN[name].line in (lines[first.line - 1] if first.line else "")
