"""The templates in `prompts/`: rendered by Jinja2, which forbids undefined names, and identified by their hash.

`fenced` marks where data begins and ends. The caller chooses the values and uses the text.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import Any

PARTS = {"optimizer": ("cards", "formats", "sections")}  # folders of templates that a prompt is made of


def render(name: str, **values: Any) -> str:
    """Return the text of `prompts/NAME.j2` with these values. Raises jinja2.UndefinedError for a missing one."""
    return str(_compiled(name).render(**values))


@cache
def digest(name: str) -> str:
    """Return the SHA-256 of a template and of those that its prompt is made of: it says which prompt led to a reply."""
    root = resources.files("pgo_agent.prompts")
    parts = [f"{folder}/{file.name}" for folder in PARTS.get(name, ()) for file in root.joinpath(folder).iterdir()]
    texts = [_template(part.removesuffix(".j2")) for part in sorted(parts) if part.endswith(".j2")]
    return hashlib.sha256("\0".join([_template(name), *texts]).encode()).hexdigest()


def fenced(what: str, text: str) -> str:
    """Return a line to put before and after a text. A text cannot hold its own hash, so it cannot fake that line."""
    return f"--- {what} {hashlib.sha256(text.encode()).hexdigest()[:12]} ---"


@cache
def _compiled(name: str) -> Any:
    """Return a template as Python code: that takes longer than to fill it in."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_template(name))


@cache
def _template(name: str) -> str:
    return resources.files("pgo_agent.prompts").joinpath(f"{name}.j2").read_text(encoding="utf-8")
