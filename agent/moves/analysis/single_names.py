"""Gives later assignments of a name names of their own, where the order of statements tells which one is read.

Analyses that go by names alone (`def_use.py`) then see what each holds. Relies on libcst.
"""

from collections.abc import Collection

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import Rename, Statement, fresh, nodes, parameters, visited
from pgo_agent.agent.moves.analysis.def_use import assignments, target


def split(function: cst.FunctionDef, wanted: Collection[str]) -> cst.FunctionDef:
    """Return the function with a new name for each later assignment of the wanted names.

    A name stays as it is where anything but a statement at the top of the function assigns it.
    """
    count = assignments(function)
    body = [s for s in cst.ensure_type(function.body, cst.IndentedBlock).body if isinstance(s, Statement)]
    tops = [name for s in body if (name := _assigned(s)) is not None and name in wanted]
    several = {n for n in tops if count[n] == tops.count(n) > 1} - set(parameters(function))
    if not several:
        return function
    taken = set(parameters(function)) | {n.value for n in nodes(function) if isinstance(n, cst.Name)}
    now, seen, done = dict[str, str](), set[str](), list[cst.BaseStatement]()
    for statement in body:
        name = _assigned(statement)
        if name not in several or name not in seen:
            seen |= {name} if name else set()
            done.append(visited(statement, Rename(dict(now))))
            continue
        value = visited(_assignment(statement).value, Rename(dict(now)))
        now[name] = fresh(f"{name}_again", taken)
        taken.add(now[name])
        changed = _assignment(statement).with_changes(targets=[cst.AssignTarget(cst.Name(now[name]))], value=value)
        done.append(cst.ensure_type(statement, cst.SimpleStatementLine).with_changes(body=[changed]))
    return function.with_changes(body=function.body.with_changes(body=done))


def _assigned(statement: cst.BaseStatement) -> str | None:
    """Return the name that a statement gives a value, if it does nothing else."""
    match statement:
        case cst.SimpleStatementLine(body=[cst.Assign() as assign]):
            return target(assign)
    return None


def _assignment(statement: cst.BaseStatement) -> cst.Assign:
    return cst.ensure_type(cst.ensure_type(statement, cst.SimpleStatementLine).body[0], cst.Assign)
