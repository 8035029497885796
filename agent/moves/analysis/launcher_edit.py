"""What a source move changes around a kernel: its parameters, heuristics, host functions, and its launches.

Relies on libcst. A launch is a call `kernel[grid](...)` in a statement of its own line; a kernel that the file uses in
any other way raises DoesNotApply, because nobody can tell how it is launched there.
"""

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import (
    change,
    code,
    decorated,
    exchanged,
    expression,
    functions,
    lines,
    makers,
    nodes,
    parts,
    variables,
    writes,
)

_BUILTINS = {"all", "hasattr", "int", "min"}  # that the text of heuristics calls
_TIGHT = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
_BETWEEN = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
_MEANT = {"torch": "torch", "triton": "triton", "tl": "triton.language"}


def append_parameters(function: cst.FunctionDef, added: Sequence[str]) -> cst.FunctionDef:
    """Return the kernel with more parameters at its end: numbers that a launch passes by name."""
    changed = add_parameters(function, added) if added else function
    plain = [p.with_changes(annotation=None) if p.name.value in added else p for p in changed.params.params]
    return changed.with_changes(params=changed.params.with_changes(params=plain))


def add_parameters(function: cst.FunctionDef, added: Sequence[str]) -> cst.FunctionDef:
    """Return the kernel with more `tl.constexpr` parameters at its end."""
    given = list(function.params.params)
    defaults = any(p.default is not None for p in (*function.params.posonly_params, *given))
    constexpr = cst.Annotation(expression("tl.constexpr"))
    fresh = [
        cst.Param(
            cst.Name(n),
            constexpr,
            cst.AssignEqual() if defaults else cst.MaybeSentinel.DEFAULT,
            cst.Name("False") if defaults else None,
        )
        for n in added
    ]
    if len(given) > 1 and isinstance(given[-1].comma, cst.Comma):
        own, between = given[-1].comma, _without_comment(given[-2].comma)
        given[-1] = given[-1].with_changes(comma=_with_comment_of(own, between))
        fresh = [p.with_changes(comma=between) for p in fresh]
        fresh[-1] = fresh[-1].with_changes(comma=_without_comment(own))
    return function.with_changes(params=function.params.with_changes(params=[*given, *fresh]))


def add_heuristics(module: cst.Module, kernel: str, values: Mapping[str, str]) -> cst.Module:
    """Let the launch compute constexpr parameters from its arguments: name -> expression over `args`."""
    function = functions(module)[kernel]
    long = {n: f"(\n            {text}\n        )" if "\n" in text else text for n, text in values.items()}
    entries = "".join(f'        "{n}": lambda args: {text},\n' for n, text in long.items())
    decorator = cst.Decorator(expression("triton.heuristics(\n    {\n" + entries + "    }\n)"))
    decorations = decorated(function)
    if "jit" not in decorations:
        raise DoesNotApply(f"{kernel} is not decorated with triton.jit")
    decorators = [
        *function.decorators[: decorations.index("jit")],
        decorator,
        *function.decorators[decorations.index("jit") :],
    ]
    return change(module, {kernel: function.with_changes(decorators=decorators)})


def add_function(module: cst.Module, kernel: str, text: str) -> cst.Module:
    """Return the file with a host function above the kernel; one that another kernel brought is used again.

    Raises DoesNotApply when its name is taken by something else.
    """
    (added,) = lines(text)
    added = cst.ensure_type(added, cst.FunctionDef).with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2)
    name = added.name.value
    if name in visible(module, kernel):
        if name in functions(module) and code(functions(module)[name]).strip() == code(added).strip():
            return module
        raise DoesNotApply(f"the name {name} is taken")
    own = functions(module)[kernel]
    return exchanged(module, {id(own): cst.FlattenSentinel([added, own])})


def check_names(module: cst.Module, kernel: str) -> None:
    """Raise DoesNotApply unless text that says `torch`, `triton` or `tl` means these, and the kernel is one thing."""
    bindings = visible(module, kernel)
    for name, meant in _MEANT.items():
        if bindings.get(name) != [meant]:
            raise DoesNotApply(f"the file does not import {meant} under the name {name}, or gives that name twice")
    if hidden := sorted(_BUILTINS & set(bindings)):
        raise DoesNotApply(f"the file gives {', '.join(hidden)} another meaning than Python's")
    if len(bindings.get(kernel, [])) != 1:
        raise DoesNotApply(f"the name {kernel} is given to more than one thing")


def visible(module: cst.Module, kernel: str) -> dict[str, list[str]]:
    """Return the names that a function sees where it stands, and what they are bound to, as `bound` does."""
    bindings = bound(module)
    for maker in makers(module, kernel):
        bindings |= {p.name.value: [""] for p in nodes(maker.params) if isinstance(p, cst.Param)}
        bindings |= bound(maker.body)
    return bindings


