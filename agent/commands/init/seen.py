"""What was seen of a program that calls kernels, as `sandbox/tracer/user_calls.py` writes it: plain data."""

import ast
import math
from dataclasses import dataclass, field
from typing import Any

from pgo_agent.sandbox import parsing

_MAKING = (
    *(ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Constant, ast.Tuple),
    *(ast.UnaryOp, ast.USub, ast.Load),
)  # of a text that only makes a value


@dataclass(frozen=True)
class Tensor:
    """A tensor argument or result."""

    storage: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    grad: bool
    low: int | None = None  # of whole numbers that were drawn
    high: int | None = None
    drawn: bool = False  # its values are random numbers, and nothing was computed with them
    copied: tuple[int, ...] = ()  # storages that its values were copied from, in another type maybe
    values: tuple[float, ...] = ()  # lowest, highest, mean, standard deviation; empty: not known
    held: tuple[str, ...] = ()  # of "inf", "-inf" and "nan" those that were among its values

    @property
    def sources(self) -> frozenset[int]:
        """Storages that hold, or held, its values."""
        return frozenset((self.storage, *self.copied))

    @property
    def contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def whole(self) -> bool:
        return "int" in self.dtype or self.dtype == "bool"


@dataclass(frozen=True)
class Call:
    """One call of a launcher. Values are of JSON: `tensor` reads those that are tensors."""

    file: str
    function: str
    line: int
    args: dict[str, Any]
    result: dict[str, Any]
    context: int | None
    launches: tuple[dict[str, Any], ...]
    site: "Site | None" = None
    written: tuple[int, ...] = ()  # storages that torch operators wrote into

    @property
    def owner(self) -> str:
        """The autograd Function whose method it is; empty for a plain function."""
        return self.function.rpartition(".")[0]

    @property
    def root(self) -> str:
        """The name by which the file of the launcher knows it: a function's, or its class's."""
        return self.function.partition(".")[0]

    @property
    def given(self) -> dict[str, Any]:
        return {n: v for n, v in self.args.items() if n != "ctx"}


@dataclass(frozen=True)
class Site:
    """A line of the user's program, with the names of its function."""

    file: str
    function: str
    line: int
    names: dict[str, Any]


@dataclass(frozen=True)
class Bare:
    """Launches that stand in no function that a target could call, but in the program's own lines."""

    site: Site  # of the first
    after: dict[str, Any]  # names at the last one
    launches: tuple[dict[str, Any], ...]  # each with its `line`


@dataclass(frozen=True)
class Check(Site):
    """A comparison in the user's program."""

    check: str
    sides: tuple[Any, ...]
    bounds: dict[str, float]


@dataclass(frozen=True)
class Seen:
    calls: tuple[Call, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    bare: tuple[Bare, ...] = ()
    error: str = field(default="")


@dataclass(frozen=True)
class Made:
    """A value that is no tensor and not plain, as the text that makes it: `Mode.FAST`, `Meta(bits=4)`."""

    text: str
    names: dict[str, tuple[str, str]]  # that it uses -> the module that has it, and that one's file


def made(value: Any) -> Made | None:
    """Return the text that makes a value; None if it is of another kind, or for a text that does more than that."""
    given = value.get("made") if isinstance(value, dict) else None
    if not isinstance(given, dict):
        return None
    names = {str(n): (str(module), str(file)) for n, (module, file) in given["names"].items()}
    try:
        nodes = list(ast.walk(parsing.expression(str(given["text"]))))
    except (SyntaxError, RecursionError):
        return None
    known = {*names, "float", "torch"}
    harmless = all(isinstance(n, _MAKING) for n in nodes) and {n.id for n in nodes if isinstance(n, ast.Name)} <= known
    words = all(w.isidentifier() for n, (module, _) in names.items() for w in (n, *module.split(".")))
    return Made(str(given["text"]), names) if harmless and words else None


def tensor(value: Any) -> Tensor | None:
    """Return a value as a tensor; None if it is none."""
    if not isinstance(value, dict) or "storage" not in value:
        return None
    recipe = value.get("recipe") or {}
    shape, stride = (tuple(int(n) for n in value[k]) for k in ("shape", "stride"))
    values = tuple(float(f) for f in recipe.get("values", ()))
    held = tuple(dict.fromkeys(str(f) for f in values[:2] if not math.isfinite(f)))  # mean and deviation follow
    return Tensor(
        int(value["storage"]),
        shape,
        stride,
        str(value["dtype"]),
        bool(value["grad"]),
        recipe.get("low"),
        recipe.get("high"),
        bool(recipe),
        tuple(int(s) for s in value.get("copied", ())),
        values if all(map(math.isfinite, values)) else (*values[:3], 0.0) if _of_one_value(values) else (),
        held,
    )


def _of_one_value(values: tuple[float, ...]) -> bool:
    """Whether the deviation is no number because there is one element, or one value."""
    return len(values) == 4 and all(map(math.isfinite, values[:3])) and values[0] == values[1]


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a value, those in lists too."""
    one = tensor(value)
    if one is not None:
        return [one]
    listed = value.get("list", []) if isinstance(value, dict) else []
    return [t for v in listed for t in tensors(v)]


def behind(value: Any) -> list[int]:
    """Return the storages whose addresses a value is or holds, those in lists too."""
    found = value if isinstance(value, dict) else {}
    return [*found.get("behind", ()), *(s for v in found.get("list", ()) for s in behind(v))]
