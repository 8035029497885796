"""The templates in `prompts/`: rendered by Jinja2 with undefined names forbidden, and told apart by their hash.

`fenced` marks where data begins and ends. What a template is given, and what becomes of the text, is its caller's.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import Any


def render(name: str, **values: Any) -> str:
    """The text of `prompts/NAME.j2` with these values. Raises jinja2.UndefinedError for one that is missing."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_template(name)).render(**values)


def digest(name: str) -> str:
    """SHA-256 of the template: which prompt a reply came from."""
    return hashlib.sha256(_template(name).encode()).hexdigest()


def fenced(what: str, text: str) -> str:
    """A line to put before and behind a text: none can hold its own hash, so it cannot pretend to be outside."""
    return f"--- {what} {hashlib.sha256(text.encode()).hexdigest()[:12]} ---"


@cache
def _template(name: str) -> str:
    return resources.files("pgo_agent.prompts").joinpath(f"{name}.j2").read_text(encoding="utf-8")
