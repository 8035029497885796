"""Puts two kernel parts into one file: what differs in the other one stands beside the file's own, under other names.

The launcher runs the other one where a condition on its own arguments holds. Relies on `agent/kernel_part.py` for
statements and on libcst for names.
"""

import ast
from collections.abc import Mapping, Sequence

import libcst as cst
from pgo_agent.agent.kernel_part import Block, blocks
from pgo_agent.agent.moves.analysis import DoesNotApply, cst_util
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import CONTRACT

LAUNCHER = "kernel"


def both(own: str, other: str, condition: str) -> str:
    """Return the file `own`, whose launcher runs `other`'s where the condition holds. Raises DoesNotApply."""
    mine = blocks(own)
    added, launcher = _brought(mine, other, frozenset())
    return _joined(mine, added, {condition: launcher})


def dispatched(own: str, others: Mapping[str, str], imports: Sequence[str], functions: Sequence[str]) -> str:
    """Return the file `own` with several others beside it. `others`: a function that says whether a file's launcher is
    for the arguments -> that file; the first that holds is taken. `functions`: those, and what they use. Raises
    DoesNotApply."""
    mine, brought, choices = blocks(own), list[str](), dict[str, str]()
    for condition, other in others.items():
        names = frozenset[str]().union(*(b.names for text in brought for b in blocks(text)))
        added, choices[condition] = _brought(mine, other, names)
        brought += [b.text for b in blocks(added) if not (b.imports and b.names <= names)]
    return beside(own, imports, [*brought, *functions], choices)


def _brought(mine: Sequence[Block], other: str, taken: frozenset[str]) -> tuple[str, str]:
    """Return what the other file has beside these blocks, under names that are free, and its launcher's name."""
    moved = _moved(list(mine), blocks(other))
    names = {n for b in moved if not b.imports for n in b.names}
    used = {n for b in mine for n in b.names | b.loads} | taken
    suffix = next(s for s in ("_rewritten", *(f"_rewritten{i}" for i in range(2, 99))) if not _clash(names, s, used))
    return "".join(b.text if b.imports else _renamed(b.text, names, suffix) for b in moved), f"{LAUNCHER}{suffix}"


def parameters(source: str) -> str:
    """Return the names that the launcher of a file takes, as they are passed on. Raises DoesNotApply."""
    return _passed(next(b.text for b in blocks(source) if LAUNCHER in b.names))


def beside(own: str, imports: Sequence[str], functions: Sequence[str], choices: Mapping[str, str]) -> str:
    """Return the file `own` with functions beside its kernels. `choices`: a function that says whether another one is
    for the arguments of its launcher, which then calls that. Raises DoesNotApply."""
    mine = blocks(own)
    bound = {n: line for b in mine for n, line in _bound(b).items()}
    for line in imports:
        (name,) = (n for b in blocks(line) for n in b.names)
        if bound.get(name, line) != line:
            raise DoesNotApply(f"{name} is something else in this file")
    passed = _passed(next(b.text for b in mine if LAUNCHER in b.names))
    lacking = [line for line in imports if line not in bound.values()]
    added = "\n\n\n".join(["\n".join(lacking), *(f.strip() for f in functions)])
    return _joined(mine, added, {f"{condition}({passed})": other for condition, other in choices.items()})


def _bound(of: Block) -> dict[str, str]:
    """Return name -> the statement that binds it and nothing else; for what is no import, all of its text."""
    result = {n: of.text.strip() for n in of.names}
    for node in of.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                one = ast.Import([alias]) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, [alias], 0)
                result[(alias.asname or alias.name).partition(".")[0]] = ast.unparse(one)
    return result


def _joined(mine: list[Block], added: str, choices: Mapping[str, str]) -> str:
    """Return a file with functions before its launcher, which calls the first of them whose condition holds."""
    at = next(i for i, b in enumerate(mine) if LAUNCHER in b.names)
    launcher = mine[at].text
    for condition, other in reversed(list(choices.items())):
        launcher = _routed(launcher, condition, other)
    texts = [b.text for b in mine]
    return "".join([*texts[:at], f"\n\n{added.strip()}\n", launcher, *texts[at + 1 :]])


def _clash(names: set[str], suffix: str, taken: set[str]) -> bool:
    return any(n + suffix in taken for n in names)


def _moved(mine: list[Block], theirs: list[Block]) -> list[Block]:
    """What the other file has and this one has not, and what there uses it."""
    texts = {b.text.strip() for b in mine}
    added = [b for b in theirs if b.text.strip() not in texts and not b.names & (CONTRACT - {LAUNCHER})]
    while True:
        names = {n for b in added if not b.imports for n in b.names}
        using = [b for b in theirs if b not in added and b.loads & names and not b.names & (CONTRACT - {LAUNCHER})]
        if not using:
            break
        added += using
    launcher = [b for b in theirs if LAUNCHER in b.names]
    return [b for b in theirs if b in added or b in launcher]


def _renamed(text: str, names: set[str], suffix: str) -> str:
    module = cst.parse_module(text)
    for function in (n for n in cst_util.nodes(module) if isinstance(n, cst.FunctionDef)):
        local = {p.name.value for p in cst_util.nodes(function) if isinstance(p, cst.Param)} | cst_util.writes(function)
        if local & names:
            raise DoesNotApply(f"{', '.join(sorted(local & names))} is a variable of {function.name.value}, too")
    return cst_util.visited(module, cst_util.Rename({n: n + suffix for n in names})).code


def _function(text: str) -> ast.FunctionDef:
    """The launcher, with a name for each argument."""
    tree = parsing.module(text)
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == LAUNCHER), None)
    if function is None:
        raise DoesNotApply(f"{LAUNCHER} is not written as a function of its own")
    if function.args.vararg or function.args.kwarg or function.args.posonlyargs:
        raise DoesNotApply(f"{LAUNCHER} takes arguments without names")
    return function


def _passed(text: str) -> str:
    given = _function(text).args
    return ", ".join(a.arg for a in (*given.args, *given.kwonlyargs))


def _routed(text: str, condition: str, other: str) -> str:
    """The launcher's text with a first statement that goes the other way."""
    function = _function(text)
    passed = ", ".join(f"{a.arg}={a.arg}" for a in (*function.args.args, *function.args.kwonlyargs))
    docstring = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    if docstring and len(function.body) == 1:
        raise DoesNotApply(f"{LAUNCHER} does nothing")
    first = function.body[1 if docstring else 0]
    lines = text.splitlines(keepends=True)
    indent = " " * first.col_offset
    lines.insert(first.lineno - 1, f"{indent}if {condition}:\n{indent}    return {other}({passed})\n")
    return "".join(lines)
