"""How our processes import heavy libraries."""

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def heavy() -> Iterator[None]:
    """Turn garbage collection off around imports of torch: the objects stay, and collecting takes a sixth of the
    time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def uncompiled(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch.compile out of a `__torch_dispatch__`, as torch does for every mode, without importing torch._dynamo.

    That import takes half as long as torch's, and where nobody has imported it nothing is compiled. For modes whose
    `_should_skip_dynamo` is false: torch would wrap the method once more.
    """
    import torch

    kept_out = torch._disable_dynamo(dispatch, recursive=True)

    @functools.wraps(dispatch)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (kept_out if "torch._dynamo" in sys.modules else dispatch)(*args, **kwargs)

    return call
