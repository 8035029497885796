"""`pgo-agent init FILE -- PROGRAM` and `--call`: writes a target for each launcher of FILE that the program calls.

Relies on `program.py` to run it and on `captured_target.py` for the text. FILE itself is never changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pgo_agent.agent.commands.init import captured_calls, captured_target, command, made_launchers, outcome, program
from pgo_agent.agent.commands.init.captured_calls import Captured
from pgo_agent.agent.commands.init.guessed_sizes import Trying
from pgo_agent.agent.commands.init.outcome import Outcome
from pgo_agent.agent.commands.init.program import Program
from pgo_agent.agent.commands.init.seen import Seen
from pgo_agent.agent.run.settings import DEFAULT_DEVICE, RunSettings
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box


def write(
    file: str,
    words: Sequence[str],
    call: str | None,
    launcher: str | None,
    to: Path | None,
    force: bool,
    settings: RunSettings,
) -> Outcome:
    """Run the program and write the targets.

    Raises UsageFault when the program calls no launcher, and for an output that exists.
    """
    if words and call is not None:
        raise UsageFault("both a program and --call are given", "give one of them")
    asked = program.of_command(words) if words else Program("call", (call or "",))
    path = command.located(file)
    text = target.text(path)  # raises UsageFault for what is no Python file
    if to is not None:
        command.refuse(to, path, force)
    device = devices.find(settings.device or DEFAULT_DEVICE)
    inside = box.choose(settings.sandbox, settings.python)
    box.expect(text, *program.texts(asked))
    seen, base = program.watch(inside, device.key, asked, path, launcher or "")
    texts = _texts(seen, asked, base)
    launchers, unmade = made_launchers.made(seen.bare, texts)
    seen = replace(seen, calls=(*seen.calls, *(c for m in launchers for c in m.calls)), notes=(*seen.notes, *unmade))
    if not seen.calls:
        raise UsageFault("; ".join(unmade), program.HINT)
    checks = [(c, texts[c.file]) for c in seen.checks if c.file in texts]
    through = {f for c in seen.calls for launch in c.launches for f in (c.file, launch["file"], *launch["via"])}
    sources = {f: found for f in through if (found := program.outside(f, base))}
    groups = captured_calls.groups(
        path, seen.calls, checks, texts, sources, base.resolve(), launcher, {m.name: m.text for m in launchers}
    )
    if to is not None and len(groups) > 1:
        groups = [g for g in groups if captured_target.checked(g)] or groups
    if to is not None and len(groups) > 1:
        names = ", ".join(g.name for g in groups)
        raise UsageFault(f"-o names one file, and the program calls {len(groups)} launchers: {names}", "add --launcher")
    files = [to or Path(f"{_stem(g, path, len(groups))}_target.py") for g in groups]
    for file_ in files:
        command.refuse(file_, path, force)
    tried = [(g, to, *_tried(Trying(g, to, inside, device))) for g, to in zip(groups, files, strict=True)]
    written = [(g, to) for g, to, _, refused in tried if refused is None]
    if not written and (first := next(r for *_, r in tried if r)):
        raise first
    notes = [n for _, _, said, _ in tried for n in said]
    ended = [f"the program ended early, so later calls were not seen: {seen.error}"] if seen.error else []
    targets = tuple(outcome.written(to, [_about(g)]) for g, to in written)
    return Outcome(targets, notes=(*seen.notes, *notes, *ended))


def _tried(trying: Trying) -> tuple[list[str], UsageFault | None]:
    """Return the notes on a target, and why there is none."""
    try:
        return trying.write(), None
    except UsageFault as e:
        return [e.message], e


def _stem(group: Captured, path: Path, count: int) -> str:
    return path.stem if count == 1 else f"{path.stem}_{group.name.lower()}"


def _texts(seen: Seen, asked: Program, base: Path) -> dict[str, str]:
    """Return the files, or the statements, that checks and calls stand in, with their text."""
    texts = dict[str, str]()
    sites = [*(c.site for c in seen.calls if c.site), *(b.site for b in seen.bare)]
    for file in {c.file for c in seen.checks} | {s.file for s in sites}:
        if file == "<call>":
            texts[file] = asked.args[0]
        elif (path := program.outside(file, base)) is not None:
            texts[file] = target.text(path)
    return texts


def _about(group: Captured) -> str:
    kernels = [launch["kernel"] for c in group.pair for launch in c.launches]
    calls = f"{len(group.calls)} calls" if len(group.calls) > 1 else "one call"
    return f"{group.name}: {calls}, kernels {', '.join(dict.fromkeys(kernels))}"
