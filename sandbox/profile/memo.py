"""Passes and jobs: a pass is a function whose answers are kept, a job is any Python that calls passes and jobs.

A pass's first argument is its context (the content store, and what identifies the machine and the compiler); the others
say what to look at. Its answer is kept in the content store under the hash of its name, version, context and arguments,
so a job that was killed and is called again finds what was done. Nothing is scheduled behind one's back: a pass runs in
the thread that calls it, a breakpoint works, nesting is a call. An exception is never kept.

A pass must be a function of its arguments and of what the context identifies, and its version must be raised when what
it computes changes. Two processes that run the same pass at once both work, and the later answer stays.
"""

import hashlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_type_hints

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle.store import PASSES, ContentStore, canonical
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.threads import threads

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class PassContext(Protocol):
    """Where a pass works."""

    @property
    def contents(self) -> ContentStore:
        """Holds answers and artefacts."""

    @property
    def identity(self) -> str:
        """What answers depend on beside the arguments: device, compiler."""


S = TypeVar("S", bound=PassContext, contravariant=True)


@dataclass(frozen=True)
class Artefact(json_codec.Record):
    """A file in the content store. An answer that names one counts as missing when that is missing or damaged."""

    digest: str
    suffix: str

    @classmethod
    def put(cls, contents: ContentStore, data: bytes, suffix: str) -> "Artefact":
        """Store data. Raises EnvironmentFault when the disk refuses."""
        return cls(contents.put(data, suffix), suffix)

    def read(self, contents: ContentStore) -> bytes:
        """Return its bytes. Raises EnvironmentFault when it is missing or damaged."""
        return contents.get(self.digest, self.suffix)


@dataclass(frozen=True)
class Pass(Generic[S, P, R]):
    """A memoised function. Call it as the function itself; `again` works anew and replaces what was kept."""

    function: Callable[Concatenate[S, P], R]
    name: str
    version: int
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    def __call__(self, context: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self.key(context, *args, **kwargs)
        with self._alone(key):  # a second thread waits for the first one's answer
            stored = self._stored(context, key)
            return stored[0] if stored else self._work(context, key, *args, **kwargs)

    def again(self, context: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it although there is an answer, and keep the new one: for measurements."""
        key = self.key(context, *args, **kwargs)
        with self._alone(key):
            return self._work(context, key, *args, **kwargs)

    def known(self, context: S, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Return whether there is an undamaged answer."""
        return self._stored(context, self.key(context, *args, **kwargs)) is not None

    def key(self, context: S, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return what its answer is kept under. Raises json_codec.Malformed for an argument that JSON has no form
        of."""
        bound = self._signature.bind(context, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])
        return hashlib.sha256(
            canonical([self.name, self.version, context.identity, json_codec.as_json(arguments)])
        ).hexdigest()

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def _returns(self) -> Any:
        return get_type_hints(self.function)["return"]

    def _alone(self, key: str) -> threading.Lock:
        return self._locks.setdefault(key, threading.Lock())

    def _stored(self, context: S, key: str) -> tuple[R] | None:
        record = context.contents.record(PASSES, key)
        try:
            if record is None or record["pass"] != self.name:
                return None
            answer = json_codec.from_json(self._returns, record["answer"])
            for artefact in _artefacts(answer):
                artefact.read(context.contents)
        except (json_codec.Malformed, KeyError, EnvironmentFault):
            return None
        return (answer,)

    def _work(self, context: S, key: str, *args: P.args, **kwargs: P.kwargs) -> R:
        answer = self.function(context, *args, **kwargs)
        context.contents.put_record(PASSES, key, {"pass": self.name, "answer": json_codec.as_json(answer)})
        return answer


def kept(name: str, version: int) -> "Callable[[Callable[Concatenate[S, P], R]], Pass[S, P, R]]":
    """Make a function a pass. Name and version are part of its answers' key: the name stays when the function moves."""
    return lambda function: Pass(function, name, version)


def parallel(calls: Iterable[Callable[[], T]], workers: int) -> tuple[T, ...]:
    """Return the answers of the calls, in their order, `workers` at a time. Raises what the first failing one raised,
    and starts no further call then. With one worker they run in the caller's thread, where a debugger follows them.
    """
    calls = list(calls)
    if workers <= 1 or len(calls) <= 1:
        return tuple(call() for call in calls)
    with threads(workers) as pool:
        return tuple(f.result() for f in [pool.submit(call) for call in calls])


def _artefacts(x: object) -> Iterator[Artefact]:
    if isinstance(x, Artefact):
        yield x
    elif isinstance(x, tuple):
        for v in x:
            yield from _artefacts(v)
    elif isinstance(x, dict):
        yield from _artefacts(tuple(x.values()))
    elif hasattr(x, "__dataclass_fields__"):
        yield from _artefacts(tuple(getattr(x, n) for n in x.__dataclass_fields__))
