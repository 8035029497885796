"""Which case is run next, with which configuration of its autotuned launches, and for how long there is time for more.

Every case first gets a few configurations, each case other ones than those before it; then come stress inputs, and
then the configurations that no case had yet, until the time for them is up. What the author listed first is tried
first; of what lies behind that, the order is drawn from a seed, so that a list that is cut off was a sample of it.
Plain data in, names and numbers out: it runs nothing.
"""

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PAIRS_SHARE = 0.1  # of the seconds before, for configurations in cases that had others


@dataclass
class Schedule:
    """`least`: case -> configurations that it gets in any case. `late` ones are not begun after `begin_by` seconds,
    nor further configurations after `more_until`."""

    least: Mapping[str, int]
    late: Collection[str] = ()
    begin_by: float = 0.0
    plain: Collection[str] = ()  # cases that get further configurations
    more_until: float = 0.0
    seed: int = 0
    began: float = field(default_factory=time.monotonic)
    listed: dict[str, Sequence[str]] = field(default_factory=dict)  # case -> its configurations, once it ran
    tried: dict[str, set[int]] = field(default_factory=dict)  # case -> indices
    _tried_anywhere: set[str] = field(default_factory=set)  # configurations that some case tried

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "Schedule":
        options = {n: request[n] for n in ("late", "begin_by", "plain", "more_until", "seed") if n in request}
        return cls({n: request["configs"][n] for n in request["cases"]}, **options)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def ran(self, case: str, index: int, listed: Sequence[str], tells: bool) -> None:
        """A case was run; `listed` are all its configurations. `tells`: it gave results, and they have elements."""
        self.listed.setdefault(case, listed)
        self.tried.setdefault(case, set()).add(index)
        if tells:
            self._tried_anywhere.update(listed[index : index + 1])

    def jobs(self) -> Iterator[tuple[str, int]]:
        """(case, index of a configuration), in turn; `ran` is to be told between them."""
        for case in self.least:
            if case in self.late and self.seconds > self.begin_by:
                continue
            yield case, 0
            while len(self.tried[case]) < self.least[case] and (index := self._next(case)) is not None:
                yield case, index
        yield from self._more(new=True, until=self.more_until)
        yield from self._more(new=False, until=min(self.more_until, self.seconds * (1 + PAIRS_SHARE)))

    def _next(self, case: str) -> int | None:
        """The first that no case tried, or else that this one did not."""
        left = self._left(case)
        return next((i for i in left if self.listed[case][i] not in self._tried_anywhere), left[0] if left else None)

    def _left(self, case: str) -> list[int]:
        return [i for i in range(len(self.listed[case])) if i not in self.tried[case]]

    def _more(self, new: bool, until: float) -> Iterator[tuple[str, int]]:
        """Further configurations, case by case in turns: those that no case had, or those that other cases had."""
        drawn = random.Random(self.seed)
        queues = {c: self._left(c) for c in self.plain if c in self.listed}
        for queue in queues.values():
            drawn.shuffle(queue)
        while any(queues.values()):
            for case, queue in queues.items():
                while new and queue and self.listed[case][queue[-1]] in self._tried_anywhere:
                    queue.pop()
                if queue and self.seconds < until:
                    yield case, queue.pop()
            if self.seconds >= until:
                return