def bound(block: cst.CSTNode) -> dict[str, list[str]]:
    """Return the names at the top of a file or a function's body, and what they are bound to: a module by its name,
    anything else as ""."""
    bindings = dict[str, list[str]]()
    for statement in _top(block):
        for name, meant in _bindings(statement):
            if meant == "" or meant not in bindings.get(name, []):
                bindings.setdefault(name, []).append(meant)
    return bindings


def before_launch(module: cst.Module, kernel: str, text: str) -> cst.Module:
    """Return the file with a statement before each that launches the kernel. Raises DoesNotApply where none does."""
    visitor = _BeforeLaunch(kernel, text)
    changed = cst.ensure_type(module.visit(visitor), cst.Module)
    mentions = [n for n in variables(module) if n.value == kernel]
    if not launches(module, kernel):
        raise DoesNotApply(f"no function of the file launches {kernel}[grid](...)")
    if any(launches(f, kernel) and "triton" in writes(f) | _imported_names(f) for f in functions(module).values()):
        raise DoesNotApply(f"triton is something else where {kernel} is launched")
    if visitor.found < len(mentions) - 1:  # one is its definition
        raise DoesNotApply(f"the file uses {kernel} in another way than {kernel}[grid](...) in a statement of its own")
    return changed


def launches(node: cst.CSTNode, kernel: str) -> list[cst.Call]:
    """Return the calls `kernel[grid](...)` in a node."""
    return [n for n in nodes(node) if isinstance(n, cst.Call) and is_launch(n, kernel)]


def is_launch(call: cst.Call, kernel: str) -> bool:
    """Tell whether a call is `kernel[grid](...)`."""
    of = call.func.value if isinstance(call.func, cst.Subscript) else None
    return isinstance(of, cst.Name) and of.value == kernel


def with_keywords(call: cst.Call, added: Mapping[str, str]) -> cst.Call:
    """Return the call with more arguments: keyword -> text of its value. They stand on the line of the last one."""
    fresh = [cst.Arg(expression(text), cst.Name(n), equal=_TIGHT) for n, text in added.items()]
    if not fresh or not call.args:
        return call.with_changes(args=[*call.args, *fresh])
    *given, last = call.args
    plain = last.with_changes(comma=_BETWEEN, whitespace_after_arg=cst.SimpleWhitespace(""))
    ending = fresh[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return call.with_changes(args=[*given, plain, *(a.with_changes(comma=_BETWEEN) for a in fresh[:-1]), ending])


class _BeforeLaunch(cst.CSTTransformer):
    def __init__(self, kernel: str, text: str) -> None:
        self.kernel, self.text, self.found = kernel, text, 0

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        launched = launches(updated_node, self.kernel)
        if not launched:
            return updated_node
        self.found += len(launched)
        (added,) = lines(self.text)
        return cst.FlattenSentinel(
            [added.with_changes(leading_lines=updated_node.leading_lines), updated_node.with_changes(leading_lines=[])]
        )


def _without_comment(comma: cst.Comma | cst.MaybeSentinel) -> cst.Comma | cst.MaybeSentinel:
    if isinstance(comma, cst.Comma) and isinstance(comma.whitespace_after, cst.ParenthesizedWhitespace):
        return comma.with_deep_changes(comma.whitespace_after, first_line=cst.TrailingWhitespace(), empty_lines=[])
    return comma


def _with_comment_of(own: cst.Comma, between: cst.Comma | cst.MaybeSentinel) -> cst.Comma | cst.MaybeSentinel:
    """A comma as between two parameters, with the comment that stood behind the last one."""
    if isinstance(between, cst.Comma) and isinstance(own.whitespace_after, cst.ParenthesizedWhitespace):
        white = between.whitespace_after
        if isinstance(white, cst.ParenthesizedWhitespace):
            return between.with_deep_changes(white, first_line=own.whitespace_after.first_line)
    return between


def _top(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The simple statements and definitions at the top of a file, also those under `if` and `try`."""
    for part in parts(node):
        if isinstance(part, cst.FunctionDef | cst.ClassDef | cst.BaseSmallStatement):
            yield part
        else:
            yield from _top(part)


def _bindings(statement: cst.CSTNode) -> list[tuple[str, str]]:
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return [(statement.name.value, "")]
    return [*((n, "") for n in writes(statement)), *_imports(statement)]


def _imports(node: cst.CSTNode) -> list[tuple[str, str]]:
    if not isinstance(node, cst.Import | cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
        return []
    source = f"{code(node.module)}." if isinstance(node, cst.ImportFrom) and node.module else ""
    return [_imported(alias, source) for alias in node.names]


def _imported_names(node: cst.CSTNode) -> set[str]:
    return {name for below in nodes(node) for name, _ in _imports(below)}


def _imported(alias: cst.ImportAlias, source: str) -> tuple[str, str]:
    whole = code(alias.name)
    if alias.asname is not None:
        return code(alias.asname.name), source + whole
    return (whole, source + whole) if source else (whole.split(".")[0], whole.split(".")[0])
