"""Reads a problem of KernelBench's form: `class Model(nn.Module)`, `get_inputs()`, `get_init_inputs()`, and its sizes.

A size is a whole number of which the inputs are made: one that the file gives a name to, or one that stands in the
functions that make them. These functions then take it as an argument. Relies on `ast`; nothing of the file is run.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.commands.problems import plain_sizes
from pgo_agent.agent.kernel_part import Block, blocks
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault

MODEL, GIVEN, INIT = "Model", "get_inputs", "get_init_inputs"
LEAST = 9  # a number without a name from here on is a size: others are widths of kernels, strides, groups


@dataclass(frozen=True)
class Maker:
    """A function that makes inputs, of the model or of its constructor, from sizes."""

    sizes: tuple[str, ...]  # its parameters
    text: str


@dataclass(frozen=True)
class Problem:
    """A problem, taken apart."""

    model: str  # the statements that the model needs
    sizes: Mapping[str, int]  # as the file has them
    given: Maker
    init: Maker

    @property
    def text(self) -> str:
        """The problem as a module whose makers take sizes."""
        return f"{self.model}\n\n\n{self.given.text}\n\n\n{self.init.text}\n"


def recognised(text: str, name: str) -> bool:
    """Whether a text is such a problem. Raises UsageFault for what is no Python."""
    body = target.parse(text, name).body
    return {n.name for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)} >= target.PROBLEM


def read(text: str) -> Problem:
    """Take a problem apart. Raises UsageFault where a name of it is one that a target defines."""
    parts = [b for b in blocks(plain_sizes.rewritten(text, LEAST)) if not _idle(b)]
    makers = {n: f for b in parts for f in b.nodes if isinstance(f, ast.FunctionDef) and (n := f.name) in (GIVEN, INIT)}
    own = [i for i, b in enumerate(parts) if b.names & makers.keys()]
    model = _reached(parts, [i for i, b in enumerate(parts) if MODEL in b.names])
    assigned = {i: node for i in _reached(parts, own) - model if (node := _assigned(parts[i]))}
    helpers = _reached(parts, own) - model - assigned.keys() - set(own)
    fixed = {i for i in assigned if parts[i].names & set[str]().union(*(parts[j].loads for j in helpers))}
    kept = model | helpers | _reached(parts, sorted(fixed))
    lines = {i: node for i, node in assigned.items() if i not in kept}
    lifted = _Lifted({n for b in parts for n in b.names | b.loads})
    bodies = {n: lifted.visit(f) for n, f in makers.items()}
    sizes = {_name(n): v for n in lines.values() if (v := _number(n)) is not None} | lifted.sizes
    text_ = "".join(b.text for i, b in enumerate(parts) if i in kept).strip("\n")
    given, init = (_maker(n, bodies.get(n), parts, lines, sizes) for n in (GIVEN, INIT))
    if clashes := sorted((target.CONTRACT | {"kernel"}) & {n for i in kept for n in parts[i].names}):
        raise UsageFault(f"the problem has names of its own for what a target defines: {', '.join(clashes)}",
                         "rename them in a copy, and give that")  # fmt: skip
    return Problem(text_, {n: v for n, v in sizes.items() if n in (*given.sizes, *init.sizes)}, given, init)


def _idle(part: Block) -> bool:
    """Whether a part is text, or what runs when the file is a program."""
    node = part.nodes[0] if part.nodes else ast.Pass()
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.If | ast.Pass)


def _reached(parts: Sequence[Block], roots: Collection[int]) -> set[int]:
    reached, waiting = set[int](), list(roots)
    while waiting:
        i = waiting.pop()
        if i not in reached:
            reached.add(i)
            waiting += [j for j, b in enumerate(parts) if b.names & parts[i].loads]
    return reached


def _assigned(part: Block) -> ast.Assign | None:
    """Return the statement of a part that gives one name to an expression."""
    node = part.nodes[0]
    single = len(part.nodes) == 1 and isinstance(node, ast.Assign) and len(node.targets) == 1
    return node if single and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else None


def _name(node: ast.Assign) -> str:
    assert isinstance(node.targets[0], ast.Name)
    return node.targets[0].id


def _number(node: ast.Assign) -> int | None:
    value = node.value.value if isinstance(node.value, ast.Constant) else None
    return value if type(value) is int else None


def _maker(
    name: str,
    body: ast.FunctionDef | None,
    parts: Sequence[Block],
    lines: Mapping[int, ast.Assign],
    sizes: Collection[str],
) -> Maker:
    """Return a maker that takes its sizes, and computes what the file computes of them."""
    if body is None:
        return Maker((), f"def {name}():\n    return []\n")
    needed = {n.id for n in ast.walk(body) if isinstance(n, ast.Name)}
    before = list[ast.stmt]()
    for i in sorted(lines, reverse=True):
        if _name(lines[i]) in needed and _name(lines[i]) not in sizes:
            needed |= parts[i].loads
            before.insert(0, lines[i])
    taken = tuple(n for n in sizes if n in needed)
    body.args, body.body, body.returns = _parameters(taken), [*before, *body.body], None
    return Maker(taken, ast.unparse(ast.fix_missing_locations(body)) + "\n")


def _parameters(names: Sequence[str]) -> ast.arguments:
    return ast.arguments(posonlyargs=[], args=[ast.arg(n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[])


class _Lifted(ast.NodeTransformer):
    """Gives names to the sizes that stand in makers; equal ones are one size."""

    def __init__(self, taken: Collection[str]) -> None:
        self.taken, self.sizes = taken, dict[str, int]()

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int or node.value < LEAST:
            return node
        name = next(n for n in _names(node.value) if n not in self.taken)
        self.sizes[name] = node.value
        return ast.Name(name, ast.Load())


def _names(value: int) -> Iterator[str]:
    yield f"size_{value}"
    yield from (f"size_{value}_{i}" for i in range(2, 999))
