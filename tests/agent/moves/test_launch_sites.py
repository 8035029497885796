"""Launch parameters are found and rewritten in place; everything else in the file stays as it was."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.launch_sites import LaunchSite, sites, unfollowed, with_configs

AUTOTUNED = """# größe: non-ASCII before the site moves byte columns
import triton, triton.language as tl
def hook(args): pass
CONFIGS = [triton.Config({"BLOCK": b}, num_warps=4, pre_hook=hook) for b in (64, 128)]
@triton.autotune(configs=CONFIGS, key=["n"])  # ünïcode
@triton.jit
def k(x, n, BLOCK: tl.constexpr): pass
def kernel(x): k[(1,)](x, 5)
"""
PLAIN = """import triton
SIZE = 128
@triton.jit
def k(x, n, BLOCK, STEP): pass
def kernel(x):
    step = 32
    k[(1,)](x, 5, BLOCK=SIZE, STEP=step, num_warps=4)
"""


def only(source: str) -> LaunchSite:
    (site,) = sites(source)
    return site


def test_an_autotuned_list_is_replaced_as_a_whole_and_keeps_its_pre_hook() -> None:
    changed = with_configs(AUTOTUNED, only(AUTOTUNED), [{"BLOCK": 256, "num_warps": 8}])
    assert 'triton.Config({"BLOCK": 256}, num_warps=8, pre_hook=hook)' in changed
    assert "configs=CONFIGS" not in changed
    assert changed.endswith('key=["n"])  # ünïcode\n' + AUTOTUNED.split("# ünïcode\n")[1])


MADE = AUTOTUNED.replace(
    'CONFIGS = [triton.Config({"BLOCK": b}, num_warps=4, pre_hook=hook) for b in (64, 128)]',
    """def made(block, split=1, warps=4):
    \"\"\"Short.\"\"\"
    return triton.Config({"BLOCK": block, "SPLIT": split}, num_warps=warps, pre_hook=hook if split > 1 else None)
