"""A function of the file that makes a configuration out of its parameters: others can be written as calls of it.

So a list is replaced whose configurations hold what only that function can give them, such as a pre_hook that goes by
a parameter. Relies on `scopes.py` and on how `tuned.py` finds what makes a list.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.launched import LAUNCH_OPTIONS, named
from pgo_agent.agent.moves.analysis.scopes import Scopes, default_of

_PLAIN = {"range", "product", "zip", "enumerate", "len", "min", "max", "sorted"}  # what lists are computed with


@dataclass(frozen=True)
class ConfigMaker:
    """A function whose parameters are those of a configuration, under names of its own."""

    name: str
    parameters: Mapping[str, str]  # of a configuration -> of the function

    def call(self, config: Mapping[str, int]) -> str:
        """Return the text of a configuration. Raises DoesNotApply where it holds what the function does not take."""
        given = {k: v for k, v in config.items() if v is not None}
        if unknown := sorted(given.keys() - self.parameters.keys()):
            raise DoesNotApply(f"its configurations are made by {self.name}, which takes no {', '.join(unknown)}")
        return f"{self.name}({', '.join(f'{self.parameters[k]}={v!r}' for k, v in given.items())})"


def maker(calls: Sequence[ast.Call], scopes: Scopes) -> ConfigMaker | None:
    """Return the one function that makes every configuration of a list; None where there is none, or not one alone.

    `calls`: all that make something of the list. Each element must be a call of that function, and give it nothing but
    what a configuration says.
    """
    made = {id(n): n for n in calls if named(n) == "Config"}
    if len(made) != 1:
        return None
    (config,) = made.values()
    statement = scopes.above.get(id(config))
    function = scopes.above.get(id(statement)) if isinstance(statement, ast.Return) else None
    if not isinstance(function, ast.FunctionDef) or not _alone(function, statement) or function.args.posonlyargs:
        return None
    names = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
    taken = _parameters(config, names)
    if taken is None or any(default_of(function, n) is None and n not in taken.values() for n in names):
        return None
    inside = {id(n) for n in ast.walk(function)}
    outside = [c for c in calls if id(c) not in inside]
    own = [c for c in outside if named(c) == function.name]
    if any(named(c) not in _PLAIN for c in outside if c not in own) or not own:
        return None
    if not all(_is_element(c, scopes) and _given(c, names) <= set(taken.values()) for c in own):
        return None
    return ConfigMaker(function.name, taken)


def _is_element(call: ast.Call, scopes: Scopes) -> bool:
    """Whether a call is an element of a list, and what it makes no part of anything else."""
    above = scopes.above.get(id(call))
    comprehension = isinstance(above, ast.ListComp) and above.elt is call
    return comprehension or isinstance(above, ast.List | ast.Tuple)


def _given(call: ast.Call, names: Sequence[str]) -> set[str]:
    """Return the parameters that a call gives; one that is spread gives what nobody knows."""
    spread = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
    return {"*"} if spread else {*names[: len(call.args)], *(k.arg for k in call.keywords if k.arg)}


def _alone(function: ast.FunctionDef, statement: ast.AST | None) -> bool:
    """Whether the statement is all that a function does, beside its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    is_open = function.args.vararg is not None or function.args.kwarg is not None or bool(function.decorator_list)
    return body == [statement] and not is_open


def _parameters(config: ast.Call, names: Sequence[str]) -> dict[str, str] | None:
    """Return parameters of a configuration -> of the function; None where one is given anything but these."""
    given = [a for a in config.args if isinstance(a, ast.Dict)] + [
        k.value for k in config.keywords if k.arg == "kwargs"
    ]
    if len(config.args) > 1 or len(given) != 1 or not isinstance(given[0], ast.Dict):
        return None
    pairs = [
        (k.value if isinstance(k, ast.Constant) else None, v)
        for k, v in zip(given[0].keys, given[0].values, strict=True)
    ]
    pairs += [(k.arg, k.value) for k in config.keywords if k.arg in LAUNCH_OPTIONS]
    if any(k.arg not in {*LAUNCH_OPTIONS, "pre_hook", "kwargs"} for k in config.keywords):
        return None
    told = {key: value.id for key, value in pairs if isinstance(key, str) and isinstance(value, ast.Name)}
    same = len(told) == len(pairs) and len(set(told.values())) == len(told)
    return told if same and set(told.values()) <= set(names) else None
