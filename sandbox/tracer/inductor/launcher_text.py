"""Turns the module that Inductor writes into a kernel part of ours: plain Triton kernels, and a launcher for them.

Inductor's module launches through its own runtime. Here each kernel becomes a `triton.jit` function with the launch
configurations that Inductor's heuristics give it, as `triton.autotune` takes them, and the statements of its `call`
become those of a launcher. Relies on `kernel_text.py` for the kernels, and reads all by `ast`. What it does not know in
a text is NoText: a launcher that leaves something out would be wrong.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.tracer.inductor import kernel_text
from pgo_agent.sandbox.tracer.inductor.kernel_text import Kernel
from pgo_agent.sandbox.tracer.inductor.reference_graph import NoText, Written

IMPORTS = {
    "torch": "import torch",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "math": "import math",
    "triton_helpers": "from torch._inductor.runtime import triton_helpers",
    "libdevice": "from torch._inductor.runtime.triton_helpers import libdevice",
    "tl_math": "from torch._inductor.runtime.triton_helpers import math as tl_math",
}
_PRODUCTS = {"mm": "mm", "bmm": "bmm", "addmm": "addmm", "bias_addmm": "addmm", "baddbmm": "baddbmm"}
_SILENT = re.compile(r"\w*args\.clear\(\)|torch\.cuda\.set_device\(0\)|assert_\w+\(.*\)|del .*", re.S)
_NOTHING = re.compile(r"\w+ = (get_raw_stream\(0\)|copy_if_misaligned\(\w+\))")


@dataclass(frozen=True)
class KernelPart:
    """What a kernel file gets: imports, functions, and a launcher that is for some arguments only."""

    imports: Sequence[str]
    text: str  # the kernels, the launcher and the condition
    launcher: str  # its name; it takes what kernel() takes
    condition: str  # name of the function that says whether the launcher is for its arguments


def kernel_part(
    written: Written, name: str, parameters: Sequence[str], folder: Path, most: int, allowed: Collection[str] = ()
) -> KernelPart:
    """Return Inductor's module as a launcher `name(*parameters)`, with a function `name_fits` and kernels that begin
    with its name. `folder`: where kernels may be written to. `most`: configurations of a kernel. `allowed`: torch
    operators that it may call. Raises NoText."""
    tree = parsing.module(written.module)
    kernels = {k.name: k for k in kernel_text.kernels(tree, folder, most)}
    if not kernels:
        raise NoText("it needs no kernel of its own")
    body = _needed(list(_statements(_call(tree), written, kernels, allowed)))
    launcher = f"def {name}({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in body)
    condition = _condition(written, f"{name}_fits", parameters)
    text = "\n\n".join([*(k.text for k in kernels.values()), launcher, condition])
    text = re.sub(r"\btriton_((poi|red|per|for)_\w+)", rf"{name}_\1", text)
    used = {n.id for n in ast.walk(parsing.module(text)) if isinstance(n, ast.Name)}
    return KernelPart([line for n, line in IMPORTS.items() if n in used], text, name, f"{name}_fits")


def _condition(written: Written, name: str, parameters: Sequence[str]) -> str:
    used = {n for c in written.symbols.conditions for n in re.findall(r"\b[su]\d+\b", c)}
    sizes = "".join(f"    {s} = {text}\n" for s, text in written.symbols.texts.items() if s in used)
    ranks = [c for c in written.symbols.conditions if ".dim()" in c]  # first: what follows reads these dimensions
    others = [c for c in written.symbols.conditions if c not in ranks]
    tests = "\n        and ".join(others)
    early = f"    if {' or '.join(c.replace('==', '!=') for c in ranks)}:\n        return False\n" if ranks else ""
    return f"def {name}({', '.join(parameters)}):\n{early}{sizes}    return (\n        {tests or 'True'}\n    )\n"


# the launcher ---------------------------------------------------------------------------------------------------------


def _call(tree: ast.Module) -> ast.FunctionDef:
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"]
    if len(calls) != 1:
        raise NoText("it is cut into several parts")
    return calls[0]


def _statements(
    call: ast.FunctionDef, written: Written, kernels: Mapping[str, Kernel], allowed: Collection[str]
) -> Iterator[str]:
    renamed = _arguments(call, written)
    for node in parsing.flat(call.body):
        text = ast.unparse(node)
        if _SILENT.fullmatch(text) or _NOTHING.fullmatch(text) or text.endswith("= args"):
            continue
        node = _Renamed(renamed).visit(node)
        match node:
            case ast.Return(value=ast.Tuple(elts=results)):
                yield _returned([ast.unparse(r) for r in results], written.in_place)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="run"), args=args)):
                yield launch(_known(name, kernels), [ast.unparse(a) for a in args])
            case ast.Assign(value=ast.Call(func=ast.Name(id="empty_strided_cuda"), args=[size, stride, dtype])):
                shape = f"{ast.unparse(size)}, {ast.unparse(stride)}, dtype={ast.unparse(dtype)}"
                yield f"{ast.unparse(node.targets[0])} = torch.empty_strided({shape}, device={written.device})"
            case ast.Assign(value=value) if not _calls(value):
                yield ast.unparse(node)
            case _ if line := _library(node, allowed):
                yield line
            case _:
                raise NoText(f"it does what no kernel does: {ast.unparse(node)[:100]}")


def _library(node: ast.stmt, allowed: Collection[str]) -> str:
    """Return a call of an operator that may stay, as one of torch; empty for another statement."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="extern_kernels"), attr=name)) as call):
            into = next((ast.unparse(k.value) for k in call.keywords if k.arg == "out"), "")
            call.keywords = [k for k in call.keywords if k.arg != "out"]
            call.func = parsing.expression(f"torch.{_PRODUCTS.get(name, name)}")
            return f"{into} = {ast.unparse(call)}" if into and name in _PRODUCTS else ""
        case ast.Assign(value=ast.Call(func=ast.Attribute(value=ast.Name(id="extern_kernels"), attr="convolution"))):
            return ast.unparse(node).replace("extern_kernels.", "torch.", 1)
        case ast.Assign(value=ast.Call(func=function)):
            called = ast.unparse(function)
            return ast.unparse(node) if called.removeprefix("torch.ops.") in allowed else ""
    return ""


