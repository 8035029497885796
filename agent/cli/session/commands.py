"""What each command of a session does: shows what the record holds, or writes a request into it.

A request is refused here where it can be seen at once that nothing will come of it; the loop has the last word.
Raises Faults, which the session says and goes on.
"""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from pgo_agent.agent import text as printable
from pgo_agent.agent.cli.session import editor, parse_input
from pgo_agent.agent.cli.session.controller import SessionController, Stand
from pgo_agent.agent.cli.session.parse_input import COMMANDS, TypedCommand
from pgo_agent.agent.commands import apply as applying
from pgo_agent.agent.llm.models import EMBEDDED
from pgo_agent.agent.llm.models.types import OPTIMIZER
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.candidate import Candidate, candidate_id
from pgo_agent.agent.run.record.user_requests import Kind
from pgo_agent.agent.run.settings import STATES
from pgo_agent.agent.views import diff, show, summary
from pgo_agent.agent.views.live import dashboard
from pgo_agent.sandbox.errors import UsageFault
from rich.table import Table
from rich.text import Text

Confirm = Callable[[str], bool]
WHY = 200  # characters of a veto's reason
_COMPARED = "its text is the kernel as shipped: /diff shipped CANDIDATE, /ttgir shipped; /status names candidates"
_SHOWN = "/show alone tells of the run, /show CANDIDATE of a candidate; /ttgir shipped is the kernel as shipped"
_APPLIED = "/apply alone writes the winner, /apply CANDIDATE another that was accepted; baselines have your file's text"


def do(c: SessionController, typed: TypedCommand, confirm: Confirm) -> None:
    """Raises Faults."""
    if typed.name == "apply":
        _apply(c, typed, confirm)
    else:
        _DO[typed.name](c, typed)


# the session ----------------------------------------------------------------------------------------------------------


def _help(c: SessionController, typed: TypedCommand) -> None:
    name = typed.words[0].lstrip("/") if typed.words else ""
    if name and name not in COMMANDS:
        raise parse_input.unknown(name)
    table = Table.grid(padding=(0, 2))
    for one in [name] if name else COMMANDS:
        table.add_row(Text(parse_input.usage(one), "bold"), Text(COMMANDS[one][1]))
    summary.output().print(table)
    if not name:
        c.say("A CANDIDATE is the beginning of an id. What has no slash is said to the optimizer's model.")


def _status(c: SessionController, _typed: TypedCommand) -> None:
    out, known = summary.output(), c.watch.glance()
    plain = not out.encoding.startswith("utf")
    rows = c.watch.lines(max(out.width, dashboard.WIDTH), dashboard.TALLEST, plain) if known else []
    for row in (*rows, c.line()):
        out.print(row, no_wrap=True, overflow="crop")


def _pause(c: SessionController, _typed: TypedCommand) -> None:
    c.pause()


def _resume(c: SessionController, _typed: TypedCommand) -> None:
    c.go()


def _quit(c: SessionController, _typed: TypedCommand) -> None:
    c.leave()


# what is shown --------------------------------------------------------------------------------------------------------


def _show(c: SessionController, typed: TypedCommand) -> None:
    if typed.words:
        show.candidate(c.store, c.run.id, _candidate(c, typed.words[0], _SHOWN).id, False, False)
    else:
        show.run(c.store, c.run.id, False)


def _diff(c: SessionController, typed: TypedCommand) -> None:
    run, out = c.run, summary.output()
    if len(typed.words) > 1:
        diff.show(c.store, run.id, typed.words[1], typed.words[0], False, out)
    else:
        show.changes(c.store, run, _candidate(c, typed.words[0]), out)


def _ttgir(c: SessionController, typed: TypedCommand) -> None:
    from pgo_agent.agent.views.live import profile_view

    summary.output().print(
        Text(printable.visible(profile_view.ttgir(c.store, c.run.id, _which(c, typed)))), soft_wrap=True
    )


def _evidence(c: SessionController, typed: TypedCommand) -> None:
    found = _candidate(c, typed.words[0])
    c.say(f"{found.id[:8]}  {found.move}: {found.verdict or 'not judged yet'} {printable.line(found.reason or '')}")
    show.findings(c.store, found, summary.output())


def _profile(c: SessionController, typed: TypedCommand) -> None:
    from pgo_agent.agent.profile.case_profile import Profile
    from pgo_agent.agent.views.live import profile_view
    from pgo_agent.agent.views.profile import terminal

    run = c.run
    for kept, found in profile_view.profiles(c.store, run.id, *typed.words):
        name = Path(run.target).stem
        whole = Profile(name, run.device, "", (found,), ())
        text = run.source if kept.candidate == incumbent.SHIPPED else c.store.candidate(run.id, kept.candidate).source
        terminal.show(whole, text, summary.output(), False, {found.case: kept.summary} if kept.summary else {})


