"""Follows the buffers through a module's `call`: each launch with what its arguments hold, by the names of the graph.

Inductor reuses memory and names it anew; a graph fragment knows the values in it. What a launch reads got its name from
the one that wrote it, or is matched with the fragment's placeholders by type, sizes and strides; what it writes is what
the fragment returns. Relies on `output_code.py` and `fragment.py`; reads text and runs nothing.
"""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgo_agent.agent.commands.init.inductor import fragment as reading
from pgo_agent.agent.commands.init.inductor import values
from pgo_agent.agent.commands.init.inductor.fragment import Fragment, Layout
from pgo_agent.agent.commands.init.inductor.output_code import Kernel, Module
from pgo_agent.agent.commands.init.inductor.parameters import POINTERS, written
from pgo_agent.agent.commands.init.inductor.values import Buffer
from pgo_agent.sandbox import parsing

_EMPTY = re.compile(r"empty_strided_(\w+)")
_EXTERN = re.compile(r"(?:extern_kernels\.|(?:torch\.ops\.)?aten\.|torch\.ops\.\w+\.)(\w+)")


@dataclass(frozen=True)
class Arg:
    """An argument of a launch."""

    parameter: str
    text: str  # of a number, as Python on the symbols; of a tensor: the memory's name
    layout: Layout | None = None  # of a tensor
    held: str = ""  # what it holds before, by its name in the graph; empty: nothing
    partial: bool = False  # what it held has no name in the graph
    result: str = ""  # what it holds after; empty: it is not written
    result_partial: bool = False
    after: Layout | None = None  # of what it holds after

    @property
    def tensor(self) -> bool:
        return self.layout is not None


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    kernel: Kernel
    fragment: Fragment
    args: tuple[Arg, ...]
    grid: tuple[str, ...]  # of a template, whose launch says it; empty: it follows from the sizes
    unnamed: tuple[str, ...]  # what it reads, and no fragment names

    @property
    def reads(self) -> list[Arg]:
        return [a for a in self.args if a.held]

    @property
    def writes(self) -> list[Arg]:
        return [a for a in self.args if a.result]


@dataclass
class _Names:
    """What the names of a call mean at one of its statements."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    turn: int = 0  # calls of libraries so far, and launches of a kernel whose results another one's comment names
    first: dict[str, "Launch"] = field(default_factory=dict)  # of each kernel
    changed: set[str] = field(default_factory=set)  # results of the graph's operations that change memory


@dataclass(frozen=True)
class Followed:
    """What a module's call does."""

    launches: tuple[Launch, ...]
    symbols: Mapping[str, str]  # an argument of the graph -> the size that it is


def follow(module: Module) -> Followed:
    """Return the launches of a module's kernels, in order."""
    fragments = [reading.read(k.comment) for k in module.kernels.values()]
    changed = {n.name for f in fragments for n in f.nodes.values() if n.changes}
    names, found = _Names(changed=changed), list[Launch]()
    for call in module.calls:
        for node in parsing.flat(call.body):
            match node:
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="run")) as run) if (
                    name in module.kernels
                ):
                    again = _again if name in names.first else _launch
                    found.append(again(module.kernels[name], run, names))
                    names.first.setdefault(name, found[-1])
                case ast.Expr(value=ast.Call() as called):
                    _called(called, names)
                case ast.Assign(targets=[ast.Tuple(elts=given)], value=ast.Name(id="args")):
                    for n in (e.id for e in given if isinstance(e, ast.Name)):
                        names.buffers.setdefault(n, Buffer(n, None, n, given=True))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    _assigned(name, value, names)
    return Followed(tuple(_begun(found)), names.symbols)


def _begun(launches: Sequence[Launch]) -> list[Launch]:
    """Return launches whose results are partial where a later one completes them."""
    found, completed = list[Launch](), set[str]()
    for launch in reversed(launches):
        args = tuple(replace(a, result_partial=True) if a.result in completed else a for a in launch.args)
        found.insert(0, replace(launch, args=args))
        completed |= {a.held for a in launch.args if a.tensor and a.partial and a.held == a.result}
    return found


