"""What stands in a file of an autotuned kernel: its list of configurations, their pre_hook, and how it says `Config`.

Relies on `scopes.py`. A list can be replaced where what the new one needs is known by its text: a pre_hook that only
some configurations have, or that a function makes, is not carried over, and the list is then left as it is.
"""

import ast
from collections.abc import Iterator

from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.config_maker import ConfigMaker, maker
from pgo_agent.agent.moves.analysis.launched import named, tunes
from pgo_agent.agent.moves.analysis.scopes import BUILTINS, Function, Scopes, default_of


def tuner(function: Function, scopes: Scopes) -> ast.Call | None:
    """Return the call of `autotune` that decorates a kernel, also under a name of its own.

    Libraries wrap it under names that end so, as `fla_cache_autotune` does, with a list of `configs` like its own.
    """
    for decorator in function.decorator_list:
        call = scopes.value(decorator) if isinstance(decorator, ast.Name) else decorator
        if isinstance(call, ast.Call) and tunes(call):
            return call
    return None


def configs(call: ast.Call) -> ast.expr | None:
    """Return the expression of its configurations."""
    given = [k.value for k in call.keywords if k.arg == "configs"] or call.args[:1]
    return given[0] if given and not isinstance(given[0], ast.Starred) else None


def shared(function: Function, scopes: Scopes) -> bool:
    """Tell whether a tuner has a name under which several kernels use it: other configurations would be theirs, too."""
    named_ones = [d for d in function.decorator_list if isinstance(d, ast.Name) and scopes.value(d) is not None]
    return any(len(scopes.loads(d.id, d)) > 1 for d in named_ones)


def config_class(tree: ast.Module, call: ast.Call, scopes: Scopes) -> str:
    """Return how the file says `triton.Config`. Raises DoesNotApply where it has no name for it."""
    prefix = ast.unparse(call.func).removesuffix("autotune")
    written = [ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call) and named(n) == "Config"]
    for name in (f"{prefix}Config", *written, "Config", "triton.Config"):
        if all(map(str.isidentifier, name.split("."))) and _means(name.split(".")[0], call, scopes):
            return name
    raise DoesNotApply("the file has no name for triton.Config")


def autotune(config_class: str) -> str:
    """Return how a file with this name for Config says `triton.autotune`. Raises DoesNotApply where it cannot."""
    if "." not in config_class:
        raise DoesNotApply("its configurations stand in another file, and this one has no name for triton.autotune")
    return config_class.rpartition(".")[0] + ".autotune"


def written(tree: ast.Module, given: ast.expr, scopes: Scopes) -> tuple[str, ConfigMaker | None]:
    """Return how others are written: with this pre_hook (empty: none), or by the function that makes them all.

    Raises DoesNotApply where neither is known.
    """
    if _is_set_later(tree):
        raise DoesNotApply("the pre_hook of its configurations is set after they were made")
    try:
        return pre_hook(tree, given, scopes), None
    except DoesNotApply:
        if own := maker([call for call, _ in _made(given, scopes, {})], scopes):
            return "", own
        raise


def pre_hook(tree: ast.Module, given: ast.expr, scopes: Scopes) -> str:
    """Return the text of the pre_hook of all configurations; empty: they have none.

    Raises DoesNotApply where not all have the same, or what it is can only be told where they are made.
    """
    made = [n for n in _made(given, scopes, {}) if named(n[0]) == "Config"]
    if not made and any(named(n) == "Config" and _tells(n) for n in ast.walk(tree) if isinstance(n, ast.Call)):
        raise DoesNotApply("which configurations have a pre_hook is only known where they are made")
    hooks = [_hook(call, scopes, passed) for call, passed in made] or [_hook(n, scopes, {}) for n in _calls(given)]
    texts = [ast.unparse(h) if h is not None else "" for h in hooks]
    if len(set(texts)) > 1:
        raise DoesNotApply("its configurations have not all the same pre_hook")
    free = {n.id for h in hooks if h is not None for n in ast.walk(h) if isinstance(n, ast.Name)}
    bound = {a.arg for h in hooks if h is not None for n in ast.walk(h) if isinstance(n, ast.arguments) for a in n.args}
    if unknown := sorted(n for n in free - bound - BUILTINS if not scopes.bound(n, given)):
        raise DoesNotApply(
            f"the pre_hook of its configurations depends on {', '.join(unknown)}, known where it is made"
        )
    return texts[0] if texts else ""


def _is_set_later(tree: ast.Module) -> bool:
    attributes = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "pre_hook")
    return any(not isinstance(n.ctx, ast.Load) for n in attributes)


Passed = dict[str, ast.expr]  # what a function that makes configurations was given


def _made(given: ast.expr, scopes: Scopes, passed: Passed, depth: int = 0) -> Iterator[tuple[ast.Call, Passed]]:
    """The calls that make the configurations of an expression, also in functions and lists that it names."""
    for node in ast.walk(given):
        if isinstance(node, ast.Call):
            yield node, passed
        if not isinstance(node, ast.Name) or depth > 3:
            continue
        if (value := scopes.value(node)) is not None:
            yield from _made(value, scopes, passed, depth + 1)
        for function in (f for f in scopes.bindings(node.id, node) if isinstance(f, ast.FunctionDef)):
            call = scopes.above.get(id(node))
            arguments = _arguments(call, function) if isinstance(call, ast.Call) and call.func is node else {}
            for n in function.body:
                for below in (x for x in ast.walk(n) if isinstance(x, ast.Call)):
                    yield below, arguments


def _arguments(call: ast.Call, function: ast.FunctionDef) -> Passed:
    names = [x.arg for x in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    given = {n: d for n in names if (d := default_of(function, n)) is not None}
    given |= dict(zip(names, call.args, strict=False))
    return given | {k.arg: k.value for k in call.keywords if k.arg}


def _hook(call: ast.Call, scopes: Scopes, passed: Passed) -> ast.expr | None:
    hook = next((k.value for k in call.keywords if k.arg == "pre_hook"), None)
    if isinstance(hook, ast.Name) and hook.id in passed:
        hook = passed[hook.id]
    if hook is None and any(k.arg is None for k in call.keywords) and named(call) == "Config":
        raise DoesNotApply("what its configurations hold beside their parameters is not told by the text")
    return None if isinstance(hook, ast.Constant) and hook.value is None else hook


def _calls(given: ast.expr) -> list[ast.Call]:
    """Calls of what is not in the file that are given a pre_hook."""
    every_call = (n for n in ast.walk(given) if isinstance(n, ast.Call))
    return [n for n in every_call if _tells(n)]


def _tells(call: ast.Call) -> bool:
    return any(k.arg == "pre_hook" for k in call.keywords)


def _means(root: str, call: ast.Call, scopes: Scopes) -> bool:
    """Whether a name is an import where the tuner is called."""
    return any(isinstance(n, ast.alias) for n in scopes.bindings(root, call))
