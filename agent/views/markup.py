"""Templates of pages and reports: Jinja2 with undefined names forbidden and every value escaped, whoever chose it.

Names are paths below `agent/`: "views/page.html.j2". What a template is given is its caller's.
"""

from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any


@cache
def template(name: str, shown: Callable[[str], str] | None = None) -> Any:
    """`shown`: what every text goes through before it is escaped."""
    import jinja2
    from markupsafe import Markup

    def finalized(x: Any) -> Any:
        return shown(x) if shown and isinstance(x, str) and not isinstance(x, Markup) else x

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalized,
    ).get_template(name)


def _text(name: str) -> str:
    return resources.files("pgo_agent.agent").joinpath(name).read_text(encoding="utf-8")