def _assigned(name: str, value: ast.expr, names: _Names) -> None:
    match value:
        case ast.Call(func=ast.Name(id=function), args=[size, stride, dtype]) if _EMPTY.fullmatch(function):
            layout = Layout(ast.unparse(dtype).removeprefix("torch."), _sizes(size, names), _sizes(stride, names))
            names.buffers[name] = Buffer(name, layout, None, fresh=True)
        case ast.Call(func=ast.Name(id="empty" | "empty_strided"), args=[size, *stride]):  # of older releases
            names.buffers[name] = Buffer(name, _older(value, size, stride, names), None, fresh=True)
        case ast.Call(func=ast.Name(id="copy_if_misaligned" | "get_raw_stream")):
            return
        case ast.Call(func=ast.Name(id="reinterpret_tensor")):
            if (made := _view(name, value, names)) is not None:
                names.buffers[name] = made
        case ast.Name(id=other) if other in names.buffers and re.fullmatch(r"[su]\d+", name):
            names.symbols[other] = name  # a size that the graph is given
            del names.buffers[other]
        case ast.Name(id=other) if other in names.buffers:
            names.buffers[name] = names.buffers[other]
        case ast.Call() | ast.Subscript():
            found = _EXTERN.match(ast.unparse(value))
            names.buffers[name] = Buffer(name, None, None, extern=found[1] if found else "", turn=names.turn)
            names.turn += 1
        case _:
            names.numbers[name] = _number(value, names)


def _older(call: ast.Call, size: ast.expr, stride: Sequence[ast.expr], names: _Names) -> Layout:
    dtype = next((ast.unparse(k.value).removeprefix("torch.") for k in call.keywords if k.arg == "dtype"), "")
    sizes = _sizes(size, names)
    if stride:
        return Layout(dtype, sizes, _sizes(stride[0], names))
    strides = [" * ".join(sizes[i + 1 :]) or "1" for i in range(len(sizes))]
    numbers = all(s.isdigit() for s in sizes)
    dense = [str(math.prod(map(int, sizes[i + 1 :]))) for i in range(len(sizes))] if numbers else strides
    return Layout(dtype, sizes, tuple(dense))


def _called(call: ast.Call, names: _Names) -> None:
    """Take in what a library writes, and what sizes are asserted."""
    match call:
        case ast.Call(func=ast.Name(id="assert_size_stride"), args=[ast.Name(id=name), size, stride, *_]):
            if (buffer := names.buffers.get(name)) is not None and buffer.layout is None:
                buffer.layout = Layout("", _sizes(size, names), _sizes(stride, names))
        case ast.Call(func=function, keywords=[*keywords]) if found := _EXTERN.match(ast.unparse(function)):
            for out in (k.value for k in keywords if k.arg == "out"):
                buffer = names.buffers.get(out.id) if isinstance(out, ast.Name) else _view("", out, names)
                for written_ in (buffer, *(buffer.views if buffer else ())):
                    if written_ is not None:
                        written_.value, written_.fresh, written_.extern = None, False, found[1].removesuffix("_out")
                        written_.turn = names.turn
                names.turn += 1


def _view(name: str, value: ast.expr, names: _Names) -> Buffer | None:
    match value:
        case ast.Call(args=[ast.Name(id=of), size, stride, *beyond]) if of in names.buffers:
            base = names.buffers[of]
            layout = Layout(base.layout.dtype if base.layout else "", _sizes(size, names), _sizes(stride, names))
            whole = not beyond or ast.unparse(beyond[0]) == "0"
            held = base.value if whole else None
            made = Buffer(name or of, layout, held, base.fresh, base.extern, base.turn, base.partial)
            base.views.append(made)
            base.fresh = base.fresh and bool(name)
            return made
    return None


def _sizes(node: ast.expr, names: _Names) -> tuple[str, ...]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return tuple(_number(p, names) for p in parts)


def _number(node: ast.expr, names: _Names) -> str:
    text = ast.unparse(node)
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: f"({n})" if (n := names.numbers.get(m[0])) else m[0], text)


