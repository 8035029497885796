"""Guesses shapes of a launcher's arguments from how its text uses them: `M, K = a.shape`, `b.shape[1]`,
`x.view(-1, n)`.

Each dimension has a name. Two dimensions share a name when the text says that they are equal, or treats two tensors
alike. An argument that is bound again by anything but a transposition is taken for its new value. An argument that is
only passed on is read in the host function of the file that gets it.
"""

import ast
import re
from collections.abc import Iterator

from pgo_agent.agent.commands.init.scan import ScannedFile, passed

TENSOR = frozenset(
    {
        "shape",
        "stride",
        "numel",
        "size",
        "dtype",
        "device",
        "contiguous",
        "is_contiguous",
        "view",
        "reshape",
        "data_ptr",
    }
    | {
        "ndim",
        "dim",
        "transpose",
        "T",
        "permute",
        "unsqueeze",
        "squeeze",
        "element_size",
        "clone",
        "flatten",
        "is_cuda",
    }
)  # attributes by which a tensor is known
PLAIN = re.compile(r"(?:Optional\[)?(?:int|float|bool|str|torch\.(?:dtype|device|Size))\b.*")  # no tensor
Names = dict[int, str]  # dimension -> name


class Shapes:
    """Shapes of a host function's parameters, and of what they are bound to. `by_function`: those read already."""

    def __init__(
        self, scanned: ScannedFile, function: ast.FunctionDef, by_function: "dict[str, Shapes | None] | None" = None
    ) -> None:
        nodes = list(ast.walk(function))
        annotations = {a.arg: ast.unparse(a.annotation) for a in parameters(function) if a.annotation}
        self._annotated = {name: annotation.strip("'\"") for name, annotation in annotations.items()}
        self._used = {
            n.value.id
            for n in nodes
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.attr in TENSOR
        }
        self._pointers = {
            v.id
            for launch in scanned.launches
            for k, v in launch.passed.items()
            if isinstance(v, ast.Name) and re.search(r"(?:_ptr|^ptr|ptr)$", k)
        }
        self._flat = {_shaped(n, ("numel",)) for n in nodes}
        self._order = [a.arg for a in parameters(function)]
        self._read(nodes)
        self._handed_on: dict[str, list[tuple[Shapes, str]]] = {}  # parameter -> called functions, and its name there
        by_function = {} if by_function is None else by_function
        by_function[function.name] = None  # as long as it is being read
        for call in (n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
            inner = scanned.host.get(ast.unparse(call.func))
            if inner and inner.name not in by_function:
                Shapes(scanned, inner, by_function)
            if inner and (shapes := by_function[inner.name]):
                self._hand_on(call, inner, shapes)
        by_function[function.name] = self

    def is_tensor(self, name: str) -> bool:
        annotation = self._annotated.get(name, "")
        if PLAIN.fullmatch(annotation):
            return False
        if "tensor" in annotation.lower():
            return True
        inner = self._handed_on.get(name, ())
        return name in self._used or name in self._pointers or any(s.is_tensor(n) for s, n in inner)

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the names of an argument's dimensions, in the order in which it is passed."""
        if not self._says(name):
            for inner, there in self._handed_on.get(name, ()):
                if inner.is_tensor(there):
                    return inner.dims(there)
        alike = [n for n in self._order if self.is_tensor(n) and self._bound.get(n) == self._bound.get(name)]
        alike = alike if self._bound.get(name) else [name]
        if name not in self._known and alike == [name] and (largest := self._largest()):
            return self.dims(largest)
        rank = max(self._rank(n) for n in alike)
        names = [self._names(name, rank), *(self._names(n, rank) for n in alike)]
        named = [
            next((by_index[i] for by_index in names if i in by_index), f"{alike[0].lower()}{i}") for i in range(rank)
        ]
        return self._as_given(name, named)

    def _hand_on(self, call: ast.Call, function: ast.FunctionDef, shapes: "Shapes") -> None:
        for there, value in passed(call, function).items():
            if isinstance(value, ast.Name) and value.id in self._order:
                self._handed_on.setdefault(value.id, []).append((shapes, there))

    def _says(self, name: str) -> bool:
        """Return whether this function itself says anything about a parameter's dimensions."""
        return any(name in facts for facts in (self._known, self._least, self._exact, self._bound, self._flat))

    def _read(self, nodes: list[ast.AST]) -> None:
        self._alias: dict[str, str] = {}  # name of a shape -> its tensor
        self._known: dict[str, Names] = {}  # from the end where negative
        self._least: dict[str, int] = {}  # least number of dimensions
        self._exact: dict[str, int] = {}
        self._bound: dict[str, list[str]] = {}  # what a name is bound to again, in order
        for node in sorted((n for n in nodes if isinstance(n, ast.Assign)), key=lambda n: n.lineno):
            if len(node.targets) == 1:
                self._assigned(node.targets[0], node.value)
        for n in nodes:
            self._indexed(n)
        for n in nodes:
            self._compared(n)

    def _assigned(self, to: ast.expr, value: ast.expr) -> None:
        shaped, (tensor, i) = self._shape(value), self._dimension(value)
        if isinstance(to, ast.Tuple) and shaped and all(isinstance(t, ast.Name) for t in to.elts):
            names = [t.id for t in to.elts if isinstance(t, ast.Name)]
            self._exact.setdefault(shaped, len(names))
            self._known.setdefault(shaped, {}).update({i: n for i, n in enumerate(names) if n.strip("_")})
        elif isinstance(to, ast.Name) and shaped:
            self._alias[to.id] = shaped
        elif isinstance(to, ast.Name) and tensor and not _is_stride(value):
            self._known.setdefault(tensor, {}).setdefault(i, to.id)
        elif isinstance(to, ast.Name) and to.id in self._order:
            self._rebound(to.id, value)

    def _rebound(self, name: str, value: ast.expr) -> None:
        text = re.sub(rf"\b{re.escape(name)}\b", "_", ast.unparse(value))
        self._bound.setdefault(name, []).append(text)
        flat = re.fullmatch(r"_\.(?:view|reshape)\(-1, (.+)\)", text)
        if flat:
            self._least[name] = max(self._least.get(name, 0), 2)
            if flat[1].isidentifier():
                self._known.setdefault(name, {}).setdefault(-1, flat[1])

    def _indexed(self, node: ast.AST) -> None:
        tensor, i = self._dimension(node)
        if tensor:
            self._least[tensor] = max(self._least.get(tensor, 0), i + 1 if i >= 0 else -i)

    def _compared(self, node: ast.AST) -> None:
        """Read `a.shape[1] == b.shape[0]`: the second dimension has the name of the first."""
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            one, other = self._dimension(node.left), self._dimension(node.comparators[0])
            for (a, i), (b, j) in ((one, other), (other, one)):
                if a and b and i in self._known.get(a, {}):
                    self._known.setdefault(b, {}).setdefault(j, self._known[a][i])

    def _rank(self, name: str) -> int:
        return self._exact.get(name) or self._least.get(name) or (1 if name in self._flat else 2)

    def _names(self, name: str, rank: int) -> Names:
        return {i if i >= 0 else rank + i: n for i, n in self._known.get(name, {}).items()}

    def _largest(self) -> str:
        exact = [n for n in self._order if n in self._exact]
        return max(exact, key=lambda n: self._exact[n], default="")

    def _as_given(self, name: str, dims: list[str]) -> tuple[str, ...]:
        """Return the dimensions before the transpositions that precede the launcher's use of the shape."""
        for text in reversed(self._bound.get(name, [])):
            swapped = re.fullmatch(r"_\.transpose\((-?\d), (-?\d)\)", text)
            if swapped and all(-len(dims) <= int(i) < len(dims) for i in swapped.groups()):
                i, j = map(int, swapped.groups())
                dims[i], dims[j] = dims[j], dims[i]
        return tuple(dims)

    def _shape(self, node: ast.AST) -> str:
        """Return the tensor in `x.shape`, `x.size()` or a name for them; else empty."""
        if isinstance(node, ast.Name):
            return self._alias.get(node.id, "")
        return _shaped(node, ("shape", "size"))

    def _dimension(self, node: ast.AST) -> tuple[str, int]:
        """Return the tensor and the index in `x.shape[1]`, `x.size(1)` or `x.stride(1)`; else an empty name."""
        if isinstance(node, ast.Subscript):
            tensor, number = self._shape(node.value), _number(node.slice)
            return (tensor, number) if tensor and number is not None else ("", 0)
        if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
            of, number = node.func.value, _number(node.args[0])
            if node.func.attr in ("size", "stride") and isinstance(of, ast.Name) and number is not None:
                return of.id, number
        return "", 0


def parameters(function: ast.FunctionDef) -> Iterator[ast.arg]:
    yield from (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)


def _is_stride(node: ast.AST) -> bool:
    """Return whether it is `x.stride(0)`, which shows a number of dimensions, but no size."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "stride"


def _shaped(node: ast.AST, attributes: tuple[str, ...]) -> str:
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in attributes and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _number(node: ast.AST) -> int | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError):
        return None
    return value if type(value) is int and -8 <= value < 8 else None
