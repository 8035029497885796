"""Every setting of a run is an option of the commands that take it, by its field alone."""

from typing import Any, get_origin

import pytest
import typer
from pgo_agent.agent.cli import main
from pgo_agent.agent.cli.settings_options import with_changes, with_settings
from pgo_agent.agent.run import settings
from pgo_agent.agent.run.settings import DEFAULTS, OPTIONS, TYPES, Changes, Command, ProfileVisibility, RunSettings
from typer.testing import CliRunner

OTHER: dict[Any, Any] = {str: "x", int: 7, float: 7.5, ProfileVisibility: ProfileVisibility.NONE}


def other(name: str) -> Any:
    """A value that is not the default of a setting."""
    if get_origin(TYPES[name]) is tuple:
        return ("x", "y")
    kind = settings.kind(name)
    return not DEFAULTS[name] if kind is bool else OTHER[kind]


def words(name: str) -> list[str]:
    """What is typed for that value."""
    flag, value = settings.flag(name), other(name)
    if isinstance(value, bool):
        return [flag]
    return [w for one in (value if isinstance(value, tuple) else (value,)) for w in (flag, str(one))]


def asked(command: Command, *typed: str) -> RunSettings:
    """What a command of these options gets."""
    heard: list[RunSettings] = []
    app = typer.Typer()

    @app.command()
    @with_settings(command)
    def take(asked: RunSettings) -> None:
        heard.append(asked)

    done = CliRunner().invoke(app, list(typed))
    assert done.exit_code == 0, done.output
    return heard[0]


def changes(*typed: str) -> Changes:
    heard: list[Changes] = []
    app = typer.Typer()

    @app.command()
    @with_changes(Command.RESUME)
    def take(changes: Changes) -> None:
        heard.append(changes)

    done = CliRunner().invoke(app, list(typed))
    assert done.exit_code == 0, done.output
    return heard[0]


@pytest.mark.parametrize("command", [c for c in Command if c is not Command.RESUME])
def test_what_nobody_gives_is_as_it_is_by_default(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGO_AGENT_SANDBOX", raising=False)
    assert asked(command) == RunSettings()


@pytest.mark.parametrize("command", [c for c in Command if c is not Command.RESUME])
def test_every_option_of_a_command_sets_its_setting(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGO_AGENT_SANDBOX", raising=False)
    names = [name for name, o in OPTIONS.items() if command in o.commands]
    typed = [word for name in names for word in words(name)]
    assert asked(command, *typed) == RunSettings(**{name: other(name) for name in names})


def test_a_run_that_goes_on_changes_what_was_given_and_keeps_the_rest() -> None:
    assert changes() == {"wait": True}
    names = [name for name, o in OPTIONS.items() if Command.RESUME in o.commands]
    assert changes(*(w for name in names for w in words(name))) == {name: other(name) for name in names}


@pytest.mark.parametrize("typed", [("--candidates", "0"), ("--minutes", "-1"), ("--profile", "some"), ("--seed", "a")])
def test_a_value_beyond_its_limit_is_refused(typed: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main.app, ["optimize", "add.py", *typed])
    assert done.exit_code == 2 and typed[0] in done.output
