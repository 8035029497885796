"""How a process of ours imports what is heavy."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def heavy() -> Iterator[None]:
    """Around imports of torch: they make objects that stay, and looking for garbage among them takes a sixth of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
