"""Values as expressions, with Python's operators and precedence; what is folded into them is remembered.

Layouts, splats, broadcasts and integer widenings are left out; an address that is too long is its pointer and a
function of what it depends on: K + f(i).
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir.pseudocode import constants, kinds, layouts
from pgo_agent.sandbox.ttgir.pseudocode.folding import Folding
from pgo_agent.sandbox.ttgir.pseudocode.graph import Node, Value

ADDRESS = 44  # characters of the longest address that is written out
DEEPEST, MOST = 60, 200  # expressions inside of expressions, and ops in a line: Triton's have a few
ATOM, POWER, TIMES, PLUS, SHIFT, AND, XOR, OR, COMPARE, CHOICE = 20, 16, 14, 13, 12, 11, 10, 9, 8, 2
Text = tuple[str, int]  # an expression and how tightly it binds
BINARY = {
    "addf": ("+", PLUS),
    "addi": ("+", PLUS),
    "addptr": ("+", PLUS),
    "subf": ("-", PLUS),
    "subi": ("-", PLUS),
    "mulf": ("*", TIMES),
    "muli": ("*", TIMES),
    "divf": ("/", TIMES),
    "divsi": ("//", TIMES),
    "divui": ("//", TIMES),
    "floordivsi": ("//", TIMES),
    "remsi": ("%", TIMES),
    "remui": ("%", TIMES),
    "remf": ("%", TIMES),
    "shli": ("<<", SHIFT),
    "shrsi": (">>", SHIFT),
    "shrui": (">>", SHIFT),
    "andi": ("&", AND),
    "xori": ("^", XOR),
    "ori": ("|", OR),
}
CALLED = {"maxnumf": "max", "maximumf": "max", "maxsi": "max", "maxui": "max", "ceildivsi": "cdiv", "ceildivui": "cdiv"}
CALLED |= {"minnumf": "min", "minimumf": "min", "minsi": "min", "minui": "min"}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
CASTS = ("truncf", "extf", "trunci", "sitofp", "uitofp", "fptosi", "fptoui", "fp_to_fp")
SILENT = kinds.WIDENING | {"ttg.memdesc_reshape", "tt.unsplat"}
_ADDING = SILENT | {"tt.addptr", "tt.expand_dims"}


@dataclass
class Expressions:
    """Writes values; `name` says what a variable is called."""

    folding: Folding
    name: Callable[[Value], str]
    used: list[Node] = field(default_factory=list)  # what was folded into the text since it was last emptied
    depth: int = 0

    def text(self, value: Value | None, tight: int = 0) -> str:
        """Return a value, in brackets where it binds less tightly than `tight`."""
        node = self.inlined(value)
        if value is None or self.depth > DEEPEST or len(self.used) > MOST:
            return "..."
        if node is None:
            return self.name(value) or "?"
        self.depth += 1
        expression, binds = self.op(node)
        self.depth -= 1
        return f"({expression})" if binds < tight else expression

    def inlined(self, value: Value | None) -> Node | None:
        """Return the op that is written in place of a value's name."""
        return value.node if value is not None and value.node in self.folding.inlined else None

    def op(self, node: Node) -> Text:
        """Return what an op computes."""
        self.used.append(node)
        short = node.name.rpartition(".")[2]
        if node.name in SILENT and node.operands:
            return self._silent(node)
        if node.name == "tt.addptr":
            return self._address(node), PLUS
        if short in BINARY:
            return self._binary(node, short)
        if short in _SPECIAL:
            return _SPECIAL[short](self, node)
        if short == "trunci" and constants.narrow(node.operand(0)):
            return self._silent(node)
        if short in CASTS and node.operands:
            return f"{layouts.element(_element(node.results[0]))}({self.text(node.operands[0])})", ATOM
        return self.call(CALLED.get(short, short), node), ATOM

    def call(self, name: str, node: Node) -> str:
        return f"{name}({', '.join(self.text(v) for v in node.operands)})"

    def _silent(self, node: Node) -> Text:
        """Return the value that an op hands on; through any number of them."""
        inner: Node | None = node
        while inner is not None and inner.operands and (inner is node or self._goes_on(inner, SILENT)):
            value = inner.operands[0]
            inner = self.inlined(value)
            self.used += [inner] if inner is not None and inner.name in SILENT else []
        return self.op(inner) if inner is not None and len(self.used) <= MOST else (self.text(value), ATOM)

    def _goes_on(self, node: Node, through: Set[str]) -> bool:
        """Return whether a chain of ops goes on, and the line has room for it."""
        return node.name in through and len(self.used) <= MOST

    def _binary(self, node: Node, short: str) -> Text:
        sign, binds = BINARY[short]
        left, right = node.operand(0), node.operand(1)
        divided = self._divided(node) if short == "subi" else None
        if divided is not None:
            return f"{self.text(left, TIMES)} % {self.text(divided, POWER)}", TIMES
        if sign in ("&", "|", "^"):
            flag = self.text(right, ATOM)
            return f"{self.text(left, ATOM)} {sign} {'1' if flag == 'True' else flag}", binds
        whole = sign == "+" and not _element(node.results[0]).startswith(("f", "bf"))  # any order gives the same
        before, after = self.text(left, binds), self.text(right, binds if whole else binds + 1)
        if sign == "+" and _negative(after):
            return f"{before} - {after[1:]}", binds
        return f"{before} {sign} {after}", binds

    def _divided(self, node: Node) -> Value | None:
        """Return the n of x - x // n * n where all of it is written here."""
        times = self.inlined(node.operand(1))
        n = constants.remainder(node)
        if times is None or n is None:
            return None
        self.used.append(times)
        for value in times.operands:
            self.text(value)  # so that a division that is folded here counts as shown
        return n

    # addresses --------------------------------------------------------------------------------------------------------

    def _address(self, node: Node) -> str:
        """K + i * stride; K + f(i), what it depends on, where it would be long."""
        pointer, offsets = self._chain(node)
        base = self.text(pointer, PLUS)
        text = " + ".join([base, *(self.text(v, PLUS) for v in offsets)])
        if len(text) <= ADDRESS:
            return text
        sources = dict.fromkeys(self._leaves(offsets, parameters=False))
        leaves = ", ".join(sources or dict.fromkeys(self._leaves(offsets, parameters=True)))
        return f"{base} + f({leaves})"

    def _chain(self, node: Node) -> tuple[Value | None, list[Value]]:
        """Return the pointer that nested additions start from, and all that is added, the first first."""
        offsets: list[Value] = []
        inner: Node | None = node
        value: Value | None = None
        while inner is not None and inner.operands and self._goes_on(inner, _ADDING):
            if inner.name == "tt.addptr":
                offsets = [*inner.operands[1:], *offsets]
            self.used.append(inner)
            value = inner.operands[0]
            inner = self.inlined(value)
        return value, offsets

    def _leaves(self, values: Sequence[Value], parameters: bool) -> Iterator[str]:
        """Yield what values are computed from: program ids, counters, variables; the function's parameters where
        asked."""
        left, seen = [*reversed(values)], set[Value]()
        while left and len(seen) <= MOST:
            value = left.pop()
            node = self.inlined(value)
            if value in seen:
                continue
            seen.add(value)
            if node is None:
                body = value.body
                if parameters or value.node is not None or body is None or body.owner.name != "tt.func":
                    yield self.name(value)
            elif not node.operands and "program" in node.name:
                yield self.op(node)[0]
            left += reversed(node.operands) if node is not None else ()


