"""The real bodies of custom ops: their fake rules would hide the launches inside."""

from collections.abc import Callable
from typing import Any


def body(func: Any) -> Callable[..., Any] | None:
    """Return the function that a `torch.library.custom_op` or `triton_op` runs on a GPU; None for another op."""
    from torch._library.custom_ops import OPDEFS

    op = OPDEFS.get(f"{func.namespace}::{func._opname}")
    return None if op is None else op._backend_fns.get("cuda") or op._backend_fns.get(None) or op._init_fn
