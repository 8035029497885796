"""Checks that the numbers in a text come from a profile: every summary must pass, whoever wrote it.

A number is accepted if some value of the profile, or a number in one of its sentences, rounds to it as printed; a share
may be in percent, and a quantity in a unit of `UNITS`. Digits in names (C7515, sm_90, exp2) and the numbers of a list
do not count. The check does not know what a number describes, nor numbers in words ("twice"), and a profile has many
small integers: a text that passes may still be wrong, but one that fails holds an invented number.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from pgo_agent.sandbox.json_codec import Record

UNITS = {  # as printed -> what a value of the profile is multiplied by: it may be in seconds, ns, FLOP/s or bytes
    "%": (100.0,),
    "ms": (1.0, 1e3, 1e-6),
    "us": (1e6, 1e3, 1e-3),
    "ns": (1.0, 1e9),
    "TFLOP/s": (1e-12,),
    "TB/s": (1e-12,),
    "GB/s": (1e-9,),
    "GB": (1e-9,),
    "MB": (1e-6,),
    "KiB": (1 / 1024,),
}
_ENUMERATED = re.compile(r"^\s*\d+[.)]\s", re.M)
_NUMBER = re.compile(
    r"(?<![\w.])(?=\.?\d)(\d{1,3}(?:,\d{3})+(?!\d)|\d*)(\.\d+)?(?:e([-+]?\d{1,2}))?(?: ?(%|[A-Za-z/]+))?"
)


@dataclass(frozen=True)
class _Printed:
    text: str  # as it stands there
    value: float
    half: float  # of the last digit
    unit: str


def unfounded(text: str, *profiles: Record) -> list[str]:
    """Return the numbers of a text that are in none of the profiles, in order."""
    values, in_sentences = _collect(profiles)
    return [n.text for n in _numbers(_ENUMERATED.sub("", text)) if not _founded(n, values, in_sentences)]


def _founded(n: _Printed, values: set[float], in_sentences: set[tuple[float, str]]) -> bool:
    if (n.value, n.unit) in in_sentences:
        return True
    scales = UNITS.get(n.unit, (1.0,))
    return any(abs(v * scale - n.value) <= n.half * (1 + 1e-9) for v in values for scale in scales)


def _numbers(text: str) -> Iterator[_Printed]:
    for m in _NUMBER.finditer(text):
        whole, fraction, power, unit = m.groups()
        digits = (whole.replace(",", "") or "0") + (fraction or "")
        scale = 10.0 ** int(power or 0)
        half = 0.5 * 10.0 ** -max(0, len(fraction or "") - 1) * scale
        known_unit = unit if unit in UNITS else ""
        printed = m[0].removesuffix(unit or "").rstrip() if not known_unit else m[0]
        yield _Printed(printed, float(digits) * scale, half, known_unit)


def _collect(profiles: tuple[Record, ...]) -> tuple[set[float], set[tuple[float, str]]]:
    """The absolute values, and the numbers in sentences with their units."""
    values: set[float] = set()
    in_sentences: set[tuple[float, str]] = set()
    for leaf in _leaves(profiles):
        if isinstance(leaf, str):
            in_sentences |= {(n.value, n.unit) for n in _numbers(leaf)}
        elif math.isfinite(leaf):
            values.add(abs(float(leaf)))
    return values, in_sentences


def _leaves(x: object) -> Iterator[float | str]:
    """Yield all numbers and strings of records, their properties included."""
    if isinstance(x, str | int | float) and not isinstance(x, bool):
        yield x
    elif isinstance(x, dict):
        for key, value in x.items():
            yield key
            yield from _leaves(value)
    elif isinstance(x, tuple | list):
        for value in x:
            yield from _leaves(value)
    elif is_dataclass(x):
        computed = (n for n, p in vars(type(x)).items() if isinstance(p, property))
        for name in (*(f.name for f in fields(x)), *computed):
            yield from _leaves(getattr(x, name))