def _negative(text: str) -> bool:
    return text.startswith("-") and text[1:].replace(".", "", 1).isdigit()


def _element(value: Value) -> str:
    shape = value.shape
    return shape.element if shape else value.type


# ops that are written in a way of their own ---------------------------------------------------------------------------


def _constant(e: Expressions, node: Node) -> Text:
    return constants.text(kinds.constant_text(node.op), _element(node.results[0])), ATOM


def _range(e: Expressions, node: Node) -> Text:
    start, end = node.op.integer("start") or 0, node.op.integer("end") or 0
    return (f"arange({start}, {end})" if start else f"arange({end})"), ATOM


def _expanded(e: Expressions, node: Node) -> Text:
    """x[:, None]; nothing for what is the same everywhere."""
    inner, shape = node.operand(0), node.results[0].shape
    origin = inner
    for _ in range(DEEPEST):
        inlined = e.inlined(origin)
        if inlined is None or inlined.name not in SILENT or not inlined.operands:
            break
        origin = inlined.operands[0]
    if (
        shape is None
        or not shape.shape
        or (origin is not None and origin.shape is None)
        or (inlined and inlined.name == "arith.constant")
    ):
        return e.text(inner, ATOM), ATOM
    index = [":"] * len(shape.shape)
    index[(node.op.integer("axis") or 0) % len(index)] = "None"
    text = e.text(inner, ATOM)
    return f"{text}[{', '.join(index)}]", ATOM


