"""From the arguments of the cases that a kernel won to a guard: which arguments are like those.

Reads the recorded inputs of plans: shape, strides, dtype and offset of tensors, and plain values. What is the same in
all of the cases must be so; a size that differs may lie between the least and the largest of them, if it is divisible
as they are. Where that would take in a case that the kernel did not win, the very sizes of the cases are asked for.
The text of a guard is Python over the launcher's own arguments; nothing is run here.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pgo_agent.sandbox.bundle.schema import ITEMSIZE
from pgo_agent.sandbox.json_codec import JsonObject

ALIGNED = 16  # bytes: Triton compiles for pointers and sizes that are divisible by 16
Values = dict[str, object]  # expression over the arguments -> its value in one case


@dataclass(frozen=True)
class Test:
    """One comparison of a guard, and whether it holds in a case."""

    text: str
    holds: Callable[[Values], bool]


@dataclass(frozen=True)
class Guard:
    """What arguments must be for a region's kernel: all tests hold, in this order. `exact`: it names single sizes."""

    tests: tuple[Test, ...]
    exact: bool = False

    def holds(self, inputs: JsonObject) -> bool:
        """Return whether it admits the recorded inputs of a case."""
        values = read(inputs)
        with contextlib.suppress(KeyError):  # what is asked for is not there: None in place of a tensor
            return all(t.holds(values) for t in self.tests)
        return False

    @property
    def tensor(self) -> str:
        """The first tensor that it asks about."""
        return next(t.text.partition(".dtype")[0] for t in self.tests if ".dtype" in t.text)

    @property
    def text(self) -> str:
        return "\n        and ".join(t.text for t in self.tests)


def guard(wins: Sequence[JsonObject], others: Sequence[JsonObject], exact: bool = False) -> Guard | None:
    """Return the guard that holds for all of `wins` and for none of `others`; None where there is none.

    `exact`: single sizes from the beginning.
    """
    cases = [read(x) for x in wins]
    if any(c.keys() != cases[0].keys() for c in cases):
        return None  # lists of other lengths, tensors of other ranks
    fixed, free = list(_kinds(cases)), list(_sizes(cases))
    ranges = Guard((*fixed, *(t for e in free for t in _between(e, [_number(e, c) for c in cases]))))
    single = Guard((*fixed, *_among(free, cases)), exact=True)
    for found in (single,) if exact else (ranges, single):
        if not any(found.holds(x) for x in others):
            return found
    return None


def read(inputs: JsonObject) -> Values:
    """Return what guards may ask of the recorded inputs of a case, by expression."""
    values: Values = {}
    for name, x in inputs.items():
        _read(values, name, x)
    return values


def _read(values: Values, e: str, x: object) -> None:
    if isinstance(x, Mapping) and "size" in x:
        size, stride, item = tuple(x["size"]), tuple(x["stride"]), ITEMSIZE[x["dtype"]]
        values[f"{e}.dtype"] = f"torch.{x['dtype']}"
        values[f"{e}.dim()"] = len(size)
        values[f"{e}.shape"], values[f"{e}.stride()"] = size, stride
        values[f"{e}.storage_offset()"] = x.get("offset", 0) * item % ALIGNED == 0
        values |= {f"{e}.shape[{i}]": n for i, n in enumerate(size)}
    elif isinstance(x, Mapping):  # a float, a type or a device
        values[e] = float.fromhex(x["f"]) if "f" in x else f"torch.{x['torch']}" if "torch" in x else x.get("device")
    elif isinstance(x, list):
        values[f"len({e})"] = len(x)
        for i, one in enumerate(x):
            _read(values, f"{e}[{i}]", one)
    else:
        values[e] = x


# what is asked --------------------------------------------------------------------------------------------------------


def _kinds(cases: Sequence[Values]) -> Iterator[Test]:
    """Yield a test for all that is no size, and for sizes that are the same in all cases, or the same as another."""
    tensors = [e[: -len(".dtype")] for e in cases[0] if e.endswith(".dtype")]
    parts = {e for t in tensors for e in cases[0] if e.startswith(f"{t}.")}
    lengths = [e for e in cases[0] if e.startswith("len(")]
    for e in lengths:  # before their elements are asked for
        yield Test(f"{e[4:-1]} is not None", partial(_there, e))
        yield _same(e, cases)
    for e in tensors:
        yield Test(f"{e} is not None", partial(_there, f"{e}.dtype"))
    for e in cases[0]:
        if e not in parts and e not in lengths and not _is_size(e, cases):
            yield _same(e, cases)
    for t in tensors:
        yield _same(f"{t}.dtype", cases)
        yield from _shape(t, tensors, cases)
        yield _strides(t, cases)
        if all(c[f"{t}.storage_offset()"] for c in cases):
            unit = ALIGNED // ITEMSIZE[str(cases[0][f"{t}.dtype"])[6:]]
            if unit > 1:
                yield Test(f"{t}.storage_offset() % {unit} == 0", partial(_true, f"{t}.storage_offset()"))


def _shape(t: str, tensors: Sequence[str], cases: Sequence[Values]) -> Iterator[Test]:
    """Yield tests of the shape of `t`: its rank, and sizes that follow from those of tensors before it."""
    e = f"{t}.shape"
    before = [f"{other}.shape" for other in tensors[: tensors.index(t)]]
    if twin := next((b for b in before if all(c[b] == c[e] for c in cases)), None):
        yield Test(f"{e} == {twin}", partial(_equal, e, twin))
    elif len({c[e] for c in cases}) == 1:
        yield Test(f"{e} == {cases[0][e]}", partial(_one_of, e, frozenset({cases[0][e]})))
    else:
        yield Test(f"{t}.dim() == {cases[0][f'{t}.dim()']}", partial(_one_of, f"{t}.dim()", {cases[0][f"{t}.dim()"]}))
        yield from (_same(f, cases) for f in _axes(t, cases) if not _is_size(f, cases))


