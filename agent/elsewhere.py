"""Work that waits for a judge elsewhere: everything is asked for before anybody waits for one answer.

A piece of work that lacks an answer is begun again once one is there, and finds what was answered before: it must look
into the store before it works, as every step of the loop does. Relies on `sandbox/judge/spool/`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered

T = TypeVar("T")


def together(judge: SpoolJudge, work: Mapping[str, Callable[[], T]]) -> Iterator[tuple[str, T]]:
    """What each piece comes to, by its name, in the order in which they end.

    Raises Unanswered when all that is left waits and nobody is to wait.
    """
    left = dict(work)
    while left:
        for name, do in list(left.items()):
            try:
                with judge.together(name):
                    found = do()
            except Unanswered:
                continue
            del left[name]
            yield name, found
        if left:
            judge.wait()
