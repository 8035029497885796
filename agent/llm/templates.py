"""The templates in `prompts/`: rendered by Jinja2 with undefined names forbidden, and told apart by their hash.

`fenced` marks where data begins and ends. What a template is given, and what becomes of the text, is its caller's.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import Any

PARTS = {"optimizer": ("cards", "formats", "sections")}  # folders of templates that a prompt is put together from


def render(name: str, **values: Any) -> str:
    """The text of `prompts/NAME.j2` with these values. Raises jinja2.UndefinedError for one that is missing."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_template(name)).render(**values)


@cache
def digest(name: str) -> str:
    """SHA-256 of the template, and of those that its prompt is put together from: which prompt a reply came from."""
    root = resources.files("pgo_agent.prompts")
    parts = [f"{folder}/{file.name}" for folder in PARTS.get(name, ()) for file in root.joinpath(folder).iterdir()]
    texts = [_template(part.removesuffix(".j2")) for part in sorted(parts) if part.endswith(".j2")]
    return hashlib.sha256("\0".join([_template(name), *texts]).encode()).hexdigest()


def fenced(what: str, text: str) -> str:
    """A line to put before and behind a text: none can hold its own hash, so it cannot pretend to be outside."""
    return f"--- {what} {hashlib.sha256(text.encode()).hexdigest()[:12]} ---"


@cache
def _template(name: str) -> str:
    return resources.files("pgo_agent.prompts").joinpath(f"{name}.j2").read_text(encoding="utf-8")
