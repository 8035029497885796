"""Forms of JSON values between a run and a judge elsewhere: types and bounds, up to objects and lists.

Each form reads exactly one value and raises BadBundle for anything else. Relies on `sandbox/bundle/decode.py`. Does not
know commands: `protocol.py` does.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pgo_agent.sandbox.bundle.decode import integer, need, word
from pgo_agent.sandbox.errors import BadBundle

MOST, LONGEST = 8192, 1 << 16  # limits: entries of a list or an object; characters of a text
Form = Callable[[Any], object]


def text(x: Any, most: int = LONGEST) -> str:
    need(type(x) is str and len(x) <= most, "a text")
    return str(x)


def line(x: Any) -> str:
    need(text(x).isprintable(), "one printable line")
    return str(x)


def flag(x: Any) -> bool:
    need(type(x) is bool, "true or false")
    return bool(x)


def number(x: Any) -> float:
    need(type(x) in (int, float) and 0 <= x < 1e30, "a number")
    return float(x)


def any_number(x: Any) -> float:
    need(type(x) in (int, float), "a number")
    return float(x)


def duration(x: Any) -> float:
    need(number(x) > 0, "a time")
    return float(x)


def scalar(x: Any) -> None:
    need(x is None or type(x) in (bool, int, float) or (type(x) is str and line(x) == x), "a scalar")


def case_name(x: Any) -> str:
    return word(x, "case")


def path(x: Any) -> str:
    return text(x, 200)


def count(low: int, high: int) -> Form:
    return lambda x: integer(x, low, high, "a count")


def list_of(form: Callable[[Any], Any], most: int = MOST) -> Callable[[Any], list[Any]]:
    def read(x: Any) -> list[Any]:
        need(type(x) is list and len(x) <= most, f"a list of at most {most}")
        return [form(v) for v in x]

    return read


def map_of(form: Form, least: int = 0) -> Form:
    def read(x: Any) -> None:
        need(type(x) is dict and least <= len(x) <= MOST, f"an object of {least} to {MOST}")
        for key, value in x.items():
            text(key, 400)
            form(value)

    return read


def object_of(**forms: Form) -> Form:
    return lambda x: check_fields(x, forms, "object")


def optional(form: Form) -> Form:
    return lambda x: None if x is None else form(x)


def check_fields(x: Any, forms: Mapping[str, Form], what: str) -> None:
    """Check an object of these fields; those whose form takes None may be absent."""
    need(type(x) is dict and set(x) <= set(forms), f"{what} has other fields than {', '.join(forms)}")
    for name, form in forms.items():
        try:
            form(x.get(name))
        except BadBundle as e:
            raise BadBundle(f"{name}: {e}"[:300]) from None
