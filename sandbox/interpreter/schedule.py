"""The order of runs: which case is next, with which configuration of its autotuned launches, until when.

Every case first gets a few configurations, other ones than the cases before it. Then come stress inputs, and then
configurations that no case had, until their time is up. The first configurations of a list are tried first; the others
in a random order by a seed, so that a list that is cut off was sampled. Plain data in, names and numbers out: runs
nothing.
"""

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PAIRS_SHARE = 0.1  # of the seconds before, for configurations that only other cases had


@dataclass
class Schedule:
    """The state of the runs of one candidate.

    `least`: case -> number of configurations that it always gets. Cases in `late` are not begun after `begin_by`
    seconds, further configurations not after `more_until`.
    """

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
        """Note a run. `listed`: all configurations of the case. `tells`: it gave results with elements."""
        self.listed.setdefault(case, listed)
        self.tried.setdefault(case, set()).add(index)
        if tells:
            self._tried_anywhere.update(listed[index : index + 1])

    def jobs(self) -> Iterator[tuple[str, int]]:
        """Give (case, index of a configuration) of each run; call `ran` after each."""
        for case in self.least:
            if case in self.late and self.seconds > self.begin_by:
                continue
            yield case, 0
            while len(self.tried[case]) < self.least[case] and (index := self._next(case)) is not None:
                yield case, index
        yield from self._more(new=True, until=self.more_until)
        yield from self._more(new=False, until=min(self.more_until, self.seconds * (1 + PAIRS_SHARE)))

    def _next(self, case: str) -> int | None:
        """Return the first configuration that no case tried, or else this case did not."""
        left = self._left(case)
        return next((i for i in left if self.listed[case][i] not in self._tried_anywhere), left[0] if left else None)

    def _left(self, case: str) -> list[int]:
        return [i for i in range(len(self.listed[case])) if i not in self.tried[case]]

    def _more(self, new: bool, until: float) -> Iterator[tuple[str, int]]:
        """Give further configurations, the cases in turns; with `new` only those that no case had."""
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
