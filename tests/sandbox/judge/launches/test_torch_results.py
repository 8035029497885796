"""judge/launches/torch_results.py: a result of torch stays where torch made it, so that no copy is timed."""

import torch
from pgo_agent.sandbox.bundle.schema import Address, Launch, Literal, Op, Plan, Storage, Tensor
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.guard_zones import NAN
from pgo_agent.sandbox.judge.launches.plan_executor import Replay
from pgo_agent.sandbox.judge.launches.torch_results import held_by_torch

X, Y, Z = (Tensor(i, "float32", (2, 8), (8, 1), 0) for i in range(3))
STORAGES = (Storage("input", 64), Storage("made", 64), Storage("made", 64))
STEPS = Op("aten.neg.default", (X,), {}, (Y,)), Op("aten.exp.default", (Y,), {}, (Z,))


def replay(*steps: Op, out: Tensor = Z) -> tuple[Replay, torch.Tensor]:
    x = torch.randn(2, 8)
    plan = Plan({"x": X}, STORAGES, steps, (out,))
    return Replay(Bundle("", {}, {}, {}), plan, {"x": x}, torch.device("cpu")), x


def test_operators_work_on_the_results_of_operators() -> None:
    run, x = replay(*STEPS)
    for _ in range(2):
        run.poison(NAN)
        run()
        assert torch.equal(run.outputs[0], (-x).exp())


def test_a_result_that_no_launch_reads_is_not_copied() -> None:
    run, _ = replay(*STEPS)
    run.poison(NAN)
    run()
    inside = [a.part(n) for a, n in run._other_arenas]
    assert all(bool(part.view(torch.float32).isnan().all()) for part in inside)  # as it was filled


def test_before_the_first_call_and_after_each_refill_there_is_no_result() -> None:
    run, _ = replay(*STEPS)
    run()
    run.poison(NAN)
    assert bool(run.outputs[0].isnan().all())


def test_a_view_of_a_result_is_a_view_of_what_torch_made() -> None:
    half = Tensor(1, "float32", (2, 4), (8, 1), 4)
    run, x = replay(Op("aten.neg.default", (X,), {}, (Y,)), out=half)
    run()
    assert torch.equal(run.outputs[0], -x[:, 4:])


def test_what_changes_a_result_changes_the_one_that_torch_made() -> None:
    run, x = replay(STEPS[0], Op("aten.add_.Scalar", (Y, 1), {}, (Y,)), out=Y)
    run()
    assert torch.equal(run.outputs[0], 1 - x)


def test_a_result_of_another_layout_than_planned_is_copied_into_it() -> None:
    turned = Tensor(1, "float32", (2, 8), (1, 2), 0)
    run, x = replay(Op("aten.neg.default", (X,), {}, (turned,)), out=turned)
    run()
    assert torch.equal(run.outputs[0], -x) and run.outputs[0].stride() == (1, 2)


def test_results_whose_address_a_launch_is_given_stay_in_the_plans_memory() -> None:
    launch = Launch("k", (1, 1, 1), ("*fp32",), (Y,))
    assert held_by_torch(Plan({"x": X}, STORAGES, (*STEPS, launch), (Z,))) == {2}


def test_two_results_in_one_storage_stay_in_the_plans_memory() -> None:
    halves = Tensor(1, "float32", (1, 8), (8, 1), 0), Tensor(1, "float32", (1, 8), (8, 1), 8)
    assert held_by_torch(Plan({"x": X}, STORAGES, (Op("aten.sort.default", (X,), {}, halves),), (X,))) == set()


def test_a_table_holds_where_the_memory_of_this_replay_lies() -> None:
    table = Literal((Address(0, 0), Address(2, 8), 7), "int64", (3,))
    into = Tensor(1, "int64", (3,), (1,), 0)
    run, _ = replay(
        Op("aten._to_copy.default", (table,), {}, (into,)), Op("aten.exp.default", (X,), {}, (Z,)), out=into
    )
    run()
    assert run.outputs[0].tolist() == [run.view(X).data_ptr(), run.view(Z).data_ptr() + 8, 7]


def test_a_result_whose_address_a_table_holds_lies_in_the_plans_memory_at_each_call() -> None:
    table = Op(
        "aten._to_copy.default", (Literal((Address(1, 0),), "int64", (1,)),), {}, (Tensor(2, "int64", (1,), (1,), 0),)
    )
    plan = Plan({"x": X}, STORAGES, (STEPS[0], table), (Y,))
    assert held_by_torch(plan) == {2}
