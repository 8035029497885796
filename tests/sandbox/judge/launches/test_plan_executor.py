"""judge/replay.py: a plan runs only on inputs like those it was recorded for, between guard zones. CPU tensors suffice.

Not covered: launches, which need a GPU.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox import guard_zones
from pgo_agent.sandbox.bundle.schema import Launch, Op, Plan, Storage, Tensor, TorchName
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.guard_zones import GUARD, NAN, ZERO, Arena, Fill, Guarded
from pgo_agent.sandbox.judge.launches.plan_executor import Replay
from pgo_agent.sandbox.judge.launches.planned_inputs import match_inputs, paired

Inputs = dict[str, Any]


def planned(inputs: Inputs) -> Plan:
    """The plan that an honest tracer records for these inputs."""
    storages: dict[int, tuple[int, int]] = {}

    def recorded(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(map(recorded, value))
        if isinstance(value, torch.dtype):
            return TorchName(str(value)[6:])
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        index, _ = storages.setdefault(storage.data_ptr(), (len(storages), storage.nbytes()))
        size, stride = tuple(value.shape), tuple(value.stride())
        return Tensor(index, str(value.dtype)[6:], size, stride, value.storage_offset())

    written = {name: recorded(value) for name, value in inputs.items()}
    return Plan(written, tuple(Storage("input", n) for _, n in storages.values()), (), ())


def packed() -> Inputs:
    """Three views of one storage, tensors of their own, and scalars."""
    q, k, v = torch.zeros(2, 8, 3, 16, dtype=torch.float16).unbind(2)
    tensors = {"q": q, "k": k, "v": v, "mask": torch.zeros(4, dtype=torch.bool), "bias": torch.zeros(8, 8)}
    return tensors | {"causal": True, "scale": 0.125, "n": 8}


PLAN = planned(packed())


def test_inputs_made_again_by_the_same_function_are_accepted() -> None:
    match_inputs(PLAN, packed())


def test_views_keep_pointing_into_the_shared_storage() -> None:
    inputs = packed()
    pairs = list(paired(PLAN, inputs))
    assert [t.storage for t, _ in pairs] == [0, 0, 0, 1, 2]
    assert all(given is inputs[name] for (_, given), name in zip(pairs, ("q", "k", "v", "mask", "bias"), strict=True))


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3),
        st.one_of(
            st.booleans(),
            st.integers(-(1 << 63), (1 << 64) - 1),
            st.floats(allow_nan=False),
            st.none(),
            st.sampled_from([torch.float16, torch.int8]),
            st.lists(st.integers(0, 9), max_size=3),
            st.lists(st.integers(1, 4), max_size=3).map(lambda size: torch.zeros(size)),
            st.lists(st.integers(1, 4), min_size=2, max_size=3).map(lambda size: torch.zeros(size).transpose(0, 1)[1:]),
        ),
        max_size=5,
    )
)
def test_whatever_inputs_gives_is_accepted_for_its_own_plan(inputs: Inputs) -> None:
    match_inputs(planned(inputs), inputs)


def narrowed(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.reshape(-1), x.new_zeros(1)])[: x.numel()].reshape(x.shape)


OTHERS: dict[str, Callable[[Inputs], Inputs]] = {
    "a name too few": lambda i: {n: v for n, v in i.items() if n != "mask"},
    "a name too many": lambda i: i | {"extra": 1},
    "another name": lambda i: {("Q" if n == "q" else n): v for n, v in i.items()},
    "another shape of as many elements": lambda i: i | {"mask": i["mask"].reshape(2, 2)},
    "another size": lambda i: i | {"mask": torch.zeros(5, dtype=torch.bool)},
    "other strides": lambda i: i | {"bias": i["bias"].T},
    "a type of the same width": lambda i: i | {"mask": i["mask"].view(torch.uint8)},
    "a view with an offset": lambda i: i | {"mask": torch.zeros(5, dtype=torch.bool)[1:]},
    "a view into a larger storage": lambda i: i | {"mask": narrowed(i["mask"])},
    "two views of one storage exchanged": lambda i: i | {"q": i["k"], "k": i["q"]},
    "another integer": lambda i: i | {"n": 9},
    "another float": lambda i: i | {"scale": 0.1250001},
    "another switch": lambda i: i | {"causal": False},
    "none for a scalar": lambda i: i | {"n": None},
    "text for a scalar": lambda i: i | {"n": "8"},
    "a list for a scalar": lambda i: i | {"n": [8]},
    "a tensor for a scalar": lambda i: i | {"n": torch.tensor(8)},
    "a scalar for a tensor": lambda i: i | {"mask": 0},
    "none for a tensor": lambda i: i | {"mask": None},
    "nothing at all": lambda i: {},
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_inputs_are_refused(other: str) -> None:
    with pytest.raises(BadBundle):
        match_inputs(PLAN, OTHERS[other](packed()))


def test_a_refusal_names_the_input() -> None:
    with pytest.raises(BadBundle, match="input 'scale' is not what the plan was recorded for"):
        match_inputs(PLAN, packed() | {"scale": 1.0})


def test_a_refusal_of_names_tells_both_lists() -> None:
    with pytest.raises(BadBundle, match=r"the plan takes \['n', 'x'\], inputs\(\) gave \['x'\]"):
        match_inputs(planned({"x": torch.zeros(1), "n": 1}), {"x": torch.zeros(1)})


def test_separate_tensors_are_refused_where_the_plan_has_one_storage() -> None:
    """Each has the size, strides, offset and storage size that the plan names: only the sharing differs."""
    inputs = packed()
    apart = torch.zeros(2, 8, 3, 16, dtype=torch.float16).unbind(2)[1]
    with pytest.raises(BadBundle, match="inputs share storage in the plan, but inputs\\(\\) gave separate tensors"):
        match_inputs(PLAN, inputs | {"k": apart})


def test_the_same_tensor_twice_is_accepted_where_the_plan_has_it_twice() -> None:
    x = torch.zeros(8)
    match_inputs(planned({"x": x, "y": x}), {"x": x, "y": x})


def test_a_scalar_that_is_nan_is_accepted_for_its_own_plan() -> None:
    match_inputs(planned({"fill": float("nan")}), {"fill": float("nan")})


# running a plan -------------------------------------------------------------------------------------------------------

WHOLE = Tensor(0, "float32", (2, 24), (24, 1), 0)
LEFT, RIGHT = (Tensor(0, "float32", (2, 8), (24, 1), offset) for offset in (0, 8))
OUT = Tensor(1, "float32", (2, 8), (8, 1), 0)


def replayed(*steps: Op, out: Tensor = OUT, most: int = 64) -> tuple[Replay, torch.Tensor]:
    """A plan on two views of one input, and that input."""
    given = torch.arange(48.0).reshape(2, 24)
    plan = Plan({"l": LEFT, "r": RIGHT}, (Storage("input", 192), Storage("made", most)), steps, (out,))
    inputs = {"l": given[:, :8], "r": given[:, 8:16]}
    return Replay(Bundle("", {}, {}, {}), plan, inputs, torch.device("cpu")), given


def test_a_plan_of_torch_ops_gives_their_result_again_and_again() -> None:
    replay, given = replayed(Op("aten.add.Tensor", (LEFT, RIGHT), {}, (OUT,)))
    for buffers in (NAN, ZERO, Fill()):
        replay.poison(buffers)
        replay()
        assert torch.equal(replay.outputs[0], given[:, :8] + given[:, 8:16])
        assert replay.stray() == 0


def test_an_op_of_several_results_gives_all_of_them() -> None:
    places = Tensor(1, "int64", (2, 8), (8, 1), 8)
    replay, given = replayed(
        Op("aten.sort.stable", (LEFT,), {"stable": True, "descending": True}, (OUT, places)), most=192
    )
    replay.poison(NAN)
    replay()
    values, order = given[:, :8].sort(dim=-1, descending=True)
    assert torch.equal(replay.outputs[0], values) and torch.equal(replay.view(places), order)


def test_inputs_are_copied_between_guard_zones_and_stay_views_of_one_storage() -> None:
    replay, given = replayed(Op("aten.neg.default", (LEFT,), {}, (OUT,)))
    copied = replay.view(LEFT)
    assert torch.equal(replay.view(WHOLE), given)
    assert copied.data_ptr() != given.data_ptr()
    assert replay.view(RIGHT).data_ptr() == copied.data_ptr() + 32


def test_poison_leaves_inputs_alone_and_fills_all_else() -> None:
    replay, given = replayed(Op("aten.neg.default", (LEFT,), {}, (OUT,)))
    replay.poison(NAN)
    assert bool(replay.outputs[0].isnan().all())
    assert torch.equal(replay.view(WHOLE), given)


@pytest.mark.parametrize(
    ("storage", "offset"), [(0, 48), (0, -1), (1, 16), (1, -1)], ids=["behind x", "before x", "behind", "before"]
)
def test_an_element_written_outside_of_a_buffer_is_seen(storage: int, offset: int) -> None:
    """Views beyond their buffer never pass check.py; a kernel's pointers can go anywhere."""
    beyond = Tensor(storage, "float32", (1,), (1,), offset)
    replay, _ = replayed(Op("aten.fill_.Scalar", (beyond, 1.0), {}, (beyond,)))
    replay.poison(NAN, NAN)
    assert replay.stray() == 0
    replay()
    assert replay.stray() == 4


