"""How autotuned launches become plans: one for each configuration, in the steady state, without benchmarking."""

from typing import Any

import pytest
from pgo_agent.sandbox.build.result import Built

from tests.sandbox.tracing import Traced, build, builder, trace, write

SNIPPET = """
from triton.tools.tensor_descriptor import TensorDescriptor

FOUR = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((256, 4), (512, 4), (1024, 8), (2048, 8))]


def _grid(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


@triton.autotune(configs=FOUR, key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def _tuned(src, dst, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(dst + at, tl.load(src + at))
    else:
        tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


def _fewer(configs, named, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] < named["src"].numel() // 4]


@triton.autotune(configs=FOUR, key=["n"], prune_configs_by={"early_config_prune": _fewer})
@triton.jit
def _pruned(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


def _set_block(named):
    named["src"].block_shape = named["dst"].block_shape = [named["ROWS"], 32]


@triton.autotune(configs=[triton.Config({"ROWS": r}, pre_hook=_set_block) for r in (16, 32)], key=[])
@triton.jit
def _tiles(src, dst, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    dst.store([row, 0], src.load([row, 0]))


def _zero(named):
    named["dst"].zero_()


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, pre_hook=_zero), triton.Config({"BLOCK": 512})],
    key=["n"],
    reset_to_zero=["dst"],
    restore_value=["src"],
)
@triton.jit
def _summed(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(dst + at, tl.load(src + at, mask=at < n).to(tl.float32), mask=at < n)


def even(x):
    y = torch.empty_like(x)
    _tuned[_grid(4096)](x, y, 4096)
    return y


def ragged(x):
    y = torch.empty_like(x)
    _tuned[_grid(1536)](x, y, 1536)
    return y


def pruned(x):
    y = torch.empty_like(x)
    _pruned[_grid(4096)](x, y, 4096)
    return y


def described(m):
    y = torch.empty_like(m)
    blocks = lambda meta: (64 // meta["ROWS"],)
    _tiles[blocks](TensorDescriptor.from_tensor(m, [1, 1]), TensorDescriptor.from_tensor(y, [1, 1]))
    return y


def summed(x):
    y = torch.empty(4096, device=x.device)
    _summed[_grid(4096)](x, y, 4096)
    return y


def asked(x):
    y = torch.empty_like(x)
    _tuned[_grid(4096)](x, y, 4096)
    parts = torch.empty(_tuned.best_config.kwargs["BLOCK"], device=x.device)
    _copy[(1,)](y, parts, 256, BLOCK=256)
    return parts


class Tuner(triton.runtime.Autotuner):
    def run(self, *args, **kwargs):
        call = lambda c: self.fn.run(*args, **kwargs, **c.all_kwargs())
        times = {c: triton.testing.do_bench(lambda: call(c)) for c in self.configs}
        return self.fn.run(*args, **kwargs, **min(times, key=times.get).all_kwargs())


@triton.jit
def _copied(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


_own = Tuner(_copied, ["src", "dst", "n", "BLOCK"], [triton.Config({"BLOCK": b}) for b in (256, 512)], [], None, None)


def owned(x):
    y = torch.empty_like(x)
    _own.run(x, y, 4096, grid=lambda meta: (triton.cdiv(4096, meta["BLOCK"]),), warmup=False)
    return y
"""
TWO = """
CONFIGS = [triton.Config({"BLOCK": b}, num_warps=4) for b in (256, 512, 1024)]


def _grid(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def _first(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def _second(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n) * 2, mask=at < n)


def chained(x):
    y, z = torch.empty_like(x), torch.empty_like(x)
    _first[_grid(4096)](x, y, 4096)
    _second[_grid(4096)](y, z, 4096)
    return z


def again(x):
    y, z = torch.empty_like(x), torch.empty(2048, device=x.device, dtype=x.dtype)
    _first[_grid(4096)](x, y, 4096)
    _first[_grid(2048)](y, z, 2048)
    return z
"""


