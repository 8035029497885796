"""Compares what inputs() gave with the inputs that a plan was recorded for, and pairs them. Launches nothing."""

from collections.abc import Iterator
from typing import Any

import torch
from pgo_agent.sandbox.bundle.decode import flat
from pgo_agent.sandbox.bundle.schema import Plan, Tensor, TorchName
from pgo_agent.sandbox.errors import BadBundle
from torch.utils._pytree import tree_leaves


def match_inputs(plan: Plan, inputs: dict[str, object]) -> None:
    """Compare inputs with those of the plan: names, scalars, shapes, strides, aliasing. Raises BadBundle."""
    if set(plan.inputs) != set(inputs):
        raise BadBundle(f"the plan takes {sorted(plan.inputs)}, inputs() gave {sorted(inputs)}")
    for name, planned in plan.inputs.items():
        if not _same(planned, inputs[name], plan):
            raise BadBundle(f"input '{name}' is not what the plan was recorded for")
    shared: dict[int, int] = {}
    for t, value in paired(plan, inputs):
        if shared.setdefault(t.storage, value.untyped_storage().data_ptr()) != value.untyped_storage().data_ptr():
            raise BadBundle("inputs share storage in the plan, but inputs() gave separate tensors")


def paired(plan: Plan, inputs: dict[str, object]) -> Iterator[tuple[Tensor, Any]]:
    """Give each input tensor of the plan with the tensor that was passed for it."""
    for name, planned in plan.inputs.items():
        pairs = zip(flat((planned,)), tree_leaves(inputs[name]), strict=False)
        yield from ((t, given) for t, given in pairs if isinstance(t, Tensor))


def _same(planned: Any, value: Any, plan: Plan) -> bool:
    if isinstance(value, list | tuple):
        alike = isinstance(planned, tuple) and len(planned) == len(value)
        return alike and all(_same(p, v, plan) for p, v in zip(planned, value, strict=True))
    if isinstance(value, torch.Tensor):
        return _same_tensor(planned, value, plan)
    if isinstance(value, torch.dtype):
        return bool(planned == TorchName(str(value)[6:]))
    both_nan = isinstance(value, float) and isinstance(planned, float) and value != value and planned != planned
    return bool(both_nan or value == planned)


def _same_tensor(planned: Any, value: Any, plan: Plan) -> bool:
    return (
        isinstance(planned, Tensor)
        and planned.dtype == str(value.dtype)[6:]
        and planned.size == tuple(value.shape)
        and planned.stride == tuple(value.stride())
        and planned.offset == value.storage_offset()
        and plan.storages[planned.storage].nbytes == value.untyped_storage().nbytes()
    )