def test_what_equals_what_a_zone_held_in_one_run_is_seen_in_another() -> None:
    beyond = Tensor(1, "int64", (1,), (1,), 8)
    replay, _ = replayed(Op("aten.fill_.Scalar", (beyond, -1), {}, (beyond,)))
    seen = []
    for zones in (NAN, Fill(seed=1), Fill(seed=2)):
        replay.poison(ZERO, zones)
        replay()
        seen.append(replay.stray() > 0)
    assert seen == [False, True, True]


def test_what_is_put_where_zones_of_inputs_are_stays_until_it_is_looked_for() -> None:
    """Between timed launches the buffers are filled anew, and not the zones of the inputs: at the end they tell."""
    before = Tensor(0, "float32", (1,), (1,), -1)
    replay, _ = replayed(Op("aten.fill_.Scalar", (before, 1.0), {}, (before,)))
    replay.poison(Fill())
    replay()
    replay.wipe(Fill())
    assert replay.stray() > 0
    replay.poison(Fill())
    assert replay.stray() == 0


def test_a_launch_of_no_blocks_is_none() -> None:
    """Triton's own launcher leaves it out; the driver would refuse it."""
    nothing = Launch("k", (0, 4, 1), (), ())
    plan = Plan({}, (Storage("made", 16),), (nothing,), (Tensor(0, "float32", (4,), (1,), 0),))
    replay = Replay.__new__(Replay)
    replay.plan, replay.kernels = plan, {}
    replay._launch(0, nothing)()


