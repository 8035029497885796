"""`pgo-agent eval problems`: takes each problem from `init` to the verdicts on what PyTorch's compiler wrote for it.

Each command is a process of its own, as a user would begin it, in a folder with nothing but the problem. No GPU is used
and nothing is measured.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pgo_agent.agent.proposal import compiled_reference as compiled
from pgo_agent.agent.run.record.store import Store
from pgo_agent.evals.field.targets import last_words, run_command
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.temporary_folders import temporary_folder

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.jsonl"
CANDIDATES = 2  # what PyTorch's compiler proposes: with all sizes open, and for rows as long as they are


@dataclass(frozen=True)
class ProblemRow:
    """How far a problem came without a GPU."""

    problem: str
    level: str
    written: bool  # `init` wrote a target
    right: bool  # PyTorch's own results passed its reference on every small case
    small: int  # small cases
    verdicts: dict[str, str]  # move -> verdict on its candidate
    said: str  # why there is none, or not a better one
    seconds: float

    @property
    def came_to(self) -> str:
        """The best verdict on a candidate; without one, how far it came."""
        best = next((v for v in ("accepted", "checked", "built") if v in self.verdicts.values()), "")
        return best or next(iter(self.verdicts.values()), "") or ("right" if self.right else "error")

    def as_json(self) -> JsonObject:
        return dict(asdict(self))


def problems(names: Sequence[str]) -> list[Path]:
    """Return the problems with one of these in their name; of none, all. Raises UsageFault where there is none."""
    found = sorted(p for p in FOLDER.glob("level*/*.py") if not names or any(n in p.stem for n in names))
    if not found:
        raise UsageFault(f"no problem is called {', '.join(names)}", "`ls evals/problems/level*` lists them")
    return found


def rows(files: Sequence[Path], sandbox: str) -> Iterator[ProblemRow]:
    """Yield the row of each problem."""
    for file in files:
        with temporary_folder("problem") as name:
            yield _row(file, name, ["--sandbox", sandbox])


def _row(file: Path, place: Path, options: Sequence[str]) -> ProblemRow:
    began, target = time.monotonic(), f"{file.stem}_target.py"
    shutil.copy(file, place)
    written = run_command(["init", file.name, *options], place)
    if written.returncode:
        return ProblemRow(file.stem, file.parent.name, False, False, 0, {}, last_words(written), _since(began))
    words = ["optimize", target, "--candidates", str(CANDIDATES), "--judge", "cpu", "--json", *options]
    done = run_command(words, place)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    judged = {str(e["move"]): e for e in events if e.get("type") == "candidate.verdict"}
    verdicts = {move: str(e["verdict"]) for move, e in judged.items()}
    said = "; ".join(dict.fromkeys(str(e["reason"]) for e in judged.values() if e["verdict"] != "checked"))
    small = (place / target).read_text().partition("SMALL = {")[2].partition("}")[0].count("dict(")
    right = done.returncode == 0
    why = said if judged else _skipped(place) if right else last_words(done)
    return ProblemRow(file.stem, file.parent.name, True, right, small, verdicts, why[:300], _since(began))


def _skipped(place: Path) -> str:
    """Return why PyTorch's compiler proposed nothing in the run of a folder."""
    store = Store(place / ".pgo-agent")
    return "; ".join(why for _, move, why in store.skipped(store.run("last").id) if move.startswith(compiled.MOVE))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def read(file: Path = RESULTS) -> list[ProblemRow]:
    """Return recorded rows. Raises UsageFault for a line that is none."""
    try:
        return [json_codec.decoded(ProblemRow, json.loads(line)) for line in file.read_text().splitlines()]
    except (OSError, ValueError) as e:
        raise UsageFault(
            f"{file} holds no rows of problems: {e}", "`pgo-agent eval problems -o FILE` writes them"
        ) from None


def table(listed: Sequence[ProblemRow]) -> str:
    """Return a Markdown table of rows."""
    head = "| problem | level | small cases | came to | candidates of PyTorch's compiler |\n|---|---|---:|---|---|\n"
    return head + "".join(f"| `{r.problem}` | {r.level[5:]} | {r.small} | {r.came_to} | {_told(r)} |\n" for r in listed)


def _told(row: ProblemRow) -> str:
    short = {m: m.removeprefix(compiled.MOVE).strip(", ") or "all sizes open" for m in row.verdicts}
    return "; ".join(f"{short[m]}: {v}" for m, v in row.verdicts.items()) or row.said


def counted(listed: Sequence[ProblemRow]) -> Mapping[str, int]:
    """Return how many problems came how far."""
    return {
        "problems": len(listed),
        "targets": sum(r.written for r in listed),
        "right": sum(r.right for r in listed),
        "checked": sum(r.came_to == "checked" for r in listed),
    }


def main(names: Sequence[str], output: Path | None, sandbox: str) -> int:
    """Take problems through, print and write their rows; return 1 where one did not become a right target, else 0."""
    listed = list[ProblemRow]()
    for row in rows(problems(names), sandbox):
        listed.append(row)
        print(f"{row.problem}: {row.came_to}, {row.seconds:.0f} s{f': {row.said}' if row.said else ''}", flush=True)
        if output:
            output.write_text("".join(json.dumps(r.as_json()) + "\n" for r in listed))
    print(", ".join(f"{n} {what}" for what, n in counted(listed).items()))
    return 0 if all(r.right for r in listed) else 1
