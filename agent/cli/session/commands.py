"""The commands of a session: each shows what the record holds, or writes a request into it.

A request that cannot work is refused here where that can be seen at once; the loop decides in the end. Commands raise
Faults, which the session prints before it goes on.
"""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Unpack

from pgo_agent.agent import text as printable
from pgo_agent.agent.cli.session import editor, parse_input
from pgo_agent.agent.cli.session.controller import SessionController, SessionState
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
    """Carry out a command. Raises Faults."""
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
    for command in [name] if name else COMMANDS:
        table.add_row(Text(parse_input.usage(command), "bold"), Text(COMMANDS[command][1]))
    summary.output().print(table)
    if not name:
        c.say("A CANDIDATE is the beginning of an id. What has no slash is said to the optimizer's model.")


def _status(c: SessionController, _typed: TypedCommand) -> None:
    out, snapshot = summary.output(), c.watch.glance()
    plain = not out.encoding.startswith("utf")
    rows = c.watch.lines(max(out.width, dashboard.WIDTH), dashboard.TALLEST, plain) if snapshot else []
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
    tried = _candidate(c, typed.words[0])
    c.say(f"{tried.id[:8]}  {tried.move}: {tried.verdict or 'not judged yet'} {printable.line(tried.reason or '')}")
    show.findings(c.store, tried, summary.output())


def _profile(c: SessionController, typed: TypedCommand) -> None:
    from pgo_agent.agent.profile.case_profile import Profile
    from pgo_agent.agent.views.live import profile_view
    from pgo_agent.agent.views.profile import terminal

    run = c.run
    for stored, case_profile in profile_view.profiles(c.store, run.id, *typed.words):
        name = Path(run.target).stem
        profile = Profile(name, run.device, "", (case_profile,), ())
        text = (
            run.source if stored.candidate == incumbent.SHIPPED else c.store.candidate(run.id, stored.candidate).source
        )
        terminal.show(
            profile, text, summary.output(), False, {case_profile.case: stored.summary} if stored.summary else {}
        )


def _list_requests(c: SessionController, _typed: TypedCommand) -> None:
    requests = user_requests.of(c.store, c.run.id)
    for s in requests:
        came = s.outcome or ("the run ended before" if c.state is SessionState.COMPLETE else "not taken yet")
        c.say(f"{s.n:>3}  {printable.line(s.asked, 200)}\n     {came}")
    if not requests:
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
    candidate = _candidate(_open(c), typed.words[0])
    steering.may_veto(candidate)
    why = printable.line(" ".join(typed.words[1:]), WHY)
    _ask(c, Kind.VETO, candidate=candidate.id, why=why)
    c.say(f"{candidate.id[:8]} will not be judged, unless it is being judged already")


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
        path = editor.edit(c.store, c.run, which)
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
        body = editor.submission(c.store, _open(c).run, path, which)  # the run may have ended during the edit
    except UsageFault as e:
        again = f": /submit {shlex.quote(str(path))} {which[:8]}" if c.run.state not in STATES else f" in {path}"
        where = f"; your text is kept{again}" if path.exists() else ""
        raise UsageFault(e.message, f"{e.hint}{where}") from None
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


def _ask(c: SessionController, kind: Kind, /, **body: Unpack[user_requests.Body]) -> None:
    user_requests.add(c.store, c.run.id, kind, body)


def _open(c: SessionController) -> SessionController:
    """Return the session. Raises UsageFault when its run takes no more requests."""
    if c.state is SessionState.COMPLETE or c.run.state in STATES:
        raise UsageFault(
            f"run {c.run.id} is complete, and takes no more requests",
            "`pgo-agent check FILE --target ...` judges a file of yours; `pgo-agent session FILE` starts another run",
        )
    return c


def _which(c: SessionController, typed: TypedCommand) -> str:
    """Return `shipped`, or the whole id of a candidate."""
    name = typed.words[0]
    return name if name == incumbent.SHIPPED else _candidate(c, name).id


def _candidate(c: SessionController, name: str, instead: str = _COMPARED) -> Candidate:
    """Return a candidate by its name. Raises UsageFault when there is none, and for a baseline, with what to type."""
    if name in diff.BASELINES:
        raise UsageFault(f"{name} is a baseline and no candidate here", instead)
    return c.store.candidate(c.run.id, name)


_DO: Mapping[str, Callable[[SessionController, TypedCommand], None]] = {
    "help": _help, "status": _status, "show": _show, "diff": _diff, "ttgir": _ttgir, "evidence": _evidence,
    "profile": _profile, "veto": _veto, "edit": _edit, "submit": _submit, "pin": _pin, "budget": _budget,
    "guide": _guide, "said": _list_requests, "pause": _pause, "resume": _resume, "quit": _quit,
}  # fmt: skip