def test_bytes_of_chance_follow_from_their_seed_and_hold_every_byte() -> None:
    memory = [torch.empty(n, dtype=torch.uint8) for n in (1 << 16, 1 << 16, (1 << 16) + 3)]
    for fill, tensor in zip((Fill(seed=3), Fill(seed=4), Fill(seed=3)), memory, strict=True):
        fill.into(tensor)
    assert torch.equal(memory[0], memory[2][: 1 << 16]) and not torch.equal(memory[0], memory[1])
    for place in range(8):  # of each word: no byte of it is drawn from less than all
        assert memory[0][place::8].unique().numel() == 256
    assert Fill() != Fill()


def test_nothing_between_buffers_is_left_that_is_neither_filled_nor_looked_at() -> None:
    """What lies behind a buffer of odd size, up to where the next one is aligned, is part of its zone."""
    arena = Arena([5, 513, 0, 1024], "cpu")
    assert len({arena.view(n, torch.uint8, (1,), (1,), 0).data_ptr() % 512 for n in range(4)}) == 1
    arena.fill(NAN, Fill())
    whole = arena.view(0, torch.uint8, (arena._memory.numel(),), (1,), -arena._starts[0])
    inside = torch.zeros(whole.numel(), dtype=torch.bool)
    for start, size in zip(arena._starts, arena._sizes, strict=True):
        inside[start : start + size] = True
    for at in (0, arena._starts[0] - 1, arena._starts[0] + 5, arena._starts[1] - 1, whole.numel() - 1):
        assert not inside[at]
        whole[at] += 1
        assert int(arena.strays()) == 1
        whole[at] -= 1
    whole[inside] = 7
    assert int(arena.strays()) == 0


