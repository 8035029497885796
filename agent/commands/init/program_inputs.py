"""Takes the inputs of a target out of the user's own program, where they are more than random numbers.

Offsets, masks, quantized weights and their scales belong together: statements of the program that made them become
inputs(), with the sizes of a case in place of the program's, its device and its generator. It runs nothing.
"""

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pgo_agent.agent.commands.init import cases as sizing
from pgo_agent.agent.commands.init import program_text, references
from pgo_agent.agent.commands.init.captured_calls import Captured
from pgo_agent.agent.commands.init.cases import LARGE, NUMBER
from pgo_agent.agent.commands.init.seen import Tensor, tensor
from pgo_agent.agent.commands.init.substitution import Renamed
from pgo_agent.sandbox import parsing

DEVICE = "generator.device"
_FACTORIES = ("randn", "rand", "randint", "randperm")
_LIKE = {"randn_like": "randn", "rand_like": "rand"}
_EMPTY = {"empty": "zeros", "empty_like": "zeros_like", "new_empty": "new_zeros"}
_IN_PLACE = ("normal_", "uniform_", "random_", "bernoulli_", "exponential_")


@dataclass(frozen=True)
class ProgramInputs:
    """Lines of inputs(), the expression of each argument that they make, and what of the program's module they need."""

    lines: tuple[str, ...]
    values: Mapping[str, str]
    module: str


def found(captured: Captured, known: sizing.Sizes, dtype: str) -> ProgramInputs | None:
    """Return the program's own inputs; None where random ones will do, or where the program cannot be followed.

    `dtype`: the type that inputs() calls `dtype`; empty: none.
    """
    call, site = captured.calls[0], captured.calls[0].site
    given = {n: t for n in captured.arguments if (t := tensor(call.given[n])) is not None}
    if site is None or not captured.program or all(t.drawn for t in given.values()):
        return None
    values = {n: _name(t, site.names) for n, t in given.items()}
    if any(values[n] is None for n, t in given.items() if not t.drawn):
        return None
    names = {n: v for n, v in values.items() if v is not None}
    function = program_text.function_at(parsing.module(captured.program), site.function, site.line)
    numbers = {known.by_call[0][name] for (_, axis), name in known.names.items() if axis == NUMBER}
    renamed = _Inputs(_sizes(site.names, known, dtype), _by_value(known), numbers, dtype)
    asked = [parsing.expression(v) for v in names.values()]
    made = program_text.cut(captured.program, function, site.line, asked, renamed, ("case", "generator", "dtype"))
    if made is None or made.mentions(call.root):
        return None
    texts = {n: ast.unparse(v) for n, v in zip(names, made.values, strict=True)}
    return ProgramInputs(made.lines, texts, made.module)


def _name(t: Tensor, names: Mapping[str, object]) -> str | None:
    """Return the tensor of the program that an argument is, was copied from, or has with its axes in another order."""
    known = [(n, o) for n, v in names.items() if (o := tensor(v)) is not None]
    alike = [(n, o) for n, o in known if (o.shape, o.dtype) == (t.shape, t.dtype)]
    same = next((n for n, o in alike if o.storage == t.storage and o.stride == t.stride), None)
    copied = (n for n, o in alike if o.sources & t.sources and (t.contiguous or o.stride == t.stride))
    return same or next(copied, None) or references.permuted(t, known)


def _sizes(names: Mapping[str, object], known: sizing.Sizes, dtype: str) -> dict[str, str]:
    """Return name in the program -> expression, for sizes, devices and the type of the inputs."""
    result, by_value = dict[str, str](), _by_value(known)
    for name, value in names.items():
        plain = value.get("plain") if isinstance(value, dict) else None
        if type(plain) is int and plain in by_value and plain > 1:
            result[name] = by_value[plain]
        elif isinstance(plain, str) and plain.partition(":")[0] == "cuda":
            result[name] = DEVICE
        elif isinstance(value, dict) and value.get("dtype_") == dtype and dtype:
            result[name] = "dtype"
    return result


def _by_value(known: sizing.Sizes) -> dict[int, str]:
    alike = dict[int, list[str]]()
    for name, size in known.by_call[0].items():
        alike.setdefault(size, []).append(name)
    return {size: f'case["{names[0]}"]' for size, names in alike.items() if all(map(known.same, names, names[1:]))}


class _Inputs(Renamed, ast.NodeTransformer):
    """Also the program's device, type and random numbers, by those of inputs()."""

    def __init__(
        self, given: Mapping[str, str], sizes: Mapping[int, str], numbers: Collection[int], dtype: str
    ) -> None:
        super().__init__(given, {n: text for n, text in sizes.items() if n >= LARGE}, numbers)
        self.sizes, self.dtype = sizes, dtype

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if self.dtype and ast.unparse(node) == f"torch.{self.dtype}":
            return ast.copy_location(ast.Name("dtype", ast.Load()), node)
        self.generic_visit(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str) and node.value.partition(":")[0] == "cuda":
            return parsing.expression(DEVICE)
        return super().visit_Constant(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if k.arg != "requires_grad"]
        if not isinstance(node.func, ast.Attribute):
            return node
        name, owner = node.func.attr, node.func.value
        if name in _LIKE:
            of = ast.unparse(node.args[0])
            dtype = next((ast.unparse(k.value) for k in node.keywords if k.arg == "dtype"), f"{of}.dtype")
            return parsing.expression(
                f"torch.{_LIKE[name]}({of}.shape, generator=generator, device={DEVICE}, dtype={dtype})"
            )
        if name in _FACTORIES:
            node.args = [self._size(a) for a in node.args]
            present = {k.arg for k in node.keywords}
            more = {"generator": "generator"} | ({} if "device" in present else {"device": DEVICE})
            node.keywords = [k for k in node.keywords if k.arg != "generator"]
            node.keywords += [ast.keyword(n, parsing.expression(text)) for n, text in more.items()]
        elif name in _EMPTY:  # what nobody wrote is no input
            node.func.attr = _EMPTY[name]
        elif name in _IN_PLACE:
            node.keywords += [ast.keyword("generator", parsing.expression("generator"))]
        elif name == "cuda":
            return parsing.expression(f"({ast.unparse(owner)}).to({DEVICE})")
        elif name in ("requires_grad_", "detach"):
            return owner
        return node

    def _size(self, node: ast.expr) -> ast.expr:
        """Return a size in place of a number that is one, in a shape also a small one."""
        if isinstance(node, ast.Tuple | ast.List):
            node.elts = [self._size(e) for e in node.elts]
        elif isinstance(node, ast.Constant) and type(node.value) is int and node.value in self.sizes:
            return parsing.expression(self.sizes[node.value])
        return node
