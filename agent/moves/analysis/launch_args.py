"""What a launcher passes to a kernel, and whether another tensor of the same values may be passed in a tensor's place.

Relies on libcst. It follows launchers with the file's one launch of the kernel, in a statement of its own, outside of
loops and inner functions, whose arguments and grid are numbers, sizes and strides beside the tensors.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import (
    called,
    code,
    constexprs,
    functions,
    keywords,
    names,
    nodes,
    parameters,
    parents,
    parts,
    writes,
)
from pgo_agent.agent.moves.analysis.launcher_edit import launches

_UNKNOWN = "the launch passes arguments that are not followed"
_LIKE = {"empty_like", "zeros_like"}  # give something new
_NEW = {"torch.empty", "torch.zeros", "torch.ones", "torch.full", "torch.empty_like", "torch.zeros_like"}
_NEW_LIKE = {"new_empty", "new_zeros", "new_ones", "new_full"}  # methods of a tensor
_OF_SHAPE = {"shape", "size", "dtype", "device", "dim", "ndim", "numel", "element_size", "is_cuda", *_NEW_LIKE}
_NUMBERS = {"cdiv", "next_power_of_2", "min", "max", "len", "int", "float", "bool", "sqrt"}
_NUMBERS |= {"stride", "size", "element_size", "numel", "dim"}
_HOLDERS = (cst.If, cst.Else, cst.With, cst.Try, cst.IndentedBlock)  # that run a statement once, if at all


@dataclass(frozen=True)
class LaunchArgs:
    """The one launch of a kernel."""

    launcher: cst.FunctionDef
    call: cst.Call
    passed: Mapping[str, str]  # parameter -> text of what it is given

    def strides(self, tensor: str) -> dict[str, int]:
        """Return the parameters that are given a stride of a matrix, and of which dimension."""
        pattern = re.compile(rf"{re.escape(tensor)}\.stride\((-[12]|[01])\)")
        matches = {p: pattern.fullmatch(text) for p, text in self.passed.items()}
        return {p: int(given[1]) % 2 for p, given in matches.items() if given}


def launch_of(module: cst.Module, kernel: str) -> LaunchArgs:
    """Find the launch of a kernel. Raises DoesNotApply where there are several, or it does not tell what it passes."""
    calls = [(f, call) for f in functions(module).values() for call in launches(f, kernel)]
    count = len(launches(module, kernel))
    if len(calls) != 1 or count != 1:
        raise DoesNotApply(f"{kernel} is launched in {count} places")
    launcher, call = calls[0]
    return LaunchArgs(launcher, call, _passed(functions(module)[kernel], call))


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
    match a:
        case cst.Arg(
            star="*", value=cst.Call(func=cst.Attribute(value=cst.Name(), attr=cst.Name(value="stride")) as s, args=[])
        ):
            return [f"{code(s)}({n})" for n in (0, 1)]
    if a.star:
        raise DoesNotApply(_UNKNOWN)
    return [code(a.value)]


def check_replaceable(launch: LaunchArgs, tensor: str) -> None:
    """Raise DoesNotApply where something but the launch sees where a tensor lies, or that it is another one now.

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
    statement = _statement(launch)
    begin = ordered.index(statement)
    end = begin + len(list(nodes(statement)))
    if any(_is(n, tensor) for n in ordered[end:]):
        raise DoesNotApply(f"{tensor} is used after the launch, too")
    harmless = {id(n) for node in ordered[:end] for n in _harmless(node, tensor)} | _given(launch, tensor)
    if any(_is(n, tensor) and id(n) not in harmless for n in ordered[:end]):
        raise DoesNotApply(f"something else of the launcher may hang on where {tensor} lies")


def _statement(launch: LaunchArgs) -> cst.SimpleStatementLine:
    """The line that launches, and does nothing else. Raises DoesNotApply."""
    above, holders = parents(launch.launcher), list[cst.CSTNode]()
    node: cst.CSTNode = launch.call
    while node is not launch.launcher:
        node = above[id(node)]
        holders.append(node)
    line = next((n for n in holders if isinstance(n, cst.SimpleStatementLine)), None)
    outside = holders[holders.index(line) + 1 : -1] if line is not None else []
    if line is None or len(line.body) != 1 or not all(isinstance(n, _HOLDERS) for n in outside):
        raise DoesNotApply("it is launched in a loop, by an inner function, or not in a line of its own")
    lambdas = [n for n in nodes(launch.launcher) if isinstance(n, cst.Lambda)]
    calls = [n for part in (line, *lambdas) for n in nodes(part) if isinstance(n, cst.Call)]
    if any(n in lambdas for n in holders) or any(called(n) not in _NUMBERS for n in calls if n is not launch.call):
        raise DoesNotApply("something may happen while it is launched")
    return line


def check_fresh(launch: LaunchArgs, parameter: str) -> None:
    """Raise DoesNotApply unless the launcher itself makes what a parameter is given: no other tensor lies there."""
    name = launch.passed.get(parameter, "")
    bound = [n for n in nodes(launch.launcher) if name in _binds(n)]
    made = bound[0] if len(bound) == 1 and isinstance(bound[0], cst.Assign) else None
    own = [n for f in nodes(launch.launcher.body) if isinstance(f, cst.FunctionDef | cst.Lambda) for n in nodes(f)]
    if made is None or any(n is made for n in own) or not _is_new(made.value):
        raise DoesNotApply(f"{parameter} may lie where an operand does")


def _binds(node: cst.CSTNode) -> set[str]:
    """The names that a node itself gives a meaning, not those below it."""
    match node:
        case cst.Assign():
            return set[str]().union(*(names(t.target) for t in node.targets))
        case cst.AugAssign() | cst.AnnAssign() | cst.NamedExpr() | cst.For() | cst.CompFor():
            return names(node.target)
        case cst.Param() | cst.FunctionDef() | cst.ClassDef() | cst.AsName() | cst.ImportAlias() | cst.NameItem():
            return names(node.name)
        case cst.Del():
            return names(node.target)
    return set()


def _is_new(value: cst.BaseExpression) -> bool:
    """Whether it is a call of torch that gives a tensor which lies where no other does."""
    if not isinstance(value, cst.Call) or "out" in keywords(value):
        return False
    return code(value.func) in _NEW or (isinstance(value.func, cst.Attribute) and called(value) in _NEW_LIKE)


def _is(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _given(launch: LaunchArgs, tensor: str) -> set[int]:
    """Where a launch is given the tensor itself, or its strides as such."""
    allowed = {tensor, *(launch.passed[p] for p in launch.strides(tensor))}
    values = [a.value for a in launch.call.args if set(_texts(a)) <= allowed]
    return {id(n) for v in values for n in nodes(v) if _is(n, tensor)}


def _harmless(node: cst.CSTNode, name: str) -> Iterator[cst.CSTNode]:
    """Mentions in a node that leave nothing behind but a shape, a type, the name itself, or an error."""
    match node:
        case cst.Assert():
            yield from nodes(node)
        case cst.If(orelse=None, body=cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Raise()])])):
            yield from nodes(node)
        case cst.Attribute(value=cst.Name(value=mentioned) as mention, attr=cst.Name(value=of)) if mentioned == name:
            yield from [mention] if of in _OF_SHAPE else []
        case cst.Attribute(attr=mention) | cst.Arg(keyword=cst.Name() as mention):
            yield mention
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=mentioned))]) if mentioned == name:
            yield from nodes(node)
        case cst.Call() if called(node) in _LIKE:
            yield from (a.value for a in node.args if names(a.value) == {name} and not parts(a.value))
