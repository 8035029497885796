"""The terminal of a session: reads lines, with the live block above them where the terminal can show it.

`Rich` needs a terminal that can move its cursor; `Lines` works on any (TERM=dumb). Both print messages above what is
typed. Ctrl-C interrupts the session, Ctrl-D ends it. prompt_toolkit is imported here alone, when a session begins.
"""

import contextlib
import io
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

from pgo_agent.agent.cli.session import parse_input
from pgo_agent.agent.cli.session.controller import SessionController, mark
from pgo_agent.agent.run.settings import BUDGETS
from pgo_agent.agent.views.live import dashboard
from rich.console import Console
from rich.text import Text

PROMPT = "> "
BELOW = 3  # rows of a terminal that the block leaves free: the state, what is typed, and one above
REFRESH = 0.5  # seconds
_DRAWN = 0.2  # seconds that a drawing is used for


class SessionTerminal(Protocol):
    def opened(self) -> contextlib.AbstractContextManager[None]:
        """Take the terminal while the context is open."""

    def ask(self, prompt: str = PROMPT) -> str | None:
        """Return a line; None at the end of input, and when the session is to end."""


def front(c: SessionController) -> SessionTerminal:
    return Lines(c) if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown") else Rich(c)


# lines ----------------------------------------------------------------------------------------------------------------


class Lines:
    """Reads plain lines. Messages are printed as they come."""

    def __init__(self, c: SessionController) -> None:
        self.c, self._typed = c, b""
        self._woken, self._wake = os.pipe()

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        self.c.wake = self._woke
        yield

    def ask(self, prompt: str = PROMPT) -> str | None:
        print(prompt, end="", flush=True)
        while b"\n" not in self._typed:
            try:
                if self.c.leaving or not self._more():
                    return None
            except KeyboardInterrupt:
                self.c.interrupt()
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace")

    def _woke(self) -> None:
        os.write(self._wake, b".")

    def _more(self) -> bool:
        """Wait for input or a wake-up; return False at the end of input."""
        ready, _, _ = select.select([0, self._woken], [], [])
        if self._woken in ready:
            os.read(self._woken, 100)
        if 0 not in ready:
            return True
        read = os.read(0, 4096)
        self._typed += read
        return bool(read)


# a terminal -----------------------------------------------------------------------------------------------------------


class Rich:
    """Reads with history and completion, below the live block."""

    def __init__(self, c: SessionController) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.formatted_text import ANSI
        from prompt_toolkit.output import ColorDepth
        from prompt_toolkit.shortcuts import CompleteStyle

        self.c, self._drawn, self._at, self._ansi = c, "", 0.0, ANSI
        plain = bool(os.environ.get("NO_COLOR"))
        self._console = Console(force_terminal=True, no_color=plain, file=io.StringIO(), legacy_windows=False)
        self._ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
        self._prompt: Any = PromptSession(
            history=_history(c),
            completer=_completer(c),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=self._keys(),
            erase_when_done=True,
            refresh_interval=REFRESH,
            reserve_space_for_menu=0,
            color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
        )

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        from prompt_toolkit.patch_stdout import patch_stdout

        self.c.wake = self._wake
        with patch_stdout(raw=True):
            why = dashboard.room(*os.get_terminal_size())
            self.c.tell_phases(bool(why))
            if why:
                self.c.say(f"{why}: there are lines instead, and /status")
            yield

    def ask(self, prompt: str = PROMPT) -> str | None:
        if self.c.leaving:
            return None
        try:
            line = self._prompt.prompt(lambda: self._ansi(self._above() + prompt), handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return None
        if line is None:
            return None
        Console().print(mark(line), highlight=False)
        return str(line)

    def _above(self) -> str:
        """Return the block for the terminal's present size; drawn a few times a second at most."""
        self._wake()  # perhaps the prompt did not run yet when the session was to end
        if time.monotonic() - self._at > _DRAWN:
            size = os.get_terminal_size()
            self._console.file, self._console.size = io.StringIO(), size
            why = dashboard.room(*size)
            rows = [Text(why, "dim")] if why else self.c.watch.lines(size[0], size[1] - BELOW, self._ascii)
            for row in (*rows, self.c.line()):
                self._console.print(row, no_wrap=True, overflow="ellipsis", crop=True)
            self._drawn, self._at = self._console.file.getvalue(), time.monotonic()
        return self._drawn

    def _keys(self) -> Any:
        from prompt_toolkit.key_binding import KeyBindings

        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: Any) -> None:
            self.c.interrupt()

        return keys

    def _wake(self) -> None:
        """End the line that is being read, if the session is to end."""
        app = self._prompt.app
        if self.c.leaving and app.is_running and app.loop is not None:
            app.loop.call_soon_threadsafe(lambda: app.is_running and not app.is_done and app.exit(result=None))


def _history(c: SessionController) -> Any:
    from prompt_toolkit.history import FileHistory

    class TolerantHistory(FileHistory):
        """A file of the workspace; a file that cannot be read or written is ignored."""

        def load_history_strings(self) -> Any:
            with contextlib.suppress(OSError):
                yield from super().load_history_strings()

        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError):
                super().store_string(string)

    return TolerantHistory(str(c.store.root / "session_history"))


def _completer(c: SessionController) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class Names(Completer):
        """Completes commands and their arguments."""

        def get_completions(self, document: Any, complete_event: Any) -> Any:
            text = document.text_before_cursor
            last = text.rpartition(" ")[2]
            for name in _names(c, text):
                if name.startswith(last):
                    yield Completion(name, -len(last))

    return Names()


def _names(c: SessionController, text: str) -> list[str]:
    """Return the words that may complete a text."""
    command, space, rest = text.partition(" ")
    if not space:
        return [f"/{name}" for name in parse_input.COMMANDS]
    takes = parse_input.COMMANDS.get(command.lstrip("/"), ("", ""))[0]
    snapshot = c.watch.glance()
    ids = [r.id[:8] for r in snapshot.rows] if snapshot and "CANDIDATE" in takes and " " not in rest else []
    more = {"pin": ["off", "shipped"], "budget": list(BUDGETS), "help": list(parse_input.COMMANDS)}
    return [*ids, *(more.get(command.lstrip("/"), []) if " " not in rest else [])]
