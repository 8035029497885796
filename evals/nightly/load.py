"""Reads files of rows, and those of the gate.

Anybody may have written these files: every line is checked, and refused by its number. A last line that was cut off is
left out, with a note. Each row knows its file; nothing is changed or merged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, cast

from pgo_agent.evals.gate.report import BATCH, ENTRY, STANDINGS, GateLine
from pgo_agent.evals.nightly import row
from pgo_agent.evals.nightly.row import Row
from pgo_agent.evals.runner.results import BEGUN, ENDED, PLAN, parsed
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

HINT = "give files of `pgo-agent eval nightly`, or those in evals/results"
GATE = (ENTRY, BATCH)
BESIDE = {
    "sweep",
    "verdict",
    "profile",
    "mutant",
    "time to a result",
    "target",
}  # other records in evals/results: no rows

Line = tuple[int, JsonObject]  # with its number


@dataclass(frozen=True)
class Found:
    """What files hold."""

    rows: tuple[Row, ...] = ()
    gate: tuple[GateLine, ...] = ()  # lines of the gate, as `evals/gate/report.py` writes them
    notes: tuple[str, ...] = field(default=())


def files(paths: Sequence[Path]) -> Found:
    """Return all that several files hold. Raises UsageFault for an unknown line, and for a run that two files hold."""
    contents = [file(p, name) for p, name in zip(paths, names(paths), strict=True)]
    rows = tuple(r for f in contents for r in f.rows)
    _of_different_runs(rows)
    return Found(
        rows, tuple(line for f in contents for line in f.gate), tuple(note for f in contents for note in f.notes)
    )


def names(paths: Sequence[Path]) -> list[str]:
    """Return the name of each file, with as many folders before it as make it unique."""
    parts = [p.absolute().parts for p in paths]
    most = max(map(len, parts), default=1)
    enough = (n for n in range(1, most) if len({e[-n:] for e in parts}) == len(set(parts)))
    length = next(enough, most)
    return [str(Path(*e[-length:])) for e in parts]


def _of_different_runs(rows: Sequence[Row]) -> None:
    """Raise UsageFault when two of them are of one run."""
    by_run: dict[str, str] = {}
    for r in rows:
        if r.run in by_run:
            raise UsageFault(f"{r.file} and {by_run[r.run]} both hold run {r.run}", "give each file once")
        by_run[r.run] = r.file


def file(path: Path, name: str = "") -> Found:
    """Return what one file holds, whose name is said to be `name`. Raises UsageFault."""
    name = name or path.name
    lines, notes = _lines(path, name)
    kinds = {str(line["what"]) for _, line in lines}
    if not lines and not notes:
        return Found(notes=(f"{name} is empty: no run of it was begun",))
    if _of_an_ablation(lines):
        return Found(notes=(*notes, f"{name} holds no rows, but runs that `pgo-agent eval ablation` compares"))
    if kinds and kinds <= {PLAN, BEGUN, ENDED}:
        return Found(tuple(_once(path, _nightly(path, name, lines))), notes=(*notes, *_unended(name, lines)))
    if kinds and kinds <= set(GATE):
        return Found(gate=tuple(_gate(path, lines)), notes=notes)
    if kinds and kinds <= BESIDE:
        return Found(notes=(*notes, f"{name} holds no rows, but records of {' and '.join(sorted(kinds))}"))
    reason = f"holds lines of {', '.join(sorted(kinds))} side by side" if kinds else "holds no line"
    raise UsageFault(f"{path} {reason}: it is no file of rows", HINT)


def _unended(name: str, lines: Sequence[Line]) -> Iterator[str]:
    """Yield what is to be said of runs of a night's plan that have no row; nothing where the file holds no plan."""
    plan: Any = next((line.get("plan") for _, line in lines if line["what"] == PLAN), None)
    try:
        planned = list(product(*(plan[part] for part in ("seeds", "targets", "optimizers")))) if plan else []
        ended = {(line["seed"], line["target"], line["optimizer"]) for _, line in lines if line["what"] == ENDED}
        absent = [f"{Path(t).stem} by {o}, seed {s}" for s, t, o in planned if (s, t, o) not in ended]
    except (KeyError, TypeError):
        return
    if absent:
        yield f"{name}: {len(absent)} of the {len(planned)} runs of its plan have no row: {'; '.join(absent)}"


def _of_an_ablation(lines: Sequence[Line]) -> bool:
    plan = lines[0][1].get("plan") if lines else None
    return isinstance(plan, dict) and "insights" in plan


def _lines(path: Path, name: str) -> tuple[list[Line], tuple[str, ...]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageFault(f"cannot read {path}: {e.strerror}", HINT) from None
    except UnicodeDecodeError:
        raise UsageFault(f"{path} is no text", HINT) from None
    complete = text[: text.rfind("\n") + 1]
    lines: list[Line] = []
    for n, line in enumerate(complete.splitlines(), 1):
        parsed_line = parsed(line)
        if parsed_line is None:
            raise UsageFault(f"{path}, line {n}: it is no row", HINT)
        lines.append((n, parsed_line))
    return lines, ((f"{name}: its last line was cut off, and is left out",) if complete != text else ())


def _nightly(path: Path, name: str, lines: Sequence[Line]) -> Iterator[tuple[int, Row]]:
    for n, line in lines:
        try:
            parsed_row = row.read(line, name)
        except ValueError as e:
            raise UsageFault(f"{path}, line {n}: {e}", HINT) from None
        if parsed_row:
            yield n, parsed_row


def _once(path: Path, rows: Iterator[tuple[int, Row]]) -> Iterator[Row]:
    by_key: dict[tuple[Any, ...], int] = {}
    for n, r in rows:
        if r.key in by_key:
            name = f"{r.kernel}, {r.optimizer}, seed {r.seed}"
            raise UsageFault(
                f"{path}, line {n}: line {by_key[r.key]} is a row of {name}, too", "a night has one of each"
            )
        by_key[r.key] = n
        yield r


def _gate(path: Path, lines: Sequence[Line]) -> Iterator[GateLine]:
    for n, values in lines:
        line = cast(GateLine, values)
        try:
            fine = _batch(line) if line["what"] == BATCH else _entry(line)
        except (AttributeError, KeyError, TypeError):
            fine = False
        if not fine:
            raise UsageFault(f"{path}, line {n}: it does not say what the gate says", HINT)
        yield line


def _batch(line: GateLine) -> bool:
    return all(isinstance(line[name], float | int) for name in ("entries", "wall")) and line["wall"] > 0


def _entry(line: GateLine) -> bool:
    machine = line["environment"] or {}
    texts = (line["entry"], line["stage"], *(machine[name] for name in ("gpu", "driver", "torch")))
    seconds = line.get("stages", {}).values()
    fine = all(isinstance(t, str) for t in texts) and all(isinstance(s, float | int) for s in seconds)
    return fine and line["standing"] in STANDINGS
