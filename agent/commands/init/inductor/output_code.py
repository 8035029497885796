"""Reads what `TORCH_LOGS=output_code` prints, or a file of Inductor's cache: modules, their kernels and their calls.

The text is parsed and never run. Prefixes of log lines are taken off; a log may hold several modules, one for each
graph. Relies on `parsing` alone.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pgo_agent.sandbox import parsing, target
from pgo_agent.sandbox.errors import UsageFault

HINT = "give what `TORCH_LOGS=output_code python program.py` prints, or a file of /tmp/torchinductor_*/"
_PREFIX = re.compile(
    r"^(?:\[rank\d+\]:)?\s?"
    r"(?:[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ (?:\d+ )?\S+\] |\[\d{4}-\d\d-\d\d [^\]]*\] \S+ \[\w+\] )"
    r"(?:\[[^\]\s]*\] ?)*"
)
_BEGINNINGS = ("# AOT ID: ", "from ctypes import c_void_p")  # of a module; older releases have the second alone
_END = re.compile(r"Output code written to: |Output code: *$|FX graph cache |Compiled module path:")


@dataclass(frozen=True)
class Kernel:
    """A part of a module that Inductor compiles, as its text has it."""

    name: str
    kind: str  # "triton", "cpp_pybind", ...
    text: str  # of the kernel's own module
    comment: tuple[str, ...]  # the lines before it, without the "#"

    @cached_property
    def function(self) -> ast.FunctionDef | None:
        """The kernel's function; None if its text has none of its name."""
        try:
            body = parsing.module(self.text).body
        except SyntaxError:
            return None
        return next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == self.name), None)

    @cached_property
    def decorator(self) -> ast.Call | None:
        """The call of Inductor's heuristics."""
        found = self.function.decorator_list if self.function else []
        return next((d for d in found if isinstance(d, ast.Call)), None)

    @property
    def heuristic(self) -> str:
        """`pointwise`, `reduction`, `persistent_reduction`, `template`, `user_autotune`, ...; empty: not known."""
        return ast.unparse(self.decorator.func).rpartition(".")[2] if self.decorator else ""

    @cached_property
    def types(self) -> Mapping[str, str]:
        """Types of the parameters, as Triton calls them: `*fp16`, `i32`."""
        if self.function is None or self.decorator is None:
            return {}
        meta = next((k.value for k in self.decorator.keywords if k.arg == "triton_meta"), None)
        found = dict(_entries(meta)).get("signature") if isinstance(meta, ast.Dict) else None
        names = [a.arg for a in self.function.args.args]
        result = dict[str, str]()
        for key, value in _entries(found) if isinstance(found, ast.Dict) else ():
            name = key if isinstance(key, str) else names[key] if isinstance(key, int) and key < len(names) else ""
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and name:
                result[str(name)] = value.value
        return result

    @cached_property
    def mutated(self) -> frozenset[str]:
        """The parameters whose memory it changes, and does not only fill."""
        keywords = self.decorator.keywords if self.decorator else []
        meta = next((k.value for k in keywords if k.arg == "inductor_meta"), None)
        names = dict(_entries(meta)).get("mutated_arg_names") if isinstance(meta, ast.Dict) else None
        listed = names.elts if isinstance(names, ast.List) else []
        return frozenset(str(n.value) for n in listed if isinstance(n, ast.Constant))

    @property
    def atens(self) -> tuple[str, ...]:
        """The operations of the model that it computes: `aten.gelu`."""
        found = re.search(r"Original ATen: \[([^\]]*)\]", "\n".join(self.comment))
        return tuple(n.strip() for n in found[1].split(",") if n.strip()) if found else ()


@dataclass(frozen=True)
class Module:
    """The code of one graph."""

    number: int  # among those of the file
    text: str
    kernels: Mapping[str, Kernel]
    calls: tuple[ast.FunctionDef, ...]  # `call`, or the functions of its partitions
    hints: Mapping[str, int]  # symbol -> the size that it had

    @property
    def release(self) -> str:
        """Which releases of torch write such code, as far as its form tells."""
        if "PlaceHolder[target=" in self.text:
            return "torch 2.9 or newer"
        if "grid=grid(" in self.text or "grid=lambda" in self.text:
            return "torch 2.6 or older"
        return "torch 2.7 or 2.8"