WIDE = """
@triton.autotune(configs=[triton.Config({"K": k}, num_warps=4, num_stages=3) for k in (1024, 64)], key=[])
@triton.jit
def _product(src, dst, K: tl.constexpr):
    rows, k = tl.arange(0, 64), tl.arange(0, K)
    sums = tl.zeros((64, 64), tl.float32)
    for at in range(0, 2048, K):
        tile = tl.load(src + rows[:, None] * 2048 + at + k[None, :])
        sums = tl.dot(tile, tl.trans(tile), sums)
    tl.store(dst + rows[:, None] * 64 + rows[None, :], sums)


@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (256, 512)], key=[])
@triton.jit
def _doubled(src, dst, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at) * 2)


def product(x):
    y, z = (torch.empty(4096, device=x.device) for _ in range(2))
    _product[(1,)](torch.empty(64 * 2048, device=x.device, dtype=torch.float16), y)
    _doubled[lambda meta: (4096 // meta["BLOCK"],)](y, z)
    return z
"""  # 1024 columns of three stages do not fit the shared memory of any device


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return trace(tmp_path_factory.mktemp("tuned"), SNIPPET)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("choices"), TWO)


def blocks(entries: list[dict[str, Any]], name: str = "BLOCK") -> list[int]:
    """The value of a parameter in each configuration of a case with one autotuned launch."""
    return [config[name] for e in entries for config in e["configs"].values()]


def grids(entries: list[dict[str, Any]]) -> list[list[int]]:
    """The blocks along x that each plan launches."""
    return [[s["grid"][0] for s in e["plan"]["steps"] if "kernel" in s] for e in entries]


def test_every_configuration_becomes_a_plan_in_the_files_order(traced: Traced) -> None:
    entries = traced.entries("even")
    assert blocks(entries) == [256, 512, 1024, 2048]
    assert grids(entries) == [[16], [8], [4], [2]]
    assert len({e["plan"]["steps"][0]["kernel"] for e in entries}) == 4


def test_heuristics_are_applied_to_each_configuration(traced: Traced) -> None:
    even = [e["plan"]["steps"][0]["kernel"] for e in traced.entries("even")]
    ragged = [e["plan"]["steps"][0]["kernel"] for e in traced.entries("ragged")]
    assert [a == b for a, b in zip(even, ragged, strict=True)] == [True, True, False, False]  # 1536 is 6 * 256, 3 * 512


def test_pruning_sees_the_tensors_and_is_obeyed(traced: Traced) -> None:
    assert blocks(traced.entries("pruned")) == [256, 512]


def test_a_pre_hook_sets_the_block_of_a_host_descriptor(traced: Traced) -> None:
    first, second = (e["plan"]["steps"][0] for e in traced.entries("described"))
    assert first["signature"][:2] == ["tensordesc<fp16[16, 32]>"] * 2
    assert second["signature"][:2] == ["tensordesc<fp16[32, 32]>"] * 2
    given = first["args"][0]
    assert (given["desc"]["t"], given["shape"], given["strides"], given["block"]) == (1, [64, 32], [32, 1], [16, 32])


def test_the_plan_holds_a_configurations_pre_hook_but_nothing_of_the_benchmark(traced: Traced) -> None:
    hooked, plain = (e["plan"]["steps"] for e in traced.entries("summed"))
    assert [s.get("op", "launch") for s in hooked] == ["aten.zero_.default", "launch"]
    assert [s.get("op", "launch") for s in plain] == ["launch"]


def test_a_launcher_that_asks_for_the_best_configuration_gets_the_plans_own(traced: Traced) -> None:
    entries = traced.entries("asked")
    assert [e["plan"]["out"][0]["size"] for e in entries] == [[n] for n in blocks(entries)]


def test_the_limit_on_configurations_is_honoured(tmp_path_factory: pytest.TempPathFactory) -> None:
    limited = trace(tmp_path_factory.mktemp("limited"), SNIPPET, limit=3, cases=["even"])
    assert blocks(limited.entries("even")) == [256, 512, 1024]


