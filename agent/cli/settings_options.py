"""Makes options of the command line from the fields of RunSettings: flag, type, default, limit and help.

A command writes one parameter, which these decorators replace by the options that the command takes. Relies on
`agent/run/settings.py`, which defines the settings. It does not know what a command does.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_origin

import typer
from pgo_agent.agent.run import settings
from pgo_agent.agent.run.settings import DEFAULTS, OPTIONS, TYPES, Changes, Command, RunSettings, Value

Function = Callable[..., None]
Values = dict[str, Value]


def with_settings(command: Command) -> Callable[[Function], Function]:
    """Decorate a Typer function that takes `asked`, a RunSettings: its options are those of `command`."""

    def asked(values: Values) -> RunSettings:
        return RunSettings().changed(values)

    return _decorator(command, "asked", asked, changes=False)


def with_changes(command: Command) -> Callable[[Function], Function]:
    """Decorate a Typer function that takes `changes`: the settings that a person gave, by name."""

    def changes(values: Values) -> Changes:
        return {name: value for name, value in values.items() if value is not None}

    return _decorator(command, "changes", changes, changes=True)


def _decorator(
    command: Command, parameter: str, build: Callable[[Values], object], changes: bool
) -> Callable[[Function], Function]:
    names = [name for name, o in OPTIONS.items() if command in o.commands]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(**arguments: Any) -> None:
            values = {name: _value(name, arguments.pop(name)) for name in names}
            function(**arguments, **{parameter: build(values)})

        parameters = _spliced(inspect.signature(function), parameter, [_parameter(n, changes) for n in names])
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        return call

    return decorate


def _spliced(signature: inspect.Signature, name: str, options: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters of a function, with options in place of one."""
    parameters = list(signature.parameters.values())
    at = list(signature.parameters).index(name)
    return [p.replace(kind=p.KEYWORD_ONLY) for p in (*parameters[:at], *options, *parameters[at + 1 :])]


def _parameter(name: str, changes: bool) -> inspect.Parameter:
    """Return the parameter of a setting. With `changes`, a stored setting's default is None: it was not given."""
    default, wanted = DEFAULTS[name], TYPES[name]
    if get_origin(wanted) is tuple:
        default, wanted = None, list[str] | None
    if wanted is bool:
        default = False  # the option turns on what is off, or off what is on
    if changes and OPTIONS[name].stored:
        default, wanted = None, settings.kind(name) | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[wanted, _typer_option(name, changes)],
    )


def _typer_option(name: str, changes: bool) -> Any:
    o = OPTIONS[name]
    return typer.Option(
        settings.flag(name), min=o.least, envvar=o.variable, metavar=o.metavar, help=_help(name, changes)
    )


def _help(name: str, changes: bool) -> str:
    """Return the help of a setting, with the meaning of None: Typer writes only the other defaults."""
    o = OPTIONS[name]
    unset = "what the run has" if changes and o.stored else o.unset
    return f"{o.help} Default: {unset}." if unset else o.help


def _value(name: str, value: Any) -> Any:
    """Return the value of a setting from the value of its option."""
    if get_origin(TYPES[name]) is tuple:
        return tuple(value or ())
    return not value if DEFAULTS[name] is True else value
