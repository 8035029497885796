"""What a run was asked for and is known of it comes back from its record, whatever version wrote that."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.commands import optimize
from pgo_agent.agent.run.facts import GivenFile, RunFacts
from pgo_agent.agent.run.record.settings_json import decode, encode
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import OPTIONS, ProfileVisibility, RunSettings
from pgo_agent.agent.version import Version
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault

TEXTS = st.text(max_size=20)
SECONDS = st.floats(0, 1e6)
SETTINGS = st.builds(
    RunSettings, candidates=st.integers(1, 99), minutes=SECONDS, width=st.none() | st.integers(1, 9), judge=TEXTS,
    gpus=st.none() | TEXTS, cases=st.lists(TEXTS).map(tuple), drop_wrong=st.booleans(), python=TEXTS,
    tokens=st.none() | st.integers(0), money=st.none() | SECONDS, gpu_seconds=st.none() | SECONDS,
    profile_visibility=st.sampled_from(ProfileVisibility), seed=st.integers(0), interpreting=st.none() | SECONDS,
    alone=st.booleans(), memcheck=st.booleans(), second_assembler=st.booleans(),
    prompt_tokens=st.none() | st.integers(1),
    compile_reference=st.booleans(), compiler=st.booleans(), controlled=st.booleans(),
    generations=st.none() | st.integers(0, 9), baseline_of=TEXTS, profile_of=TEXTS,
)  # fmt: skip
FACTS = st.builds(
    RunFacts,
    triton=TEXTS,
    pgo_agent=st.none() | st.builds(Version, TEXTS, TEXTS),
    models=st.dictionaries(TEXTS, TEXTS),
    prices=st.dictionaries(TEXTS, st.tuples(SECONDS, SECONDS)),
    given=st.lists(st.builds(GivenFile, TEXTS, TEXTS, TEXTS)).map(tuple),
)
RECORD = {  # as runs were recorded when settings were no class yet
    "candidates": 3, "width": 2, "minutes": 20.0, "patience": 3, "sandbox": "auto", "judge": "cpu", "cases": ["1m"],
    "python": "/usr/bin/python3", "models": {"optimizer": "tiny", "profiler": "embedded"}, "tokens": None,
    "money": 2.0, "gpu_seconds": 90, "given": [{"from": "x.py", "kind": "source", "source": "pass\n"}],
    "second_assembler": False, "memcheck": True, "interpreting": None, "prompt_tokens": 16000, "seed": 1,
    "insight": "counters", "drop_wrong": False, "alone": True, "gpus": None, "triton": "3.6.0",
    "pgo_agent": {"version": "0.1.0", "commit": "c"}, "prices": {"tiny": [1.25, 10.0]},
}  # fmt: skip
LATER = {
    "compile_reference": False,
    "controlled": False,
    "generations": None,
    "baseline_of": "",
    "profile_of": "",
    "against": "",
    "compiler": True,
    "open_to": "",
    "idle": 0.0,
    "expected": None,
}  # settings and facts since then


@given(SETTINGS, FACTS)
def test_what_is_written_is_read_back(asked: RunSettings, facts: RunFacts) -> None:
    read = decode(json.dumps(encode(asked, facts)), "h100")
    models = tuple(f"{role}={name}" for role, name in facts.models.items())
    assert read.settings == replace(asked, device="h100", models=models) and read.facts == facts
    assert not read.damaged and not read.unknown


def test_a_record_of_the_version_before_is_read_whole_and_written_as_it_was() -> None:
    read = decode(json.dumps(RECORD), "h200")
    assert not read.damaged and not read.unknown
    assert (read.settings.gpu_seconds, read.settings.profile_visibility) == (90.0, ProfileVisibility.COUNTERS)
    assert read.settings.models == ("optimizer=tiny", "profiler=embedded") and read.settings.alone
    assert read.facts.given == (GivenFile("x.py", "source", "pass\n"),) and read.facts.prices == {"tiny": (1.25, 10.0)}
    assert encode(read.settings, read.facts) == RECORD | LATER


def test_what_a_record_lacks_takes_its_default() -> None:
    read = decode("{}", "h200")
    assert (read.settings, read.facts) == (RunSettings(device="h200"), RunFacts())


@pytest.mark.parametrize("key", sorted(RECORD))
def test_a_value_that_cannot_be_read_is_named_and_takes_its_default(key: str) -> None:
    read = decode(json.dumps(RECORD | {key: {"other": 1}}), "h200")
    assert read.damaged == (key,)


def test_a_setting_of_another_version_is_named() -> None:
    assert decode(json.dumps(RECORD | {"later": 1}), "h200").unknown == ("later",)


@pytest.mark.parametrize(("change", "damaged"), [({"minutes": "long"}, ("minutes",)), ({}, ())])
def test_nobody_goes_on_with_a_run_whose_settings_cannot_be_read(
    tmp_path: Path, change: dict[str, Any], damaged: tuple[str, ...]
) -> None:
    store = Store(tmp_path)
    store.add_run("add-1", tmp_path / "gone.py", "d", "", "h200", RunSettings(), RunFacts())
    store.db.execute("UPDATE runs SET settings = ?", (json.dumps(RECORD | change),))
    assert store.run("add-1").damaged == damaged
    with pytest.raises(UsageFault, match="minutes cannot be read" if damaged else r"gone\.py"):
        optimize.resume("add-1", store, lambda _: None)


def test_every_setting_goes_to_another_process_and_back() -> None:
    other = RunSettings(device="b200", wait=False, models=("m",), python=sys.executable, cases=("a", "b"))
    assert RunSettings(**{n: getattr(other, n) for n in OPTIONS}) == other
    assert json_codec.decoded(RunSettings, json.loads(json.dumps(json_codec.as_json(other)))) == other
