"""Marks for tests whose parameters each take seconds."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(values: Iterable[Any]) -> list[Any]:
    """The first of several parameters as it is, the others marked slow: `make test` attacks the property once."""
    return [pytest.param(v, marks=[pytest.mark.slow] if i else []) for i, v in enumerate(values)]
