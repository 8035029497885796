"""How our processes import heavy libraries."""

import contextlib
import gc
from collections.abc import Iterator


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