def read(path: Path) -> list[Module]:
    """Return the modules of a file. Raises UsageFault for what is none of Inductor's, or does not parse."""
    try:
        text = target.text(path) if path.suffix == ".py" else path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as e:
        raise UsageFault(f"cannot read {path}: {e}", HINT) from None
    modules = [_module(i, part, path) for i, part in enumerate(_apart(list(_parts(text))))]
    if not any(m.kernels for m in modules):
        if modules and any("async_compile" in m.text or "def call(" in m.text for m in modules):
            raise UsageFault(f"{path} is Inductor's, and has no kernel in it: it calls libraries alone", HINT)
        raise UsageFault(f"{path} is no code of Inductor's: nothing in it calls async_compile.triton", HINT)
    return modules


def _parts(text: str) -> Iterator[str]:
    """Yield the texts of modules, without what a log prints before, between and in front of them."""
    lines = text.splitlines()
    logged = [m.end() for line in lines if (m := _PREFIX.match(line))]
    if logged:
        lines = [line[m.end() :] for line in lines if (m := _PREFIX.match(line))]
    beginning = next((b for b in _BEGINNINGS if any(line.startswith(b) for line in lines)), None)
    part, inside = list[str](), beginning is None
    for line in lines:
        begins, ends = beginning is not None and line.startswith(beginning), bool(_END.match(line))
        if (begins or ends) and "".join(part).strip():
            yield "\n".join(part) + "\n"
        if begins or ends:
            part, inside = [], begins
        if inside:
            part.append(line)
    if "".join(part).strip():
        yield "\n".join(part) + "\n"


def _apart(parts: Sequence[str]) -> Iterator[str]:
    """Yield the texts of modules with names of kernels that no other module has: each graph numbers its own anew."""
    taken = set[str]()
    for number, part in enumerate(parts):
        names = set(re.findall(r"^(\w+) = async_compile\.\w+\(", part, re.M))
        for name in names & taken:
            part = re.sub(rf"\b{name}\b", f"{name}_graph{number}", part)
        taken |= names
        yield part


def _module(number: int, text: str, path: Path) -> Module:
    try:
        tree = parsing.module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        line = getattr(e, "lineno", None) or 0
        said = (text.splitlines()[line - 1 : line] or [""])[0].strip()[:80]
        raise UsageFault(f"{path} is no whole code of Inductor's: {said!r} is no Python", HINT) from None
    lines = text.splitlines()
    kernels = {k.name: k for node in tree.body if (k := _kernel(node, lines))}
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _calls(n)]
    return Module(number, text, kernels, tuple(calls), _hints(tree))


def _kernel(node: ast.stmt, lines: Sequence[str]) -> Kernel | None:
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=kind), args=args),
        ) if kind != "wait":
            texts = [a.value for a in args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            text = texts[-1] if texts else ""
            if len(texts) > 1 and texts[0] != name:  # older releases call each function `triton_`
                text = re.sub(rf"\bdef {re.escape(texts[0])}\(", f"def {name}(", text)
            return Kernel(name, kind, text, tuple(_comment(lines, node.lineno)))
    return None


def _comment(lines: Sequence[str], lineno: int) -> list[str]:
    """Return the comment that ends above a line."""
    found = list[str]()
    for line in reversed(lines[: lineno - 1]):
        if not line.startswith("#"):
            break
        found.append(line[1:])
    return found[::-1]


def _calls(function: ast.FunctionDef) -> bool:
    named = function.name == "call" or function.name.startswith("partition_")
    return named and "args" in [a.arg for a in function.args.args] and "Runner" not in function.name


def _entries(node: ast.Dict) -> Iterator[tuple[object, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant):
            yield key.value, value


def _hints(tree: ast.Module) -> dict[str, int]:
    """Return the sizes that symbols had, from the function that makes arguments to measure the module with."""
    made = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.name in ("get_args", "benchmark_compiled_module")
    ]
    values = dict[str, int]()
    for node in (n for f in made for n in ast.walk(f)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(n))):
                values[name] = n
    result = dict[str, int]()
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _calls(n)):
        for node in ast.walk(call):
            match node:
                case ast.Assign(targets=[ast.Name(id=symbol)], value=ast.Name(id=name)) if name in values:
                    result[symbol] = values[name]
    return result
