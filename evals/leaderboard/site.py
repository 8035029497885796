"""`pgo-agent eval site`: writes the pages of rows into a folder, and `results.json` with the same figures beside them.

The pages load nothing, run nothing and open from a file. What is in the folder is replaced file by file, each whole.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pgo_agent.agent.views.html import template
from pgo_agent.agent.views.profile.output import put
from pgo_agent.evals.field import run as field
from pgo_agent.evals.field.targets import FieldTarget
from pgo_agent.evals.gate import report
from pgo_agent.evals.leaderboard import packages, pages, rank
from pgo_agent.evals.leaderboard.packages import Standing
from pgo_agent.evals.nightly import load
from pgo_agent.evals.nightly.load import Found
from pgo_agent.evals.nightly.report import mean
from pgo_agent.evals.nightly.row import BASES, Row
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

INDEX, DATA = "index.html", "results.json"
HEAVY = ("ms",)  # of a case: raw samples stay in the files of rows, which results.json names


def main(files: Sequence[Path], folder: Path) -> int:
    """Write the site; return 0. Raises UsageFault for files that hold no row, EnvironmentFault where it cannot
    write."""
    contents = load.files([f for f in files if not field.holds_targets(f)])
    targets = field.of_files(sorted(filter(field.holds_targets, files), key=lambda f: f.stat().st_mtime))
    if not contents.rows and not contents.gate:
        why = "; ".join(contents.notes) or "no run has ended yet"
        raise UsageFault(f"these files hold no row: {why}", "go on with `pgo-agent eval nightly`")
    if folder.exists() and not folder.is_dir():
        raise UsageFault(f"{folder} is no folder", "name another with -o")
    for name, text in site(contents, load.names(files), targets):
        put(folder / name, text)
    return 0


def site(contents: Found, files: Sequence[str], targets: Sequence[FieldTarget] = ()) -> Iterator[tuple[str, str]]:
    """Yield file name and text of everything. `targets`: of kernels of public packages."""
    boards, of_packages = packages.others(contents.rows), packages.boards(contents.rows)
    tones = pages.colors([*boards, *of_packages])
    standings = packages.standings(contents.rows, targets)
    first = {
        "boards": [pages.board(b, tones) for b in boards],
        "packages": packages.section(standings),
        "gate": report.rates(contents.gate),
        "files": files,
        "notes": contents.notes,
    }
    yield INDEX, _render("index.html.j2", **first)
    for b in (*boards, *of_packages):
        for name in b.kernels:
            yield pages.page(b, name), _render("kernel.html.j2", **pages.kernel(b, name, tones))
    yield DATA, json.dumps(data(contents, files, standings), indent=1, sort_keys=True) + "\n"


def data(contents: Found, files: Sequence[str], standings: Sequence[Standing]) -> JsonObject:
    """Return what the site shows, for programs."""
    boards = packages.others(contents.rows)
    return {
        "files": list(files),
        "gate": report.rates(contents.gate),
        "gpus": {b.gpu: _board(b) for b in boards},
        "kernels of public packages": packages.data(standings),
    }


def _board(board: rank.Board) -> JsonObject:
    by = {o: [r for r in board.last if r.optimizer == o] for o in board.optimizers}
    return {
        "mean": {o: {b: mean(rows, b) for b in BASES} for o, rows in by.items()},
        "noise": rank.noise(board.last),
        "last": [_row(r) for r in board.last],
        "nights": [
            {"file": rows[0].file, "when": label, "runs": [r.run for r in rows]} for label, rows in board.nights
        ],
    }


def _row(r: Row) -> JsonObject:
    values = r.as_json() | {"file": r.file}
    cases = json_codec.from_json(dict[str, JsonObject], values["cases"])
    return values | {"cases": {n: {k: v for k, v in c.items() if k not in HEAVY} for n, c in cases.items()}}


def _render(name: str, **values: Any) -> str:
    return str(template(name, package="pgo_agent.evals.leaderboard").render(**values))
