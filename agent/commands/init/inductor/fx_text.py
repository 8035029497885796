"""Writes an operation of a graph fragment as a statement of Python: `add = torch.ops.aten.add.Tensor(x, 1)`.

The fragment prints arguments without quotes: `{dtype: torch.float16, device: cuda:0}`. What is not known is refused:
nothing of a text that nobody trusts comes into a target but names, numbers and operations of torch. Casts to floats
become `cast`, which leaves float64 as it is, for the exact result is computed in it.
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pgo_agent.agent.commands.init.inductor.fragment import Node, split
from pgo_agent.sandbox import parsing

FLOATS = frozenset(f"torch.{n}" for n in ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"))
SHAPED = frozenset(
    {"inductor_random", "view", "reshape", "_unsafe_view", "expand", "full", "empty", "zeros", "ones", "broadcast_to"}
)
VIEWS = (SHAPED - {"inductor_random"}) | {
    "permute", "transpose", "t", "squeeze", "unsqueeze", "slice", "select", "split", "alias", "detach", "clone",
    "unbind", "as_strided", "cat", "constant_pad_nd", "copy_", "getitem", "iota",
}  # fmt: skip
MANY = 16  # rows: a tensor that is made with as many has one for each
SOFTMAX = '''
def prepare_softmax_online(x, dim):
    """The largest value of each row, and the sum of the exponentials of what is less."""
    largest = x.amax(dim, keepdim=True)
    return largest, (x - largest).exp().sum(dim, keepdim=True)
'''
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow)
_WORDS = {"True", "False", "None"}
_KEPT = re.compile(
    r"torch\.(float\w+|bfloat16|u?int\d+|bool|complex\d+|contiguous_format|channels_last|preserve_format)"
)


class NoReference(Exception):
    """The fragment does not tell what plain PyTorch computes here; the message says why."""


@dataclass(frozen=True)
class Writer:
    """What the statements of one reference share."""

    names: Callable[[str], str]  # a node -> its name in Python
    symbols: Collection[str]  # sizes that have a name
    device: str  # as an expression
    kind: str  # a tensor of floats, whose type tells whether the exact result is computed; empty: there is none
    sizes: Callable[[Sequence[str]], list[str]]  # sizes of a tensor that follows the rows -> as expressions
    rows: int  # of the call; 0: they are not free
    following: set[str]  # values that are computed of tensors with rows
    everywhere: bool = False  # whether values of others follow the rows, too
    lanes: Mapping[str, int] = field(default_factory=dict)  # random tensors -> elements that share a state of Philox
    drawn: dict[str, tuple[str, str]] = field(default_factory=dict)  # random tensors, and these in another type ->
    # as they were drawn, and the type

    def statement(self, node: Node) -> str:
        """Return the statement of a node. Raises NoReference."""
        if self.following & set(node.reads):
            self.following.add(node.name)
        return f"{self.names(node.name)} = {self._value(node)}"

    def part(self, name: str, of: str, number: int) -> str:
        """Return the statement of one result of an operation that has several."""
        if of in self.following:
            self.following.add(name)
        return f"{self.names(name)} = {self.names(of)}[{number}]"

    def _value(self, node: Node) -> str:
        args = [self._sized(node, a) if _is_size(node, a) else self.value(a) for a in node.args]
        match node.op:
            case "convert_element_type" | "_to_copy":
                to = args[1] if len(args) > 1 else self.value(dict(node.kwargs).get("dtype", "None"))
                if to in FLOATS and node.reads[0] in self.drawn:
                    self.drawn[node.name] = (self.drawn[node.reads[0]][0], to)
                return f"cast({args[0]}, {to})" if to in FLOATS else f"{args[0]}.to({to})"
            case "prepare_softmax_online":
                return f"prepare_softmax_online({', '.join(args)})"
            case "iota":
                return self._iota(node, args)
            case "copy_":
                return args[1]
            case "fma" if len(args) == 3:
                return f"{args[0]} * {args[1]} + {args[2]}"
            case "inductor_lookup_seed":
                return f"{args[0]}[{args[1]}]"
            case "inductor_random":
                return self._drawn(node, args)
            case "inductor_randint" | "rand" | "philox_rand" | "randint":
                raise NoReference(f"it draws random numbers ({node.target}), and eager PyTorch would draw others")
            case "gt" | "ge" | "lt" | "le" if node.target.endswith(".Scalar") and node.reads[0] in self.drawn:
                number, to = self.drawn[node.reads[0]]  # the kernel rounds the bound, and not the number
                return f"{node.target}({self.names(number)}, torch.tensor({args[1]}, dtype={to}).item())"
        if node.target == "operator.getitem" or node.target.endswith("_operator.getitem"):
            return f"{args[0]}[{args[1]}]"
        if not re.fullmatch(r"torch\.ops\.aten\.\w+\.\w+", node.target):
            raise NoReference(f"{node.target} is no operation of eager PyTorch")
        op = node.op.removesuffix("_") if node.changes else node.op  # a reference changes nothing
        target = node.target.replace(f".{node.op}.", f".{op}.")
        return f"{target}({', '.join([*args, *self._named(node)])})"

    def _drawn(self, node: Node, args: Sequence[str]) -> str:
        """Return the numbers that the kernel draws. Raises NoReference."""
        if node.name not in self.lanes or dict(node.kwargs).get("offset", "0") != "0":
            raise NoReference(f"its text does not tell how it draws random numbers ({node.target})")
        self.drawn[node.name] = (node.name, "torch.float32")
        parts = [args[1], args[0], str(self.lanes[node.name]), *["normal=True"] * (node.args[2] == "randn")]
        parts += [f"exact={self.kind}.dtype == torch.float64"] if self.kind else []
        return f"drawn({', '.join(parts)})"

    def _named(self, node: Node) -> list[str]:
        result = list[str]()
        for name, text in node.kwargs:
            if name in ("pin_memory", "layout"):
                continue
            if not name.isidentifier():
                raise NoReference(f"an argument of {node.name} has no name")
            value = self.device if name == "device" else self.value(text)
            if name == "dtype" and value in FLOATS and self.kind:
                value = f"kind({value}, {self.kind})"
            result.append(f"{name}={value}")
        return result

    def _iota(self, node: Node, args: list[str]) -> str:
        given = {k: self.value(v) for k, v in node.kwargs if k not in ("device", "requires_grad")}
        start, step = given.get("start", "0"), given.get("step", "1")
        end = f"{start} + {args[0]} * {step}"
        return f"torch.arange({start}, {end}, {step}, dtype={given.get('dtype', 'torch.int64')}, device={self.device})"

    def _sized(self, node: Node, arg: str) -> str:
        """Return the sizes of a result: those that it has, where the fragment says it."""
        sizes = node.layout.size if node.layout else tuple(split(arg[1:-1]))
        if odd := [s for s in sizes if not arithmetic(s, self.symbols)]:
            raise NoReference(f"{node.name} has the size {odd[0][:40]!r}")
        made = (
            (not node.reads or node.op == "inductor_random")
            and len(sizes) > 0
            and sizes[0] == str(self.rows)
            and self.rows > MANY
        )
        follows = made or self.everywhere or self.following & set(node.reads)
        return f"[{', '.join(self.sizes(sizes) if follows else sizes)}]"

    def value(self, text: str) -> str:
        """Return an argument as Python. Raises NoReference."""
        if text[:1] in ("[", "(") and text[-1:] in ("]", ")") and _closed(text):
            parts = [self.value(p) for p in split(text[1:-1])]
            return (
                f"[{', '.join(parts)}]" if text[0] == "[" else f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
            )
        if re.fullmatch(r"%\w+", text):
            return self.names(text[1:])
        if text in ("inf", "-inf", "nan"):
            return f'float("{text}")'
        if text in _WORDS or _KEPT.fullmatch(text):
            return text
        if re.fullmatch(r"cuda(:\d+)?", text):
            return self.device
        if re.fullmatch(r"[a-z_]+", text) and text not in self.symbols:
            return repr(text)
        if not arithmetic(text, self.symbols):
            raise NoReference(f"{text[:40]!r} stands among the arguments of an operation")
        return text


def arithmetic(text: str, symbols: Collection[str]) -> bool:
    """Whether a text is a number, or arithmetic on numbers and these symbols."""
    try:
        tree = parsing.expression(text)
    except (SyntaxError, ValueError):
        return False
    return _arithmetic(tree, symbols)


def _arithmetic(node: ast.expr, symbols: Collection[str]) -> bool:
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Name(id=name):
            return name in symbols
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _arithmetic(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            return _arithmetic(left, symbols) and _arithmetic(right, symbols)
        case ast.Call(func=ast.Name(id="max" | "min" | "Max" | "Min"), args=args, keywords=[]):
            return all(_arithmetic(a, symbols) for a in args)
    return False


def _is_size(node: Node, arg: str) -> bool:
    """Whether an argument is sizes that are known."""
    return node.op in SHAPED and arg.startswith("[") and (node.layout is not None or "%" not in arg)


def _closed(text: str) -> bool:
    """Whether the first bracket is closed by the last one."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and i < len(text) - 1:
            return False
    return True
