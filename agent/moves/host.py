"""What a source move changes around a kernel: its parameters, heuristics, host functions, and its launches.

Relies on libcst. A launch is a call `kernel[grid](...)` in a plain function of the file.
"""

from collections.abc import Mapping, Sequence

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.base import DoesNotApply
from pgo_agent.agent.moves.syntax import change, code, expression, functions, lines, names


def used_globals(module: cst.Module) -> set[str]:
    """Names that the file's imports bind."""
    found = set[str]()
    for node in m.findall(module, m.Import() | m.ImportFrom()):
        listed = getattr(node, "names", ())
        for alias in listed if not isinstance(listed, cst.ImportStar) else ():
            found.add(code(alias.asname.name if alias.asname else alias.name).split(".")[0])
    return found


def append_parameters(function: cst.FunctionDef, added: Sequence[str]) -> cst.FunctionDef:
    """The kernel with more parameters at its end: numbers that a launch passes by name."""
    changed = add_parameters(function, added) if added else function
    plain = [p.with_changes(annotation=None) if p.name.value in added else p for p in changed.params.params]
    return changed.with_changes(params=changed.params.with_changes(params=plain))


def add_parameters(function: cst.FunctionDef, added: Sequence[str]) -> cst.FunctionDef:
    """The kernel with more `tl.constexpr` parameters at its end."""
    given = list(function.params.params)
    defaults = any(p.default is not None for p in given)
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
    comma = given[-1].comma if given else cst.MaybeSentinel.DEFAULT
    if given and isinstance(comma, cst.Comma) and len(given) > 1:
        fresh = [p.with_changes(comma=given[-2].comma) for p in fresh[:-1]] + [fresh[-1].with_changes(comma=comma)]
        given[-1] = given[-1].with_changes(comma=given[-2].comma)
    return function.with_changes(params=function.params.with_changes(params=[*given, *fresh]))


def add_heuristics(module: cst.Module, kernel: str, values: Mapping[str, str]) -> cst.Module:
    """Lets the launch compute constexpr parameters from its arguments: name -> expression over `args`."""
    function = functions(module)[kernel]
    entries = "".join(f'        "{n}": lambda args: {text},\n' for n, text in values.items())
    decorator = cst.Decorator(expression("triton.heuristics(\n    {\n" + entries + "    }\n)"))
    at = next(i for i, d in enumerate(function.decorators) if code(d.decorator).split("(")[0].endswith("jit"))
    decorators = [*function.decorators[:at], decorator, *function.decorators[at:]]
    return change(module, {kernel: function.with_changes(decorators=decorators)})


def add_function(module: cst.Module, kernel: str, text: str) -> cst.Module:
    """The file with a host function above the kernel. Raises DoesNotApply when its name is taken."""
    name = next(iter(functions(cst.parse_module(text))))
    if any(name in names(s) for s in module.body) or name in functions(module):
        raise DoesNotApply(f"the name {name} is taken")
    added = cst.parse_module(text).body[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2)
    at = next(i for i, s in enumerate(module.body) if isinstance(s, cst.FunctionDef) and s.name.value == kernel)
    below = module.body[at]
    body = [*module.body[:at], added, below, *module.body[at + 1 :]]
    return module.with_changes(body=body)


def before_launch(module: cst.Module, kernel: str, text: str) -> cst.Module:
    """The file with a statement before every statement that launches the kernel. Raises DoesNotApply without one."""
    visitor = _BeforeLaunch(kernel, text)
    changed = {n: cst.ensure_type(f.visit(visitor), cst.FunctionDef) for n, f in functions(module).items()}
    if not visitor.found:
        raise DoesNotApply(f"no function of the file launches {kernel}[grid](...)")
    return change(module, changed)


def launches(node: cst.CSTNode, kernel: str) -> list[cst.Call]:
    """The calls `kernel[grid](...)` in a node."""
    form = m.Call(func=m.Subscript(value=m.Name(kernel)))
    return [cst.ensure_type(c, cst.Call) for c in m.findall(node, form)]


class _BeforeLaunch(cst.CSTTransformer):
    def __init__(self, kernel: str, text: str) -> None:
        self.kernel, self.text, self.found = kernel, text, 0

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        if not launches(updated_node, self.kernel):
            return updated_node
        self.found += 1
        (added,) = lines(self.text)
        return cst.FlattenSentinel(
            [added.with_changes(leading_lines=updated_node.leading_lines), updated_node.with_changes(leading_lines=[])]
        )