def _axes(t: str, cases: Sequence[Values]) -> list[str]:
    return [f"{t}.shape[{i}]" for i in range(_number(f"{t}.dim()", cases[0]))]


def _strides(t: str, cases: Sequence[Values]) -> Test:
    """Return the test of a tensor's layout: dense in one order of its axes, or the very strides of the cases."""
    orders = {_order(c[f"{t}.shape"], c[f"{t}.stride()"]) for c in cases}
    (order,) = orders if len(orders) == 1 else (None,)
    if order is None:
        return _same(f"{t}.stride()", cases)
    plain = order == tuple(range(len(order)))
    text = f"{t}.is_contiguous()" if plain else f"{t}.permute{order}.is_contiguous()"
    return Test(text, lambda c: _order(c[f"{t}.shape"], c[f"{t}.stride()"]) == order)


def _order(shape: object, stride: object) -> tuple[int, ...] | None:
    """Return the order of axes in which a tensor is contiguous; None if there is none."""
    assert isinstance(shape, tuple) and isinstance(stride, tuple)
    plain = tuple(range(len(shape)))
    for order in (plain, tuple(sorted(plain, key=lambda i: (-stride[i], -shape[i])))):
        expected = 1
        for i in reversed(order):
            if shape[i] != 1 and stride[i] != expected:
                break
            expected *= shape[i]
        else:
            return order
    return None


def _same(e: str, cases: Sequence[Values]) -> Test:
    """Return the test that an expression has one of its values in the cases, or that of one before it."""
    values = [c[e] for c in cases]
    listed = list(dict.fromkeys(values))
    twin = next((b for b in cases[0] if b != e and _before(b, e, cases) and all(c[b] == c[e] for c in cases)), None)
    if twin is not None and len(listed) > 1:
        return Test(f"{e} == {twin}", partial(_equal, e, twin))
    return Test(_comparison(e, listed), partial(_one_of, e, frozenset(listed)))


def _comparison(e: str, values: Sequence[object]) -> str:
    texts = [v if isinstance(v, str) and v.startswith("torch.") else _literal(v) for v in values]
    if len(texts) > 1:
        return f"{e} in ({', '.join(texts)})"
    return f"{e} {'is' if values[0] is None or isinstance(values[0], bool) else '=='} {texts[0]}"


def _literal(value: object) -> str:
    odd = isinstance(value, float) and not math.isfinite(value)
    return f'float("{value}")' if odd else repr(value)


# sizes ----------------------------------------------------------------------------------------------------------------


def _is_size(e: str, cases: Sequence[Values]) -> bool:
    """Whether an expression is a whole number that differs between cases and follows from no other before it."""
    values = [c[e] for c in cases]
    if any(type(v) is not int for v in values) or len(set(values)) == 1 or e.endswith(".dim()") or "len(" in e:
        return False
    return not any(_before(b, e, cases) and all(c[b] == c[e] for c in cases) for b in cases[0])


def _before(b: str, e: str, cases: Sequence[Values]) -> bool:
    """Whether `b` stands before `e`, and is a number that may be asked for."""
    names = list(cases[0])
    return names.index(b) < names.index(e) and type(cases[0][b]) is int and not b.endswith(".dim()")


def _sizes(cases: Sequence[Values]) -> Iterator[str]:
    """Yield the sizes that differ between the cases, but for those of tensors that have the shape of another."""
    tensors = [e[: -len(".dtype")] for e in cases[0] if e.endswith(".dtype")]
    yield from (e for e in cases[0] if "." not in e and _is_size(e, cases))
    for t in tensors:
        yield from (e for e in _axes(t, cases) if _is_size(e, cases))


def _between(e: str, values: Sequence[int]) -> Iterator[Test]:
    low, high, unit = min(values), max(values), math.gcd(ALIGNED, *values)
    yield Test(f"{low} <= {e} <= {high}", lambda c: low <= _number(e, c) <= high)
    if unit > 1:
        yield Test(f"{e} % {unit} == 0", lambda c: _number(e, c) % unit == 0)


def _among(free: Sequence[str], cases: Sequence[Values]) -> Iterator[Test]:
    if not free:
        return
    listed = list(dict.fromkeys(tuple(c[e] for e in free) for c in cases))
    if len(free) == 1:
        yield Test(_comparison(free[0], [v for (v,) in listed]), partial(_one_of, free[0], {v for (v,) in listed}))
    else:
        text = f"({', '.join(free)}) in ({', '.join(map(str, listed))})"
        yield Test(text, lambda c: tuple(c[e] for e in free) in listed)


def _number(e: str, case: Values) -> int:
    value = case[e]
    return value if isinstance(value, int) else -1  # no size


def _one_of(e: str, values: frozenset[object] | set[object], case: Values) -> bool:
    return case[e] in values


def _equal(e: str, twin: str, case: Values) -> bool:
    return case[e] == case[twin]


def _there(e: str, case: Values) -> bool:
    return e in case


def _true(e: str, case: Values) -> bool:
    return bool(case[e])
