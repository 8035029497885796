"""Recorded results: every line carries its evidence, the README's table is made of them, and builds are recognized."""

from pathlib import Path

import pytest
from pgo_agent.agent.run.record import shipped_results
from pgo_agent.evals import tables
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box

from tests.conftest import FA_FWD, ROOT

NAMED = ("gpu", "driver", "torch", "triton")


def test_every_line_names_gpu_versions_and_commit() -> None:
    rows = list(shipped_results.rows())
    assert rows
    assert all(r["environment"][k] for r in rows for k in NAMED)
    assert all(len(r["commit"]) == 40 for r in rows)


def test_every_measured_line_has_raw_samples_and_a_passed_check_with_its_seed() -> None:
    measured = [r for r in shipped_results.rows() if r["what"] == "sweep"]
    assert measured and all(len(r["ms"]) >= 4 and min(r["ms"]) > 0 for r in measured)
    assert all(r["check"]["problem"] == "" and r["check"]["seed"] > 0 for r in measured)
    assert len({r["check"]["seed"] for r in measured}) > 1


def test_no_recorded_time_is_below_the_physical_floor() -> None:
    device = devices.find("h200")
    for r in (r for r in shipped_results.rows() if "ms" in r):
        floor = 1e3 * max(r["flops"] / (device.fp16_tflops * 1e12), r["bytes"] / (device.gbps * 1e9))
        assert min(r["ms"]) > floor


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


@pytest.mark.parametrize("marker", tables.TABLES)
def test_every_table_stands_on_one_page_and_is_that_of_the_evidence(marker: str) -> None:
    (page,) = (p for p in PAGES if f"<!-- {marker} -->" in p.read_text())
    assert tables.between(page.read_text(), marker, tables.TABLES[marker]()) == page.read_text()


@pytest.mark.long
def test_a_build_made_here_is_recognized_as_the_code_that_was_measured(tmp_path: Path) -> None:
    fa_fwd = target.read(FA_FWD)
    builder = Builder(fa_fwd, devices.find("h200"), box.choose(), ContentStore(tmp_path))
    built = builder.build(fa_fwd.source, {"CASES": ["d64-4k", "d128-4k-causal"]}, 1)
    for case, (choice,) in built.choices.items():
        found = shipped_results.find(choice.plan_id, "NVIDIA H200")
        assert found is not None, f"{case}: this code is not among the recorded results: record them anew"
        assert shipped_results.find(choice.plan_id, "NVIDIA H100 80GB HBM3") is None


def test_a_recorded_candidate_is_known_whatever_small_cases_its_file_has_now() -> None:
    row = next(r for r in shipped_results.rows() if r["what"] == "verdict" and r.get("source"))
    gpu = row["environment"]["gpu"]
    known = shipped_results.judged(row["source"], gpu)
    assert known is not None
    head, _, tail = row["source"].partition("SMALL = {")
    changed = f'{head}SMALL = {{"one": dict(M=1)}}\n{tail[tail.index("HELD_OUT") :]}'
    assert shipped_results.judged(changed, gpu) == known
    assert shipped_results.judged(changed.replace("tl.store", "tl. store"), gpu) is None