def _launch(kernel: Kernel, run: ast.Call, names: _Names) -> Launch:
    function = kernel.function
    parameters = [a.arg for a in function.args.args if a.annotation is None] if function else []
    given, beyond = run.args[: len(parameters)], run.args[len(parameters) :]
    frag = reading.read(kernel.comment)
    stored = written(kernel)
    paired = [(p, *_place(a, names)) for p, a in zip(parameters, given, strict=False)]
    tensors = [(p, b) for p, b, _ in paired if b is not None and _pointer(kernel, p)]
    _types(kernel, tensors)
    fresh = {p for p, b in tensors if b.fresh or (p in stored and _only_memory(kernel, p, b))}
    unnamed = values.named(frag, [b for p, b in tensors if not (p in fresh and p in stored)])
    held = {p: (b.value or b.name, b.partial) for p, b in tensors}
    begun = {p for p, b in tensors if b.value in frag.nodes and p not in fresh}  # `scatter`, of which a part is there
    called = {p: text for p, _, text in paired}
    results = values.results(frag, [(p, b) for p, b in tensors if p in stored], called, names.changed)
    for p in [p for p in results if p in begun and values.is_buffer(results[p], frag)]:
        results[p], held[p] = held[p][0], (held[p][0], True)
    args = list[Arg]()
    for p, buffer, text in paired:
        if buffer is None or p not in held:
            args.append(Arg(p, text))
            continue
        name, partial = held[p]
        before = "" if p in fresh else name
        layout = values.layout(frag, before, buffer)
        after = results.get(p, "")
        shared = values.is_buffer(after, frag)
        args.append(Arg(p, buffer.name, layout, before, partial, after, shared, buffer.layout))
    for p, buffer in tensors:
        if p in results:
            buffer.value, buffer.fresh = results[p], False
            buffer.extern, buffer.partial = "", values.is_buffer(results[p], frag)
    return Launch(kernel, frag, tuple(args), tuple(_number(b, names) for b in beyond), tuple(unnamed))


def _again(kernel: Kernel, run: ast.Call, names: _Names) -> Launch:
    """Return a further launch of a kernel. Its comment is of the first one: so are the names of what it works on, and
    what it writes gets its own name where that is read."""
    first, args = names.first[kernel.name], list[Arg]()
    for arg, node in zip(first.args, run.args, strict=False):
        buffer, text = _place(node, names)
        args.append(replace(arg, text=buffer.name if buffer is not None else text))
        if buffer is not None and arg.result:
            buffer.value, buffer.fresh, buffer.partial = None, False, arg.result_partial
            buffer.extern, buffer.turn = re.sub(r"_\d+$", "", arg.result), names.turn
    names.turn += 1
    grid = tuple(_number(n, names) for n in run.args[len(first.args) :])
    return replace(first, args=tuple(args), grid=grid)


def _only_memory(kernel: Kernel, parameter: str, buffer: Buffer) -> bool:
    """Whether a result goes into memory that is used again: what it held is read no more, and is none of the user's."""
    loaded = re.search(rf"(load|atomic_\w+)\({parameter}\b", kernel.text)
    filled = parameter.startswith("out_ptr") and parameter not in kernel.mutated
    return filled and not buffer.given and not loaded


def _place(node: ast.expr, names: _Names) -> tuple[Buffer | None, str]:
    """Return an argument's memory, if it is a tensor, and its text."""
    if isinstance(node, ast.Name) and node.id in names.buffers:
        return names.buffers[node.id], node.id
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
        return _view("", node, names), ""
    return None, _number(node, names)


def _pointer(kernel: Kernel, parameter: str) -> bool:
    return kernel.types.get(parameter, "*" if "ptr" in parameter or parameter.startswith("arg_") else "").startswith(
        "*"
    )


def _types(kernel: Kernel, tensors: Sequence[tuple[str, Buffer]]) -> None:
    """Give memory the type that the kernel's signature says."""
    for p, buffer in tensors:
        known = POINTERS.get(kernel.types.get(p, ""), "")
        if known and buffer.layout is not None and not buffer.layout.dtype:
            buffer.layout = replace(buffer.layout, dtype=known)
