"""`pgo-agent prove`: what a patch gains a whole program: outputs compared, times in turns, with an interval.

The patch is what `apply --to-source` would write of a run, or a file that takes the place of a module's. Nothing of the
user's is changed: the program's own processes load the other file. It runs with the user's rights, as it always does.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.commands import apply
from pgo_agent.agent.commands.export import launches
from pgo_agent.agent.commands.init.command import located
from pgo_agent.agent.commands.proving import turns
from pgo_agent.agent.commands.proving.turns import Answer, Changes, Program
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import proved
from pgo_agent.agent.run.proved import ALLOWED, EPS, Output, Proved
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.temporary_folders import temporary_folder


@dataclass(frozen=True)
class Patch:
    """What is replaced."""

    said: str
    files: Mapping[str, str]  # real path of a module -> the text that takes its place
    packages: tuple[str, ...] = ()  # folders that `export --as launches` wrote: the program imports them first


def of_run(store: Store, run: str, candidate: str | None) -> Patch:
    """Return the patch that `apply --to-source` would write. Raises what that raises."""
    change = apply.plan(store, run, candidate, to_source=True)
    return Patch(f"{store.run(run).id}: {change.message.splitlines()[0]}", {str(change.path.resolve()): change.new})


def of_files(given: Sequence[str]) -> Patch:
    """Return the patch of words like `liger_kernel.ops.rms_norm=mine.py`, `lib/norm.py=mine.py`, or of the folder that
    `export --as launches` wrote. Raises UsageFault for what names no module."""
    files, packages = dict[str, str](), list[str]()
    for word in given:
        if Path(word, launches.RUNTIME).is_file():
            packages.append(str(Path(word).resolve()))
            continue
        module, equals, file = word.partition("=")
        found = located(module)
        if not equals or not found.is_file():
            raise UsageFault(
                f"{word} names no module and no file", "write --patched MODULE=FILE, OLD_FILE=FILE, or FOLDER"
            )
        files[str(found.resolve())] = target.text(Path(file))
    return Patch(", ".join(given), files, tuple(packages))


def prove(
    program: Program, patch: Patch, count: int, minutes: float, tell: Callable[[str], None]
) -> tuple[Proved, Exit]:
    """Run the program in turns and return the verdict. `tell`: is told of each process.

    Where the minutes are over, the turns that were made count. Raises UsageFault for a program that fails, names no
    outputs, or does not import what is replaced, and where the minutes do not reach for one turn.
    """

    def note(turn: int, side: str, seconds: float) -> None:
        tell(f"turn {turn + 1} of {count}, {side} the patch: {seconds:.4g} s")

    with temporary_folder("patch") as name:
        files = dict[str, str]()
        for i, (path, text) in enumerate(patch.files.items()):
            new = name / str(i) / Path(path).name
            new.parent.mkdir()
            new.write_text(text, encoding="utf-8")
            files[path] = str(new)
        done, differences, sides = turns.all_turns(program, Changes(files, patch.packages), count, 60 * minutes, note)
    if len(done) < count:
        tell(f"{minutes:g} minutes are over after {len(done)} of {count} turns")
    result = _result(program, patch, done, list(_outputs(differences, sides)))
    return result, Exit.DONE if result.verdict in ("faster", "no_difference") else Exit.NONE_FOUND


def _result(program: Program, patch: Patch, done: list[dict[str, list[Answer]]], outputs: list[Output]) -> Proved:
    times = [{side: [a.time for a in answers] for side, answers in turn.items()} for turn in done]
    ratio = proved.interval([sum(t["without"]) / sum(t["with"]) for t in times])
    itself = proved.interval([t["without"][0] / t["without"][1] for t in times])
    return Proved(
        shlex.join(program.words),
        patch.said,
        proved.verdict(ratio, itself, len(done), outputs),
        ratio,
        itself,
        {side: [s for t in times for s in t[side]] for side in ("without", "with")},
        bool(done[0]["with"][0].seconds),
        tuple(outputs),
    )


def _outputs(differences: Sequence[Mapping[str, JsonObject]], sides: Sequence[str]) -> list[Output]:
    """Return each output, by how those of the other processes differ from those of the first."""
    by_side = {s: [d for d, side in zip(differences, sides, strict=True) if side == s] for s in ("without", "with")}
    names = list(differences[0]) if differences else []
    return [_output(n, [d[n] for d in by_side["with"]], [d[n] for d in by_side["without"]]) for n in names]


def _output(name: str, patched: Sequence[JsonObject], own: Sequence[JsonObject]) -> Output:
    noise = max((_relative(d) for d in own), default=0.0)
    relative, largest = max(map(_relative, patched)), max(float(str(d.get("largest", 0.0))) for d in patched)
    allowed = max(ALLOWED * EPS.get(str(patched[0].get("dtype")), 0.0), 2 * noise)
    problem = next((str(d["problem"]) for d in patched if "problem" in d), "")
    if own_problem := next((str(d["problem"]) for d in own if "problem" in d), ""):
        problem = f"the program itself gives others each time: {own_problem}"
    if not problem and relative > allowed:
        problem = f"it differs by {relative:.2g} of its size, more than {allowed:.2g}"
    return Output(name, problem, all(bool(d.get("exact")) for d in patched), largest, relative, allowed, noise)


def _relative(d: JsonObject) -> float:
    return float(str(d.get("relative", 0.0)))