def _needed(lines: Sequence[str]) -> list[str]:
    """Return the statements without those that give a name to what nothing reads."""
    kept, read = list[str](), set[str]()
    for line in reversed(lines):
        made = re.match(r"(\w+) = ", line)
        if made is None or made[1] in read:
            kept.append(line)
            read -= {made[1]} if made else set()
            read |= set(re.findall(r"\w+", line[made.end() :] if made else line))
    return kept[::-1]


def _arguments(call: ast.FunctionDef, written: Written) -> dict[str, str]:
    """Return Inductor's names for the inputs, with ours."""
    for node in call.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                given = [n.id for n in names if isinstance(n, ast.Name)]
                if len(given) == len(written.tensors):
                    return dict(zip(given, written.tensors, strict=True))
    raise NoText("it takes other arguments than the reference")


class _Renamed(ast.NodeTransformer):
    """Gives inputs our names, and makes views by a function that torch documents."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.func.id != "reinterpret_tensor":
            return node
        of, size, stride, *beyond = (ast.unparse(a) for a in node.args)
        offset = "" if beyond in ([], ["0"]) else f", {of}.storage_offset() + {beyond[0]}"
        return parsing.expression(f"torch.as_strided({of}, {size}, {stride}{offset})")

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def _calls(value: ast.expr) -> bool:
    """Whether an expression calls anything but the sizes of a tensor, and arithmetic."""
    allowed = re.compile(r"\w+\.(size|stride|storage_offset)|torch\.as_strided|math\.\w+|max|min|int|abs")
    return any(isinstance(n, ast.Call) and not allowed.fullmatch(ast.unparse(n.func)) for n in ast.walk(value))


def _known(name: str, kernels: Mapping[str, Kernel]) -> Kernel:
    if name not in kernels:
        raise NoText(f"it launches {name}, which is none of its kernels")
    return kernels[name]


def launch(kernel: Kernel, args: Sequence[str]) -> str:
    """Return the statement that launches a kernel, with the grid that Inductor gives it. Raises NoText."""
    if not kernel.axes:
        args, given_grid = args[: len(kernel.parameters)], args[len(kernel.parameters) :]
        return f"{kernel.name}[({', '.join(given_grid)})]({', '.join(args)})"
    if len(args) != len(kernel.parameters):
        raise NoText(f"{kernel.name} is launched with {len(args)} arguments, not {len(kernel.parameters)}")
    given = dict(zip(kernel.parameters, args, strict=True))
    blocks = []
    for axis in kernel.axes:
        block = kernel.constants.get(f"{axis}BLOCK", f"meta['{axis}BLOCK']")
        blocks.append(f"triton.cdiv({given[f'{axis.lower()}numel']}, {block})")
    if kernel.overflows:  # a grid has at most 65535 blocks along its second axis
        turns = f"triton.cdiv({blocks[1]}, 65535)"
        blocks[1:] = [f"triton.cdiv({blocks[1]}, {turns})", turns]
    grid = f"lambda meta: ({', '.join(blocks)}{',' if len(blocks) == 1 else ''})"
    scalars = [_valued(text, given) for text in kernel.scalars]
    return f"{kernel.name}[{grid}]({', '.join([*args, *scalars])})"


def _valued(scalar: str, given: Mapping[str, str]) -> str:
    """Return what the host computes for a kernel, of what it passes to it."""
    return re.sub(r"\b[a-z]\w*\b", lambda m: given.get(m[0], m[0]), ast.unparse(parsing.expression(scalar)))


def _returned(results: Sequence[str], in_place: Mapping[int, str]) -> str:
    left, every = list(results), list[str]()
    for i in range(len(results) + len(in_place)):
        every.append(in_place[i] if i in in_place else left.pop(0))
    return f"return {', '.join(every)}"