def test_configurations_build_and_are_named_by_their_parameters(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("named")
    made = write(folder, SNIPPET)
    built = builder(folder, made).build(made.source, {"CASES": ["described", "summed"]}, None)
    assert built.failures == ()
    assert [c.label for c in built.choices["CASES/described"]] == [
        "ROWS=16 num_warps=4 num_stages=3",
        "ROWS=32 num_warps=4 num_stages=3",
    ]
    assert [c.config["BLOCK"] for c in built.choices["CASES/summed"]] == [256, 512]


def test_two_autotuned_launches_give_a_sum_of_plans_not_a_product(tmp_path_factory: pytest.TempPathFactory) -> None:
    two = trace(tmp_path_factory.mktemp("two"), TWO)
    assert grids(two.entries("chained")) == [[16, 16], [8, 16], [4, 16], [16, 8], [16, 4]]
    assert grids(two.entries("again")) == [[16, 8], [8, 8], [4, 8], [16, 4], [16, 2]]


@pytest.mark.parametrize(
    ("first", "second", "plans"),
    [
        (256, 1024, [[16, 4], [8, 4], [4, 4]]),
        (1024, 512, [[4, 8], [16, 8], [8, 8]]),
        (64, 512, [[16, 8], [8, 8], [4, 8]]),  # what is known of the first is not in its list
    ],
)
def test_a_launch_that_is_not_varied_has_the_best_that_is_known_of_it(
    first: int, second: int, plans: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    known = {"CASES/chained": {"_first": [{"BLOCK": first}], "_second": [{"BLOCK": second, "num_warps": 4}]}}
    two = trace(tmp_path_factory.mktemp("known"), TWO, limit=3, cases=["chained"], known=known)
    assert grids(two.entries("chained")) == plans


@pytest.mark.parametrize(
    ("known", "plans"),
    [
        ({"_first": [{"BLOCK": 1024}], "_second": [{"BLOCK": 512}]}, [[4, 8], [4, 16], [4, 4]]),
        ({"_second": [{"BLOCK": 512}]}, [[16, 8], [8, 8], [4, 8]]),
    ],
)
def test_only_kernels_that_are_named_are_varied_and_those_of_which_nothing_is_known(
    known: dict[str, list[dict[str, object]]], plans: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, varied = tmp_path_factory.mktemp("varied"), frozenset({"_second"})
    two = trace(folder, TWO, limit=3, cases=["chained"], known={"CASES/chained": known}, varied=varied)
    assert grids(two.entries("chained")) == plans


def test_a_first_configuration_that_does_not_fit_is_passed_over_for_the_other_launches(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("wide")
    made = write(folder, WIDE)
    built = builder(folder, made).build(made.source, {"CASES": ["product"]}, None)
    configs = [c.config for c in built.choices["CASES/product"]]
    assert [(c["_product.K"], c["_doubled.BLOCK"]) for c in configs] == [(64, 256), (64, 512)]
    assert "out of resource" in built.failures[0].message.lower()


@pytest.mark.parametrize("case", ["chained", "again"])
def test_every_plan_of_two_autotuned_launches_becomes_a_choice(case: str, two: Built) -> None:
    assert two.failures == ()
    assert len({c.label for c in two.choices[f"CASES/{case}"]}) == 5


def test_a_configuration_says_what_launches_have_that_no_entry_varies(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("few")
    made = write(folder, TWO)
    built = builder(folder, made).build(made.source, {"CASES": ["chained"]}, 2)
    options = built.choices["CASES/chained"]
    assert [o.label for o in options] == [f"_first: BLOCK={b} num_warps=4 num_stages=3" for b in (256, 512)]
    assert [(o.config["_first.BLOCK"], o.config["_second.BLOCK"]) for o in options] == [(256, 256), (512, 256)]


def test_a_librarys_own_tuner_is_not_timed_and_its_list_is_taken(traced: Traced) -> None:
    assert blocks(traced.entries("owned")) == [256, 512]
