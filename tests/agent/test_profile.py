"""`pgo-agent profile`: what a kernel costs, read off its build; asked again, it is there at once."""

import json
import time
from pathlib import Path

import pytest
from pgo_agent.agent.profiling import Profile
from pgo_agent.sandbox.profile.codec import decoded

from tests.agent.cli import pgo

ADD = Path(__file__).parents[1] / "kernels" / "add.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def profiled(folder: Path) -> str:
    """What the command prints of an addition, as JSON."""
    done = pgo("profile", str(ADD), "--case", "1m", "--json", cwd=folder)
    assert done.code == 0, done.err
    return done.out


def test_an_addition_of_128_threads_fits_an_sm_sixteen_times(profiled: str) -> None:
    (kernel,) = json.loads(profiled)["cases"][0]["kernels"]
    occupancy = kernel["static"]["occupancy"]
    assert kernel["kernel"] == "_add" and kernel["static"]["resources"]["warps"] == 4
    assert (occupancy["blocks"], occupancy["most_warps"]) == (16, 64)


def test_its_loads_and_its_store_are_on_their_line_of_the_source(profiled: str) -> None:
    (kernel,) = json.loads(profiled)["cases"][0]["kernels"]
    line = next(i for i, text in enumerate(ADD.read_text().splitlines(), 1) if "tl.store(" in text)
    assert [(a["op"], a["source"]) for a in kernel["static"]["accesses"]] == [("tt.load", line)] * 2 + [
        ("tt.store", line)
    ]


def test_the_same_profile_comes_back_at_once(profiled: str, folder: Path) -> None:
    started = time.monotonic()
    again = pgo("profile", str(ADD), "--case", "1m", "--json", cwd=folder)
    bare = time.monotonic()
    assert pgo("--help", cwd=folder).code == 0
    assert again.out == profiled
    assert (bare - started) - (time.monotonic() - bare) < 1.5  # nothing is traced or compiled, which take seconds


def test_a_profile_read_back_from_its_json_is_the_same(profiled: str) -> None:
    found = decoded(Profile, json.loads(profiled))
    assert json.dumps(found.as_json(), sort_keys=True) == profiled.strip()


def test_it_is_drawn_with_its_facts_and_its_lines(folder: Path, profiled: str) -> None:
    done = pgo("profile", str(ADD), "--case", "1m", cwd=folder)
    for told in ("16 blocks, 64 of 64 warps of an SM", "tl.store(z_ptr", "nothing was run or timed"):
        assert told in done.out


def test_its_pseudo_code_says_beside_each_line_what_it_became(folder: Path, profiled: str) -> None:
    done = pgo("profile", str(ADD), "--case", "1m", "--code", cwd=folder)
    lines = [line.split() for line in done.out.splitlines() if " instr" in line]
    stores = [words for words in lines if words[1] == "store"]
    assert stores and stores[0][-1] == "instr" and int(stores[0][-2]) > 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--case", "2m"), "no public case 2m"),
        (("--case", "1m", "--config", "BLOCK=3"), "it has: BLOCK="),
        (("--case", "1m", "--backend", "tpu"), "choose one of: nvidia, amd"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(
    wrong: tuple[str, ...], told: str, folder: Path, profiled: str
) -> None:
    done = pgo("profile", str(ADD), *wrong, cwd=folder)
    assert done.code == 2 and told in done.err
