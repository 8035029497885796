"""Templates of pages and reports: Jinja2 with undefined names forbidden and every value escaped.

Names are paths below a package, by default `agent/`: "views/profile/page.html.j2". The caller chooses a template's
values.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib import resources
from typing import Any


@cache
def template(name: str, shown: Callable[[str], str] | None = None, package: str = "pgo_agent.agent") -> Any:
    """Return a template. `shown`: applied to every text before it is escaped."""
    import jinja2
    from markupsafe import Markup

    def finalized(x: Any) -> Any:
        return shown(x) if shown and isinstance(x, str) and not isinstance(x, Markup) else x

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(partial(_text, package)),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalized,
    ).get_template(name)


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