CONFIGS = [made(64), made(128)] + [made(b, split=s) for b in (32, 64) for s in (1, 2)]""",
)


def test_configurations_that_a_function_makes_are_written_as_calls_of_it() -> None:
    changed = with_configs(MADE, only(MADE), [{"BLOCK": 256, "SPLIT": 2, "num_warps": 8}])
    assert "made(block=256, split=2, warps=8)," in changed and "configs=CONFIGS" not in changed
    with pytest.raises(DoesNotApply, match="made by made, which takes no num_stages"):
        with_configs(MADE, only(MADE), [{"BLOCK": 256, "SPLIT": 1, "num_warps": 8, "num_stages": 2}])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"BLOCK": block', '"BLOCK": 2 * block'),
        ("split=1, warps", "split, other, warps"),
        ('    """Short."""\n', "    print(block)\n"),
        ("CONFIGS = [made(64)", 'CONFIGS = [triton.Config({"BLOCK": 64, "SPLIT": 1})'),
        ("num_warps=warps", "num_warps=warps, num_stages=warps"),
        ("split=1, warps=4):", "split=1, warps=4, clear=None):"),
        ("CONFIGS = [made(64)", "CONFIGS = [made(64, *MORE)"),
        ("CONFIGS = [made(64)", "CONFIGS = [wrapped(made(64))"),
        ("CONFIGS = [made(64)", "CONFIGS = others() + [made(64)"),
        ("@triton.autotune", "for c in CONFIGS: c.pre_hook = hook\n@triton.autotune"),
    ],
)
def test_a_function_that_computes_what_it_is_given_makes_no_others(old: str, new: str) -> None:
    assert MADE.count(old) == 1
    source = MADE.replace(old, new).replace(
        "[made(64), made(128)]", "[made(64, clear=True)]" if "clear" in new else "[made(64), made(128)]"
    )
    with pytest.raises(DoesNotApply):
        with_configs(source, only(source), [{"BLOCK": 256, "SPLIT": 2, "num_warps": 8}])


def test_a_plain_launch_is_edited_where_the_value_stands() -> None:
    site = only(PLAIN)
    assert site.values == {"BLOCK": 128, "STEP": 32, "num_warps": 4}
    changed = with_configs(PLAIN, site, [{"BLOCK": 64, "STEP": 16, "num_warps": 8}])
    assert "SIZE = 64" in changed and "step = 16" in changed and "num_warps=8)" in changed


def test_an_option_that_the_launch_does_not_name_is_added_to_the_call() -> None:
    assert "num_warps=4, num_stages=2)" in with_configs(PLAIN, only(PLAIN), [{"num_stages": 2}])


def test_a_name_that_is_assigned_twice_is_left_alone() -> None:
    source = PLAIN.replace("    step = 32\n", "    step = 32\n    step = 64\n")
    assert "STEP" not in only(source).values


def test_a_launch_of_something_that_is_not_a_jit_function_is_no_site() -> None:
    assert sites("def kernel(x):\n    table[0](x, BLOCK=64)\n") == []


@given(
    st.lists(
        st.fixed_dictionaries({"BLOCK": st.integers(1, 4096), "num_warps": st.sampled_from([1, 2, 4, 8])}), min_size=1
    )
)
def test_any_list_of_configs_gives_python_in_which_the_site_is_found_again(configs: list[dict[str, int]]) -> None:
    changed = with_configs(AUTOTUNED, only(AUTOTUNED), configs)
    call = next(
        n for n in ast.walk(ast.parse(changed)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "triton.autotune"
    )
    assert len(call.keywords[0].value.elts) == len(configs)  # type: ignore[attr-defined]
    assert only(changed).autotuned


@pytest.mark.parametrize(
    "launches",
    [
        "triton.heuristics(rules())(k)[(1,)](x, 5, BLOCK=128)",  # may set what a move would pass
        "triton.autotune([], key=[])(k)[(1,)](x, 5)\n    k[(1,)](x, 5, BLOCK=128)",
        "triton.autotune([], key=[])(k)[(1,)](x, 5)\n    triton.autotune([], key=[])(k)[(1,)](x, 5)",
    ],
)
def test_a_kernel_under_unknown_heuristics_or_several_tuners_of_host_code_is_not_followed(launches: str) -> None:
    source = PLAIN.split("    step = 32")[0] + f"    {launches}\n"
    assert sites(source) == [] and "k" in unfollowed(source)


def test_broken_python_is_the_callers_to_report() -> None:
    with pytest.raises(SyntaxError):
        sites("def kernel(:")


# what host code puts around a kernel ----------------------------------------------------------------------------------

WRAPPED = """import triton
from library import library_autotune
def k(x, n, BLOCK, EVEN): pass
k = triton.jit(k)
k = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(k)
k = library_autotune()(k)
def kernel(x): k[(1,)](x, 5)
"""


def test_a_kernel_whose_name_is_bound_again_by_each_wrapper_is_followed_through_all_of_them() -> None:
    site = only(WRAPPED.replace("k = library_autotune()(k)\n", "").replace("(x, 5)", "(x, 5, BLOCK=64)"))
    assert site.values == {"BLOCK": 64} and site.fixed["EVEN"] == "a heuristic sets it"
    assert unfollowed(WRAPPED) == {}


def test_a_librarys_own_tuner_gives_way_to_one_with_a_single_configuration() -> None:
    """Of several, the first call would launch all, and what the library's tuner restores is not known."""
    site = only(WRAPPED)
    changed = with_configs(WRAPPED, site, [{"BLOCK": 64, "num_warps": 8}, {"BLOCK": 32}])
    assert "library_autotune()" not in changed and "32" not in changed and "EVEN" in site.fixed
    again = only(changed)
    assert again.autotuned and not again.tuner and changed.count('triton.Config({"BLOCK": 64}, num_warps=8)') == 1


def test_a_tuner_from_elsewhere_stays_where_the_file_cannot_say_autotune() -> None:
    source = WRAPPED.replace("import triton\n", "from triton import Config, heuristics, jit\n").replace("triton.", "")
    assert "no name for triton.autotune" in only(source).refused


BRANCHES = """import triton
@triton.jit
def k(x, n, BLOCK): pass
slow = triton.autotune(configs=[triton.Config({"BLOCK": 16})], key=["n"])(k)
fast = triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])(k)
def run(x, mode="fast", debug=False):
    if mode == "slow":
        chosen = slow
    else:
        chosen = fast
    if debug and mode != "slow":
        k[(1,)](x, 5, BLOCK=1)
    else:
        chosen[(1,)](x, 5)
def kernel(x): return run(x)
"""


def test_branches_that_a_default_rules_out_do_not_count() -> None:
    site = only(BRANCHES)
    assert site.autotuned and '"BLOCK": 64' in BRANCHES[slice(*site.span)] and unfollowed(BRANCHES) == {}


@pytest.mark.parametrize("call", ("run(x, mode)", "run(x, debug=flag)", "run(x) or run(x, 'slow')"))
def test_branches_that_a_caller_may_take_do(call: str) -> None:
    source = BRANCHES.replace("kernel(x): return run(x)", f"kernel(x): return {call}")
    assert not any(s.autotuned for s in sites(source)) and "k" in unfollowed(source)


def test_a_parameter_that_a_heuristic_reads_itself_is_for_the_launch_to_choose() -> None:
    rules = """RULES = {"BLOCK": lambda args: min(args["BLOCK"], args["n"]), "EVEN": lambda args: True}\n@"""
    source = AUTOTUNED.replace("@triton.jit", "@triton.heuristics(RULES)\n@triton.jit").replace("@", rules, 1)
    assert "BLOCK" not in only(source).fixed and only(source).fixed["EVEN"] == "a heuristic sets it"
