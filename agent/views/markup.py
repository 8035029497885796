"""Templates of pages and reports: Jinja2 with undefined names forbidden and every value escaped, whoever chose it.

Names are paths below `agent/`: "views/page.html.j2". What a template is given is its caller's.
"""

from functools import cache
from importlib import resources
from typing import Any


@cache
def template(name: str) -> Any:
    return environment().get_template(name)


@cache
def environment() -> Any:
    """Its filters are added by who needs them, before the first template of theirs is read."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _text(name: str) -> str:
    return resources.files("pgo_agent.agent").joinpath(name).read_text(encoding="utf-8")
