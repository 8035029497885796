"""The real bodies of custom ops: their fake rules would hide the launches inside."""

from collections.abc import Callable
from typing import Any

import torch

_GPU_KEYS = ("CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "")
_registered: dict[str, Callable[..., Any]] = {}  # by what `Library.impl` was told


def install() -> None:
    """Remember which function a library registers for an operator on a GPU. Call it before a program is imported."""
    plain = torch.library.Library.impl

    def impl(library: Any, name: Any, function: Any, dispatch_key: str = "", **options: Any) -> Any:
        text = name if isinstance(name, str) else getattr(name, "_name", "")
        if callable(function) and (dispatch_key or library.dispatch_key or "") in _GPU_KEYS:
            _registered[f"{library.ns}::{text.rpartition('::')[2].partition('.')[0]}"] = function
        return plain(library, name, function, dispatch_key, **options)

    torch.library.Library.impl = impl


def body(func: Any) -> Callable[..., Any] | None:
    """Return the function that a `torch.library.custom_op`, a `triton_op` or one of a `Library` runs on a GPU; None for
    another op."""
    from torch._library.custom_ops import OPDEFS

    name = f"{func.namespace}::{func._opname}"
    if (op := OPDEFS.get(name)) is not None:
        found: Callable[..., Any] = op._backend_fns.get("cuda") or op._backend_fns.get(None) or op._init_fn
        return found
    return _registered.get(name)
