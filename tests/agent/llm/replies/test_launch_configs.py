"""Launches in many forms: what a move writes there is Python that runs, says what it claims, or is not written."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.moves import Best, Proposal, Skipped, catalogue
from pgo_agent.agent.moves.analysis import DoesNotApply, text_faults
from pgo_agent.agent.moves.analysis.launched import LAUNCH_OPTIONS
from pgo_agent.agent.moves.launch_sites import sites, unfollowed, unsettable, with_configs
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.target import same_contract

from tests.agent.launch_forms import AUTOTUNED, CONTRACT, FORMS, SEVERAL
from tests.agent.targets import builder_of

H200 = devices.find("h200")
STATIC: dict[str, Any] = {"registers": 200, "shared": 65536, "pipeline_depth": 3, "sass": {"all": 100}, "loop_flops": 0}
STATIC |= {"dots": 0, "notes": [], "spill_store_bytes": 0, "num_warps": 4}
LISTED = {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "num_warps": st.sampled_from([1, 2, 8, 16]),
        "num_stages": st.integers(1, 6),
        "maxnreg": st.integers(4, 31).map(lambda n: n * 8),
        "BLOCK": st.sampled_from([16, 128, 4096]),
    },
)


def proposed(source: str, **config: int) -> list[Proposal | Skipped]:
    profiles = {s.kernel: STATIC | {"name": s.kernel} for s in sites(source)}
    best = Best(config, next(iter(profiles.values()), STATIC), profiles)
    return list(catalogue.propose(source, {"CASES/1m": best}, [], H200))


def texts(source: str, **config: int) -> dict[str, str]:
    """Move -> what it writes."""
    return {p.move: p.source for p in proposed(source, **config) if isinstance(p, Proposal)}


# every text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS | AUTOTUNED | {"several": SEVERAL})
def test_every_text_that_a_move_writes_compiles_and_leaves_the_contract_alone(form: str) -> None:
    source = (FORMS | AUTOTUNED | {"several": SEVERAL})[form] + CONTRACT
    for move, text in texts(source, **(LISTED if form in AUTOTUNED else {})).items():
        compile(text, move, "exec")
        assert text != source and same_contract(source, text), move


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15)
@given(config=CONFIGS)
def test_what_is_set_at_a_launch_is_set_once_and_can_be_set_again(form: str, config: dict[str, int]) -> None:
    source = FORMS[form]
    (site,) = sites(source)
    if any(unsettable(site, name) for name in config if site.values.get(name) != config[name]):
        with pytest.raises(DoesNotApply):
            with_configs(source, site, [config])
        return
    changed = with_configs(source, site, [config])
    compile(changed, form, "exec")
    (again,) = sites(changed)
    known = {n: v for n, v in config.items() if n in again.values}
    assert known == {n: again.values[n] for n in known}
    assert with_configs(changed, again, [config]) == changed or not set(config) <= set(again.values)
    assert sites(with_configs(changed, again, [site.values]))[0].values.items() >= site.values.items()


@pytest.mark.long
def test_warps_of_every_kernel_of_liger_can_be_set_or_it_is_said_why_not() -> None:
    modules = liger()
    assert len(modules) > 20
    for source in modules[::4]:
        for site in (s for s in sites(source) if not s.autotuned):
            why = unsettable(site, "num_warps")
            if why:
                assert "its launch gives it as" in why, why
                continue
            changed = with_configs(source, site, [{"num_warps": 16}])
            compile(changed, site.kernel, "exec")
            text_faults.check(source, changed)
            assert {s.kernel: s.values.get("num_warps") for s in sites(changed)}[site.kernel] == 16


@pytest.mark.slow
@pytest.mark.parametrize("at", range(25))
def test_every_text_for_a_kernel_of_liger_compiles(at: int) -> None:
    for move, text in texts(liger()[at]).items():
        compile(text, move, "exec")


def liger() -> list[str]:
    """The files of liger-kernel that hold kernels which they launch."""
    pytest.importorskip("liger_kernel")
    (folder,) = importlib.util.find_spec("liger_kernel").submodule_search_locations  # type: ignore[union-attr, misc]
    found = [p.read_text() for p in sorted(Path(folder, "ops").glob("*.py"))]
    return [text for text in found if "@triton.jit" in text and sites(text)]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["fa_fwd", "fa_bwd", "gemm"])
def test_the_guard_lets_everything_through_that_moves_write_for_shipped_kernels(target: str) -> None:
    source = (Path(__file__).parents[4] / "kernels" / f"{target}.py").read_text()
    assert texts(source, BLOCK_M=64, BLOCK_N=64, num_warps=4, num_stages=3) or target != "fa_fwd"
    assert not [s for s in proposed(source) if isinstance(s, Skipped) and "a fault of this move: it " in s.reason]


# in the real tracer ---------------------------------------------------------------------------------------------------

REACHED = ("settings of a function", "a dict that is changed", "a helper that hands on", "a partial that is overruled",
           "a heuristic", "by a method")  # fmt: skip


def warps(builder: Builder, source: str) -> set[int]:
    """The warps of what a launcher launches."""
    built = builder.build(source, {"CASES": None}, 1)
    assert built.ok, built.failures
    return {
        k["num_warps"] for k in builder.contents.manifest(built.bundle)["kernels"].values() if k["name"] == "_scale"
    }


@pytest.mark.parametrize("form", [f if f in REACHED else pytest.param(f, marks=pytest.mark.slow) for f in FORMS])
def test_warps_that_a_move_sets_are_those_of_the_build(form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = FORMS[form] + CONTRACT
    found = texts(source)
    if "num_warps=2" not in found:
        why = [s.reason for s in proposed(source) if isinstance(s, Skipped) and s.move == "num_warps=2"]
        assert why and form == "two dicts", why
        return
    assert warps(builder_of(source, tmp_path_factory.mktemp("launches")), found["num_warps=2"]) == {2}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS | AUTOTUNED | {"several": SEVERAL})
def test_every_text_is_traced_and_compiled(form: str, tmp_path: Path) -> None:
    source = (FORMS | AUTOTUNED | {"several": SEVERAL})[form] + CONTRACT
    builder = builder_of(source, tmp_path)
    for move, text in texts(source, **(LISTED if form in AUTOTUNED else {})).items():
        built = builder.build(text, {"CASES": None}, 6)
        assert built.ok and not built.failures, (move, built.failures)


# why not --------------------------------------------------------------------------------------------------------------


def test_a_launch_that_is_not_followed_is_told_with_its_line() -> None:
    source = FORMS["literals"].replace("_scale[", "[_scale][0][")
    assert sites(source) == [] and "[_scale][0][" in unfollowed(source)["_scale"]
    (why,) = (s.reason for s in proposed(source) if isinstance(s, Skipped) and s.move == "every move")
    assert "[_scale][0]" in why


def test_one_number_that_two_parameters_share_is_not_set_for_one_of_them() -> None:
    source = FORMS["literals"].replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, STEP: tl.constexpr")
    source = source.replace("BLOCK=1024", "BLOCK=SIZE, STEP=SIZE").replace(
        "@triton.jit", "SIZE = 1024\n\n\n@triton.jit"
    )
    (site,) = sites(source)
    with pytest.raises(DoesNotApply, match="one number of the file"):
        with_configs(source, site, [{"BLOCK": 64}])
    assert "SIZE = 64" in with_configs(source, site, [{"BLOCK": 64, "STEP": 64}])


def test_a_name_of_the_module_that_a_local_one_hides_is_not_changed() -> None:
    source = FORMS["names of a module"].replace("    _scale[", "    SIZE = triton.next_power_of_2(n)\n    _scale[")
    (site,) = sites(source)
    assert "BLOCK" not in site.values and "triton.next_power_of_2(n)" not in site.fixed["BLOCK"]
    with pytest.raises(DoesNotApply, match="BLOCK of _scale cannot be set"):
        with_configs(source, site, [{"BLOCK": 64}])


def test_what_the_contract_does_with_a_kernel_is_no_launch_site() -> None:
    source = FORMS["literals"] + CONTRACT + 'LIBRARIES = {"own": lambda x: _scale[(1,)](x, x, 8, 2.0, BLOCK=16)}\n'
    (site,) = sites(source)
    assert same_contract(source, with_configs(source, site, [{"BLOCK": 64, "num_warps": 8, "num_stages": 1}]))


def test_stages_of_a_kernel_that_pipelines_nothing_are_not_varied() -> None:
    flat = STATIC | {"pipeline_depth": 1, "name": "_scale"}
    best = {"CASES/1m": Best({}, flat, {"_scale": flat})}
    assert not [p for p in catalogue.propose(FORMS["literals"], best, [], H200) if p.move.startswith("num_stages")]


def test_warps_step_from_those_that_a_launcher_computed() -> None:
    eight = STATIC | {"name": "_scale", "num_warps": 8}
    best = {"CASES/1m": Best({}, eight, {"_scale": eight})}
    proposed = catalogue.propose(FORMS["settings of a function"], best, [], H200)
    found = [p.move for p in proposed if isinstance(p, Proposal)]
    warps = [m for m in found if m.startswith("num_warps")]
    assert set(warps[:2]) == {"num_warps=16", "num_warps=4"} and "num_warps=8" not in warps


@pytest.mark.parametrize("option", LAUNCH_OPTIONS)
def test_an_option_of_a_kernel_under_a_decorator_that_nobody_knows_is_not_added(option: str) -> None:
    source = FORMS["no options"].replace("@triton.jit", "@cached\n@triton.jit")
    assert "what @cached makes of it is not known" in unsettable(sites(source)[0], option)


# the guard ------------------------------------------------------------------------------------------------------------

GUARDED = FORMS["local names"] + CONTRACT


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("num_warps=num_warps", "num_warps=warps", "read warps, which nothing binds there"),
        ("BLOCK=BLOCK", "BLOCK=BLOCK, factor=1.0", "pass factor twice"),
        ("BLOCK=BLOCK", "BLOCKS=BLOCK", "pass BLOCKS, which it does not take"),
        ("n, 2.0, ", "n, ", "would not pass factor"),
        ("x, y, n, 2.0,", "x, y, n, 2.0, 1024,", "pass BLOCK twice"),
        ("@triton.jit", "@triton.autotune([triton.Config({}, pre_hook=late)], [])\n@triton.jit", "read late, which"),
        ("@triton.jit", "@triton.autotune([triton.Config({}, pre_hook=kernel)], [])\n@triton.jit", "before it is"),
        ("@triton.jit", "@triton.autotune([triton.Config({'STEP': 1})], [])\n@triton.jit", "set STEP, which _scale"),
        ("@triton.jit", "@triton.autotune([triton.Config({'n': 1, 'n': 2})], [])\n@triton.jit", "set n twice"),
        ("return x * 2.0", "return x * 3.0", "change the contract"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_run_is_found_by_reading_it(old: str, new: str, why: str) -> None:
    assert old in GUARDED
    with pytest.raises(DoesNotApply, match=why):
        text_faults.check(GUARDED, GUARDED.replace(old, new))


def test_a_keyword_that_stands_twice_is_no_python() -> None:
    with pytest.raises(SyntaxError, match="keyword argument repeated"):
        text_faults.check(GUARDED, GUARDED.replace("BLOCK=BLOCK", "BLOCK=BLOCK, num_warps=8"))


def test_what_was_wrong_before_is_not_held_against_a_move() -> None:
    odd = GUARDED.replace("num_warps=num_warps", "num_warps=warps, odd=1") + "\nprint(nothing)\n"
    text_faults.check(odd, odd.replace("1024", "512"))