def _select(e: Expressions, node: Node) -> Text:
    condition, yes, no = (node.operand(i) for i in range(3))
    wrapped = constants.wraps(node)
    if wrapped is not None:
        e.text(condition), e.text(yes)  # folded here
        return f"{e.text(no, TIMES)} % {wrapped}", TIMES
    if node.results[0].shape is not None:
        return e.call("where", node), ATOM
    return f"{e.text(yes, CHOICE + 1)} if {e.text(condition, CHOICE + 1)} else {e.text(no, CHOICE)}", CHOICE


def _compared(e: Expressions, node: Node) -> Text:
    predicate = next(iter(node.op.words), "?")
    sign = COMPARED.get(predicate[-2:], predicate)
    return f"{e.text(node.operand(0), COMPARE + 1)} {sign} {e.text(node.operand(1), COMPARE + 1)}", COMPARE


def _program(e: Expressions, node: Node) -> Text:
    axis = next(iter(node.op.words), "x")
    return ("pid_" if node.name.endswith("_id") else "programs_") + axis, ATOM


def _slot(e: Expressions, node: Node) -> Text:
    index = ", ".join(e.text(v) for v in node.operands[1:]) or ", ".join(node.op.words)
    return f"{e.text(node.operand(0), ATOM)}[{index}]", ATOM


def _part(e: Expressions, node: Node) -> Text:
    """k[0:64, 32:64], by the offsets of an attribute or of the text."""
    shape = node.results[0].shape
    offsets = constants.numbers(str(node.op.parts[0]))
    if shape is None or len(offsets) < len(shape.shape) or len(node.operands) > 1:
        return e.call("subslice", node), ATOM
    ends = zip(offsets, shape.shape, strict=False)
    return f"{e.text(node.operand(0), ATOM)}[{', '.join(f'{o}:{o + n}' for o, n in ends)}]", ATOM


def _transposed(e: Expressions, node: Node) -> Text:
    order = constants.numbers(node.op.attributes.get("order", ""))
    if order not in ([], [1, 0]):
        return f"permute({e.text(node.operand(0))}, {order})", ATOM
    return f"{e.text(node.operand(0), ATOM)}^T", ATOM


def _reshaped(e: Expressions, node: Node) -> Text:
    shape = node.results[0].shape
    sizes = "x".join(map(str, shape.shape)) if shape else "?"
    return f"reshape({e.text(node.operand(0))}, {sizes})", ATOM


def _negated(e: Expressions, node: Node) -> Text:
    return f"-{e.text(node.operand(0), POWER)}", POWER


_SPECIAL: dict[str, Callable[[Expressions, Node], Text]] = {
    "constant": _constant,
    "make_range": _range,
    "expand_dims": _expanded,
    "select": _select,
    "cmpi": _compared,
    "cmpf": _compared,
    "get_program_id": _program,
    "get_num_programs": _program,
    "memdesc_index": _slot,
    "memdesc_subview": _slot,
    "memdesc_subslice": _part,
    "memdesc_trans": _transposed,
    "trans": _transposed,
    "reshape": _reshaped,
    "negf": _negated,
}
