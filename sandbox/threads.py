"""Threads for work side by side that Ctrl-C does not wait for.

What they leave half done are boxed processes, which end with this one, and files that count only when they are whole.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool. The end of the block waits for its work, except after Ctrl-C; an exception drops what has not
    begun."""
    pool, wait = ThreadPoolExecutor(count), True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait, cancel_futures=True)
