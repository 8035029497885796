"""Threads for work side by side that Ctrl-C does not wait for.

What they leave half done are boxed processes, which end with this one, and files that count only when they are whole.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


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


def as_they_end(
    work: Mapping[str, Callable[[], T]], more: Callable[[], bool], at_once: Callable[[], int]
) -> Iterator[tuple[str, T]]:
    """Yield (name, result) of each piece of work, in the order in which they end.

    `more`: asked before another piece is begun; begun pieces are finished. `at_once`: pieces that may run now; it may
    fall, and does not rise. Raises the first error of a piece, once all others have ended.
    """
    waiting, running = list(work.items()), dict[Future[T], str]()
    failed: BaseException | None = None
    pool = ThreadPoolExecutor(max(1, at_once()))
    try:
        while True:
            while waiting and not failed and len(running) < at_once() and more():
                name, do = waiting.pop(0)
                running[pool.submit(do)] = name
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [f for f in running if f in done]:
                name, error = running.pop(future), future.exception()
                failed = failed or error
                if error is None:
                    yield name, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait
    if failed:
        raise failed
