"""Prints what a program gained by a patch: outputs, then times with their interval."""

from pgo_agent.agent import text
from pgo_agent.agent.run.proved import FEWEST, Proved
from pgo_agent.agent.run.regression import Ratio
from pgo_agent.agent.views import summary
from rich.markup import escape
from rich.table import Table

_SAID = {
    "faster": "the program is faster with the patch",
    "slower": "the program is slower with the patch",
    "no_difference": "the times tell no difference",
    "other_outputs": "with the patch the program gives other outputs",
}
_STYLE = {"faster": "bold green", "no_difference": "yellow"}


def show(result: Proved) -> None:
    out = summary.output()
    style = _STYLE.get(result.verdict, "red")
    out.print(f"[{style}]{result.verdict}[/{style}]: {_SAID[result.verdict]} ({escape(text.visible(result.patch))})")
    table = Table()
    for column in ("output", "with the patch", "against itself", "allowed"):
        table.add_column(column, overflow="fold")
    for o in result.outputs:
        said = o.problem or ("the same bits" if o.exact else f"{o.relative:.2g} of its size, at most {o.largest:.2g}")
        table.add_row(escape(o.name), escape(said), f"{o.noise:.2g}", f"{o.allowed:.2g}")
    out.print(table)
    what = "a step" if result.of_steps else "the whole program, imports included"
    processes = len(result.seconds["with"])
    out.print(f"{_ratio(result.ratio)} times as fast, by {what}, in {processes} processes of each", highlight=False)
    out.print(f"without the patch against itself: {_ratio(result.itself)}", highlight=False)
    if processes < 2 * FEWEST:
        out.print(f"so few turns tell nothing: give --turns {FEWEST} or more", highlight=False)


def _ratio(r: Ratio) -> str:
    return f"{r[1]:.3f} [{r[0]:.3f}, {r[2]:.3f}]"