def test_a_replay_that_is_closed_leaves_nothing_in_its_memory() -> None:
    replay, _ = replayed(Op("aten.neg.default", (LEFT,), {}, (OUT,)))
    replay()
    out = replay.outputs[0]
    replay.close()
    assert not out.any()


@pytest.mark.parametrize("nbytes", [0, 1, 4097])
def test_guarded_memory_is_as_well_aligned_as_what_it_lies_in(nbytes: int) -> None:
    guarded = Guarded(nbytes, "cpu")
    whole = guarded.view(torch.uint8, (nbytes + GUARD,), (1,), -GUARD)
    assert GUARD % 512 == 0
    assert guarded.view(torch.uint8, (1,), (1,), 0).data_ptr() == whole.data_ptr() + GUARD
    assert (guarded.bytes.numel(), guarded.storage().nbytes()) == (nbytes, nbytes)


def test_what_is_read_outside_is_nan_until_a_pattern_is_set() -> None:
    behind = Guarded(8, "cpu").view(torch.float16, (4,), (1,), 4)
    assert bool(behind.isnan().all())


def test_strays_are_counted_in_bytes() -> None:
    guarded = Guarded(8, "cpu")
    guarded.arm(0)
    guarded.view(torch.float32, (1,), (1,), -1).fill_(1.0)  # 00 00 80 3f
    assert guard_zones.said(guarded.stray()) == "wrote 2 bytes outside of its output"


def test_parts_of_a_plan_one_after_another_do_what_the_whole_does() -> None:
    """A buffer is filled with ones, then another with twos: each only by its own step."""
    buffers = tuple(Tensor(i, "float32", (4,), (1,), 0) for i in range(2))
    steps = tuple(Op("aten.full.default", ((4,), float(n + 1)), {}, (b,)) for n, b in enumerate(buffers))
    plan = Plan({}, (Storage("made", 16), Storage("made", 16)), steps, buffers)
    replay = Replay(Bundle("", {}, {}, {}), plan, {}, torch.device("cpu"))
    replay.poison(ZERO)
    replay.part(range(1))
    assert [o.tolist() for o in replay.outputs] == [[1.0] * 4, [0.0] * 4]
    replay.part(range(1, 2))
    assert [o.tolist() for o in replay.outputs] == [[1.0] * 4, [2.0] * 4]


def test_without_guard_zones_each_buffer_is_an_allocation_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker of memory tells accesses outside by allocations."""
    monkeypatch.setattr(guard_zones, "GUARD", 0)
    replay, given = replayed(Op("aten.neg.default", (LEFT,), {}, (OUT,)))
    replay.poison(Fill())
    replay()
    assert torch.equal(replay.outputs[0], -given[:, :8]) and replay.stray() == 0
    sizes = [t.untyped_storage().nbytes() for t in (replay.view(WHOLE), replay.outputs[0])]
    assert sizes == [192, 64]
