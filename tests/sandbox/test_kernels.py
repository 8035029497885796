"""The kernels that ship: each keeps its contract, builds for an H200, and is right where it can be checked without a GPU.

The small cases are attacked too: a seeded bug must be found wrong by them (those of fa_fwd: test_interpreter.py).
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pgo_agent.sandbox import box, devices, target
from pgo_agent.sandbox.build import Builder, Built
from pgo_agent.sandbox.bundle.shelf import Shelf
from pgo_agent.sandbox.gate import screen
from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.judge.pool import Judge

FOLDER = Path(__file__).parents[2] / "kernels"
KERNELS = sorted(p.stem for p in FOLDER.glob("[!_]*.py") if not p.stem.endswith(".target"))
SETS = ("CASES", "SMALL", "HELD_OUT")
GRID = 48  # points of a launch grid: each costs a build and, on a GPU, a check and a timing of every case
BUGS = {
    "gemm": {
        "the last column of a ragged K is left out": ("in_k = offs_k < K - k", "in_k = offs_k < K - k - 1"),
        "one column too many of a ragged K": ("in_k = offs_k < K - k", "in_k = offs_k <= K - k"),
        "the last column of C is not stored": ("offs_n < N)", "offs_n < N - 1)"),
        "B is walked as if K were contiguous": ("b_ptrs += BLOCK_K * stride_bk", "b_ptrs += BLOCK_K"),
    },
    "fa_bwd": {
        "a causal mask of dK and dV that hides the diagonal": ("rows[None, :] >= offs_n", "rows[None, :] > offs_n"),
        "a causal mask of dQ that hides the diagonal": ("offs_m[:, None] >= cols", "offs_m[:, None] > cols"),
        "a dK without its scale": ("    dk *= sm_scale\n", ""),
        "a dQ without its scale": ("    dq *= sm_scale\n", ""),
        "a dS of dK without delta": ("pt * (dpt - delta[None, :])", "pt * dpt"),
        "a dS of dQ without delta": ("p * (dp - delta[:, None])", "p * dp"),
        "a step of queries is skipped": ("first = off\n", "first = off + STEP\n"),
        "dO is read as if it were contiguous": (
            "DO += head // H * stride_dob + head % H * stride_doh",
            "DO += head * S * D",
        ),
    },
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


class Builds:
    """Every kernel at its first configuration, built for an H200 when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder)
        self.done: dict[str, Built] = {}

    def __getitem__(self, name: str) -> Built:
        if name not in self.done:
            found = target.read(FOLDER / f"{name}.py")
            builder = Builder(found, devices.find("h200"), box.choose(), self.shelf)
            self.done[name] = builder.build(found.source, dict.fromkeys(SETS), 1)
        return self.done[name]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    return Builds(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="module")
def check() -> Iterator[Callable[..., Judged]]:
    """The verdict on a kernel, in whose source `old` was replaced, by its small cases in Triton's interpreter."""
    judges: dict[str, Judge] = {}

    def checked(name: str, old: str = "", new: str = "") -> Judged:
        judge = judges.setdefault(name, Judge(target.read(FOLDER / f"{name}.py"), gpu=None))
        source = judge.target.source
        assert old in source
        return judge.verdict("check", source=source.replace(old, new) if old else source)

    yield checked
    for judge in judges.values():
        judge.close()


@every_kernel
def test_a_kernel_is_right_on_its_small_cases(name: str, check: Callable[..., Judged]) -> None:
    found = check(name)
    assert found.verdict == Verdict.CHECKED, found.reason


@pytest.mark.parametrize(("name", "bug"), [(n, b) for n, bugs in BUGS.items() for b in bugs])
def test_a_seeded_bug_is_found_wrong(name: str, bug: str, check: Callable[..., Judged]) -> None:
    found = check(name, *BUGS[name][bug])
    assert found.verdict == Verdict.WRONG, found.reason


@every_kernel
def test_a_kernel_shows_proposers_no_line_of_its_contract(name: str) -> None:
    found = target.read(FOLDER / f"{name}.py")
    seen = set(target.kernel_part(found.source).split())
    assert not seen & {"reference", "inputs", "CASES", "SMALL", "HELD_OUT"}


@every_kernel
@pytest.mark.slow
def test_every_case_of_a_kernel_builds_for_an_h200(name: str, builds: Builds) -> None:
    built = builds[name]
    sets = built.described["sets"]
    assert not built.failures
    assert all(sets.values())
    assert set(built.choices) == {f"{s}/{n}" for s in SETS for n in sets[s]}


@every_kernel
@pytest.mark.slow
def test_the_first_configuration_of_the_first_case_spills_nothing(name: str, builds: Builds) -> None:
    built = builds[name]
    (choice,) = next(iter(built.choices.values()))
    assert not any(built.statics[k]["spill_store_bytes"] for k in choice.kernels)


@every_kernel
@pytest.mark.slow
def test_a_launcher_uses_no_torch_operation(name: str, builds: Builds) -> None:
    """What the original uses, every candidate may use."""
    assert screen.ops_of(builds.shelf.manifest(builds[name].bundle)) == set()


@every_kernel
@pytest.mark.slow
def test_the_launch_grid_is_small_and_varies_what_the_kernel_takes(name: str, builds: Builds) -> None:
    built = builds[name]
    space = built.described["launch_space"]
    (choice,) = next(iter(built.choices.values()))
    assert set(space) <= set(choice.config)
    assert math.prod(map(len, space.values())) <= GRID


@every_kernel
@pytest.mark.slow
def test_no_case_asks_for_less_than_it_must_compute_and_move(name: str, builds: Builds) -> None:
    """A floor that is too high would call honest kernels cheats: the H200 must be able to keep it."""
    for cases in builds[name].described["work"].values():
        for work in cases.values():
            assert work["flops"] > 0
            assert work["bytes"] > 0