def _said(c: SessionController, _typed: TypedCommand) -> None:
    found = user_requests.of(c.store, c.run.id)
    for s in found:
        came = s.outcome or ("the run ended before" if c.stand is Stand.COMPLETE else "not taken yet")
        c.say(f"{s.n:>3}  {printable.line(s.asked, 200)}\n     {came}")
    if not found:
        c.say("you asked for nothing yet")


# what is asked of the run ---------------------------------------------------------------------------------------------


def _guide(c: SessionController, typed: TypedCommand) -> None:
    model = _open(c).run.facts.models.get(OPTIMIZER, EMBEDDED)
    _ask(c, Kind.GUIDE, text=steering.guidance_of(typed.rest))
    if model == EMBEDDED:
        c.say("recorded, but nobody reads it: this run has no model (`--model`), and the embedded moves read no words")
    else:
        c.say(f"{printable.line(model)} reads it from the next generation on")


def _veto(c: SessionController, typed: TypedCommand) -> None:
    found = _candidate(_open(c), typed.words[0])
    steering.may_veto(found)
    why = printable.line(" ".join(typed.words[1:]), WHY)
    _ask(c, Kind.VETO, candidate=found.id, why=why)
    c.say(f"{found.id[:8]} will not be judged, unless it is being judged already")


def _pin(c: SessionController, typed: TypedCommand) -> None:
    which = "" if typed.words[0] == "off" else _which(c, typed)
    if which not in ("", incumbent.SHIPPED):
        steering.may_pin(c.store.candidate(_open(c).run.id, which))
    _ask(_open(c), Kind.PIN, candidate=which)
    c.say(f"generations start from {which[:8]}" if which else "the search chooses its parents again")


def _budget(c: SessionController, typed: TypedCommand) -> None:
    wanted = steering.budget_of(typed.words[0], typed.words[1], _open(c).run.facts)
    _ask(c, Kind.BUDGET, **wanted)
    c.say(f"{wanted['name']}: {user_requests.figure(wanted['value'])}, from the next piece of work on")


def _edit(c: SessionController, typed: TypedCommand) -> None:
    which = _which(_open(c), typed)
    c.hold()
    try:
        path = editor.edited(c.store, c.run, which)
    finally:
        c.release()
    _submitted(c, path, which)


def _submit(c: SessionController, typed: TypedCommand) -> None:
    _open(c)
    words = typed.words
    which = words[1] if len(words) > 1 else incumbent.SHIPPED
    _submitted(c, Path(words[0]), which if which == incumbent.SHIPPED else _candidate(c, which).id)


def _submitted(c: SessionController, path: Path, which: str) -> None:
    try:
        body = editor.submission(c.store, _open(c).run, path, which)  # it may have ended while its person wrote
    except UsageFault as e:
        again = f": /submit {shlex.quote(str(path))} {which[:8]}" if c.run.state not in STATES else f" in {path}"
        kept = f"; your text is kept{again}" if path.exists() else ""
        raise UsageFault(e.message, f"{e.hint}{kept}") from None
    _ask(c, Kind.SUBMIT, **body)
    c.say(f"candidate {candidate_id(body['source'])[:8]} is yours, in the next generation; the text is kept in {path}")


def _apply(c: SessionController, typed: TypedCommand, confirm: Confirm) -> None:
    change = applying.plan(c.store, c.run.id, _candidate(c, typed.words[0], _APPLIED).id if typed.words else None)
    c.say(printable.visible(change.diff))
    if confirm("Write this? [y/N] "):
        c.say(f"{change.path} written; the original is {applying.write(change)}")
    else:
        c.say("nothing was written")


# ----------------------------------------------------------------------------------------------------------------------


def _ask(c: SessionController, kind: Kind, /, **body: object) -> None:
    user_requests.add(c.store, c.run.id, kind, body)


def _open(c: SessionController) -> SessionController:
    """Raises UsageFault where the run takes no more requests."""
    if c.stand is Stand.COMPLETE or c.run.state in STATES:
        raise UsageFault(
            f"run {c.run.id} is complete, and takes no more requests",
            "`pgo-agent check FILE --target ...` judges a file of yours; `pgo-agent session FILE` starts another run",
        )
    return c


def _which(c: SessionController, typed: TypedCommand) -> str:
    """`shipped`, or the whole id of a candidate."""
    name = typed.words[0]
    return name if name == incumbent.SHIPPED else _candidate(c, name).id


def _candidate(c: SessionController, name: str, instead: str = _COMPARED) -> Candidate:
    """Raises UsageFault for what is none, and, with what to type instead, for a baseline."""
    if name in diff.BASELINES:
        raise UsageFault(f"{name} is a baseline and no candidate here", instead)
    return c.store.candidate(c.run.id, name)


_DO: Mapping[str, Callable[[SessionController, TypedCommand], None]] = {
    "help": _help, "status": _status, "show": _show, "diff": _diff, "ttgir": _ttgir, "evidence": _evidence,
    "profile": _profile, "veto": _veto, "edit": _edit, "submit": _submit, "pin": _pin, "budget": _budget,
    "guide": _guide, "said": _said, "pause": _pause, "resume": _resume, "quit": _quit,
}  # fmt: skip
