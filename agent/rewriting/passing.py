"""What a launcher passes to a kernel, and whether another tensor of the same values may be passed in a tensor's place.

Relies on libcst. Followed are launchers with one launch of the kernel, in a statement of its own.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.rewriting import DoesNotApply
from pgo_agent.agent.rewriting.host import launches
from pgo_agent.agent.rewriting.syntax import (
    called,
    code,
    constexprs,
    functions,
    keywords,
    names,
    nodes,
    parameters,
    parts,
    writes,
)

_UNKNOWN = "the launch passes arguments that are not followed"
_LIKE = {"empty_like", "zeros_like"}  # give something new
_OF_SHAPE = {"shape", "size", "dtype", "device", "dim", "ndim", "numel", "element_size", "is_cuda", "new_empty"}
_RAISES = m.IndentedBlock(body=[m.SimpleStatementLine(body=[m.Raise()])])
_NEW = m.Call(
    func=m.Attribute(
        value=m.Name("torch"),
        attr=m.OneOf(*map(m.Name, ("empty", "zeros", "ones", "full", "empty_like", "zeros_like"))),
    )
)
_STRIDES = m.Call(func=m.Attribute(value=m.Name(), attr=m.Name("stride")), args=[])


@dataclass(frozen=True)
class Launch:
    """The one launch of a kernel."""

    launcher: cst.FunctionDef
    call: cst.Call
    passed: Mapping[str, str]  # parameter -> text of what it is given

    def strides(self, tensor: str) -> dict[str, int]:
        """The parameters that are given a stride of a matrix, and of which dimension."""
        pattern = re.compile(rf"{re.escape(tensor)}\.stride\((-[12]|[01])\)")
        found = {p: pattern.fullmatch(text) for p, text in self.passed.items()}
        return {p: int(given[1]) % 2 for p, given in found.items() if given}


def launch_of(module: cst.Module, kernel: str) -> Launch:
    """Raises DoesNotApply where it is not the only one, or does not tell what it passes."""
    found = [(f, call) for f in functions(module).values() for call in launches(f, kernel)]
    if len(found) != 1:
        raise DoesNotApply(f"{kernel} is launched in {len(found)} places")
    launcher, call = found[0]
    return Launch(launcher, call, _passed(functions(module)[kernel], call))


def _passed(kernel: cst.FunctionDef, call: cst.Call) -> dict[str, str]:
    """`*x.stride()` counts as two: where x is no matrix, it must stay as it is."""
    named, constant = keywords(call), constexprs(kernel)
    open_places = [p for p in parameters(kernel) if p not in named]
    texts = [text for a in call.args if a.keyword is None for text in _texts(a)]
    places = open_places[: len(texts)]
    plain = [p for p in open_places if p not in constant]  # others the launch may leave to a configuration
    if len(texts) > len(open_places) or places not in (plain, open_places):
        raise DoesNotApply(_UNKNOWN)
    return dict(zip(places, texts, strict=True)) | {n: code(v) for n, v in named.items()}


def _texts(a: cst.Arg) -> list[str]:
    if a.star == "*" and m.matches(a.value, _STRIDES):
        return [f"{code(a.value).removesuffix('()')}({n})" for n in (0, 1)]
    if a.star:
        raise DoesNotApply(_UNKNOWN)
    return [code(a.value)]


def check_replaceable(launch: Launch, tensor: str) -> None:
    """Raises DoesNotApply where something but the launch sees where a tensor lies, or that it is another one now.

    In the launch it may stand by itself, by its strides, and by what any tensor of that shape and type has.
    """
    launcher = launch.launcher
    if tensor not in parameters(launcher):
        raise DoesNotApply(f"{tensor} is no parameter of the launcher")
    given = [n for n in nodes(launcher.body) if isinstance(n, cst.Assign) and tensor in writes(n)]
    if any(names(n.value) - {tensor, "torch"} for n in given) or any(
        isinstance(n, cst.NamedExpr) for n in nodes(launcher)
    ):
        raise DoesNotApply(f"{tensor} may be a part of another tensor")
    ordered = list(nodes(launcher.body))
    statement = next(s for s in ordered if isinstance(s, cst.SimpleStatementLine) and launch.call in list(nodes(s)))
    if any(isinstance(n, cst.For | cst.While | cst.FunctionDef) and statement in list(nodes(n)) for n in ordered):
        raise DoesNotApply("it is launched in a loop, or by an inner function")
    begin = ordered.index(statement)
    end = begin + len(list(nodes(statement)))
    if any(_is(n, tensor) for n in ordered[end:]):
        raise DoesNotApply(f"{tensor} is used after the launch, too")
    harmless = {id(n) for node in ordered[:end] for n in _harmless(node, tensor)} | _given(launch.call, tensor)
    if any(_is(n, tensor) and id(n) not in harmless for n in ordered[:end]):
        raise DoesNotApply(f"something else of the launcher may hang on where {tensor} lies")


def check_fresh(launch: Launch, parameter: str) -> None:
    """Raises DoesNotApply unless the launcher itself makes what a parameter is given: no other tensor lies there."""
    name = launch.passed.get(parameter, "")
    made = [n.value for n in nodes(launch.launcher.body) if isinstance(n, cst.Assign) and name in writes(n)]
    if len(made) != 1 or not m.matches(made[0], _NEW):
        raise DoesNotApply(f"{parameter} may lie where an operand does")


def _is(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _given(call: cst.Call, tensor: str) -> set[int]:
    """Where a launch is given the tensor itself, or its strides as such."""
    strides = m.Call(func=m.Attribute(value=m.Name(tensor), attr=m.Name("stride")))
    values = [a.value for a in call.args if _is(a.value, tensor) or m.matches(a.value, strides)]
    return {id(n) for v in values for n in nodes(v) if _is(n, tensor)}


def _harmless(node: cst.CSTNode, name: str) -> Iterator[cst.CSTNode]:
    """Mentions in a node that leave nothing behind but a shape, a type, the name itself, or an error."""
    match node:
        case cst.Assert():
            yield from nodes(node)
        case cst.If(orelse=None) if m.matches(node.body, _RAISES):
            yield from nodes(node)
        case cst.Attribute(value=cst.Name(value=found) as mention, attr=cst.Name(value=of)) if found == name:
            yield from [mention] if of in _OF_SHAPE else []
        case cst.Attribute(attr=mention) | cst.Arg(keyword=cst.Name() as mention):
            yield mention
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=found))]) if found == name:
            yield from nodes(node)
        case cst.Call() if called(node) in _LIKE:
            yield from (a.value for a in node.args if names(a.value) == {name} and not parts(a.value))
