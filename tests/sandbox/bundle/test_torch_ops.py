"""bundle/torch_ops.py: the operators that a plan may hold are torch's, and compute from their arguments alone."""

import torch
from pgo_agent.sandbox.bundle import torch_ops
from pgo_agent.sandbox.bundle.torch_ops import OPS, alike


def overload(name: str) -> torch._ops.OpOverload:
    _, packet, which = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), which)


def test_every_operator_is_torchs_and_draws_no_random_numbers() -> None:
    drawing = {n for n in OPS if torch.Tag.nondeterministic_seeded in overload(n).tags}
    given = {n for n in OPS if "generator" in {a.name for a in overload(n)._schema.arguments}}
    assert not drawing | given


def test_an_operator_that_changes_a_tensor_changes_the_one_that_it_returns() -> None:
    for name in OPS:
        changed = [a.name for a in overload(name)._schema.arguments if a.alias_info and a.alias_info.is_write]
        assert changed in ([], ["self"]), name


def test_products_stand_for_one_another_and_for_nothing_else() -> None:
    assert alike({"aten.mm.default", "aten.relu.default"}) == {
        *("aten.mm.default", "aten.addmm.default", "aten.relu.default"),
    }


def test_every_part_of_the_list_is_in_it() -> None:
    parts = {n: v for n, v in vars(torch_ops).items() if n.isupper() and isinstance(v, tuple) and n != "_PRODUCTS"}
    missing = {op for part in parts.values() for op in part if not {f"aten.{op}", f"aten.{op}.default"} & OPS}
    assert len(parts) > 5 and not missing
