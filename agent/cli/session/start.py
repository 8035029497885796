"""`session`: opens a run or begins one, and reads what is typed until the person leaves or the run cannot begin."""

from pathlib import Path

from pgo_agent.agent.cli.session import commands, parse_input, worker
from pgo_agent.agent.cli.session.controller import SessionController, SessionState
from pgo_agent.agent.cli.session.terminal import SessionTerminal, make_terminal
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import STATES, RunSettings
from pgo_agent.agent.run.target_file import locate
from pgo_agent.sandbox.errors import EnvironmentFault, Fault, UsageFault


def start(what: str, asked: RunSettings, store: Store) -> int:
    """Hold a session on `what`, a kernel file or a run, and return the exit code. A run keeps its own settings.

    Raises Faults before anything begins, and the fault that kept a run from beginning.
    """
    file = locate(Path(what))
    run = None if file.is_file() else _run(store, what)
    c = SessionController(store, run.id if run else "", lambda name: worker.job(store.root, file, asked, name))
    return _session(c, run)


def _run(store: Store, what: str) -> Run:
    """Return the run. Raises UsageFault when there is none, when it failed, and when it is the run of a check."""
    try:
        run = store.run(what)
    except UsageFault as e:
        raise UsageFault(
            f"{what} is no file, and {e.message}", "name a kernel file, or a run: `pgo-agent runs` lists them"
        ) from None
    if run.facts.given:
        raise UsageFault(f"run {run.id} is the check of one file", f"`pgo-agent show {run.id}` shows what it came to")
    if run.state == "failed":
        raise UsageFault(f"run {run.id} failed: {run.error}", "fix that, then start anew")
    return run


def _session(c: SessionController, run: Run | None) -> int:
    terminal = make_terminal(c)
    with terminal.opened():
        try:
            _begin(c, run)
            _read(c, terminal)
        finally:
            c.close()
    if c.fault:
        kind = UsageFault if c.code == Exit.USAGE else EnvironmentFault
        raise kind(c.fault.message, c.fault.hint)
    if c.state is not SessionState.COMPLETE and c.watch.run:
        print(f"nothing is lost. Go on with: pgo-agent session {c.watch.run}")
    return c.code


def _begin(c: SessionController, run: Run | None) -> None:
    if run is not None and run.state in STATES:
        c.state, c.code = SessionState.COMPLETE, int(STATES[run.state])
        c.say(f"run {run.id} is complete: look at it, or apply what it found")
        return
    if run is not None and run.state == "running":
        c.say(
            f"run {run.id} is marked as running: its process died, or goes on elsewhere; nothing recorded is done again"
        )
    c.say("/help says what can be typed; Ctrl-C pauses, twice leaves")
    c.go()


def _read(c: SessionController, terminal: SessionTerminal) -> None:
    def confirm(question: str) -> bool:
        return (terminal.ask(question) or "").strip().lower() in ("y", "yes")

    while not c.leaving:
        line = terminal.ask()
        if line is None:
            c.leave()
            return
        try:
            typed = parse_input.read(line)
            if typed is not None:
                commands.do(c, typed, confirm)
        except Fault as e:
            c.say(f"error: {e}")
        except KeyboardInterrupt:
            c.interrupt()
