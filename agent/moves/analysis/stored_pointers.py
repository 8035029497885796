"""Through which pointer parameters a kernel writes: the copy engine may not see what the same kernel wrote before.

A name may point where the names that it is computed from point. Relies on libcst; does not follow order or branches,
and takes a function that it does not know for one that writes through everything it is given.
"""

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import called, code, functions, nodes, parameters, parts, reachable, writes
from pgo_agent.agent.moves.analysis.def_use import reached, sources

_VALUES = {"load", "dot", "dot_scaled", "zeros", "full", "program_id", "num_programs", "arange", "cdiv", "sum", "max"}
_HARMLESS = {"range", "min", "max", "float", "int", "len", "abs", "print"}
_LIBRARIES = {"tl", "triton", "libdevice", "math"}


def written(module: cst.Module, function: cst.FunctionDef) -> set[str]:
    """Return names, parameters among them, that a kernel may write through."""
    below = list(nodes(function.body))
    own = writes(function.body) | set(parameters(function))
    through = set[str]()
    for call in (n for n in below if isinstance(n, cst.Call)):
        if called(call) == "store" or called(call).startswith("atomic_"):
            own_value = call.func.value if isinstance(call.func, cst.Attribute) else call.func
            through |= _roots(own_value) if _method(call, own) else set[str]().union(*map(_roots, _first(call)))
        elif _elsewhere(call, own) or (isinstance(call.func, cst.Name) and _writes(module, call.func.value)):
            through |= set[str]().union(*(_roots(a.value) for a in call.args))
    return reached(through, sources(function.body, _roots))


def _first(call: cst.Call) -> list[cst.BaseExpression]:
    given = [a.value for a in call.args if a.keyword is None or a.keyword.value == "pointer"]
    return given[:1]


def _method(call: cst.Call, own: set[str]) -> bool:
    """Whether a call is a method of a value, such as a descriptor's `store`, and not a function of a module."""
    if not isinstance(call.func, cst.Attribute):
        return False
    base = code(call.func.value)
    return not base.replace(".", "").isidentifier() or base.split(".")[0] in own


def _elsewhere(call: cst.Call, own: set[str]) -> bool:
    """Whether a function of some other module is called."""
    return (
        isinstance(call.func, cst.Attribute)
        and code(call.func).split(".")[0] not in own | _LIBRARIES
        and (code(call.func.value).isidentifier())
    )


def _roots(value: cst.CSTNode) -> set[str]:
    """Names whose pointers an expression may hold: not those that it only reads through."""
    if isinstance(value, cst.Name):
        return {value.value}
    if isinstance(value, cst.Call) and called(value) in _VALUES:
        return set()
    if isinstance(value, cst.Attribute):
        return _roots(value.value)
    if isinstance(value, cst.Arg):
        return _roots(value.value)
    return set[str]().union(*map(_roots, parts(value)))


def _writes(module: cst.Module, name: str) -> bool:
    """Whether a function that is called by its name may write to memory."""
    if name in _HARMLESS:
        return False
    by_name = functions(module)
    if name not in by_name:
        return True
    calls = [n for f in reachable(module, name) for n in nodes(by_name[f].body) if isinstance(n, cst.Call)]
    stores = any(called(c) == "store" or called(c).startswith("atomic_") for c in calls)
    return stores or any(isinstance(c.func, cst.Name) and c.func.value not in {*by_name, *_HARMLESS} for c in calls)
