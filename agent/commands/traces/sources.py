"""The text of a traced kernel with what it calls: from the file that the trace names, else from the trace itself.

The file is taken where it holds the function with the same text; else the trace's copy of the whole file; else the
function alone, if it needs no more than Triton. Autotuners and heuristics are taken off: a launch says what they chose.
It reads text and imports nothing.
"""

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent import free_names
from pgo_agent.agent.commands.init import inlined, program
from pgo_agent.agent.commands.init.inlined import Modules
from pgo_agent.agent.commands.traces.events import Compiled
from pgo_agent.agent.kernel_part import Block
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.errors import UsageFault

IMPORTS = {
    "torch": "import torch",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "math": "import math",
    "libdevice": "from triton.language.extra import libdevice",
    "triton_helpers": "from torch._inductor.runtime import triton_helpers",
    "tl_math": "from torch._inductor.runtime.triton_helpers import math as tl_math",
}
INDUCTOR_LIBDEVICE = "from torch._inductor.runtime.triton_helpers import libdevice"
_TUNED = re.compile(r"\bConfig\b")


@dataclass(frozen=True)
class Source:
    """A kernel with what it needs."""

    function: str  # its name
    text: str  # of a file that holds it and what it needs
    path: Path  # of that file; what it is called where it is not here
    here: bool  # whether that file is here, and says the same
    parameters: tuple[str, ...]
    constants: frozenset[str]  # parameters that are compile-time constants
    tuned: frozenset[str]  # those that its autotuner chooses

    def blocks(self, names: set[str]) -> list[Block]:
        """Return what names of the text need."""
        repository = program.repository(self.path) if self.here else self.path.parent
        kernels = frozenset({self.path.resolve()}) if self.here else frozenset[Path]()
        return inlined.needed(self.path, self.text, names, self.modules(repository, kernels))

    def modules(self, repository: Path, kernels: frozenset[Path]) -> Modules:
        return Modules(kernels, frozenset(), repository)


def of(compiled: Compiled) -> Source:
    """Return the source of a compilation. Raises UsageFault with what is missing."""
    if not compiled.code.strip():
        raise UsageFault(
            f"the trace holds no source of {compiled.kernel}", "it was compiled from no Python: name another"
        )
    own = _function(compiled.code, compiled)
    if own is None:
        raise UsageFault(f"the trace's source of {compiled.kernel} has no such function", "name another --kernel")
    text, function = own
    path = Path(compiled.file)
    found = _in_file(path, function, text)
    if found is not None:
        return _source(found, function, path, True)
    whole = _top_level(compiled.code, function.name) if compiled.whole else None
    if whole is not None and not (relative := _relative(compiled.code)):
        return _source(compiled.code, function, path, False)
    alone = _alone(text, function)
    missing = sorted(free_names.used(parsing.module(alone).body) - _given(alone))
    if missing:
        why = f"it imports relatively ({', '.join(relative)})" if whole is not None else "it has the function alone"
        raise UsageFault(
            f"the source of {function.name} is not whole: {compiled.file} is not here with that text, and of the trace "
            f"{why}; missing: {', '.join(missing)}",
            "run it where that file is, or record with TRITON_FULL_PYTHON_SOURCE=1",
        )
    return _source(alone, function, path, False)


def _function(code: str, compiled: Compiled) -> tuple[str, ast.FunctionDef] | None:
    """Return a kernel's function in the trace's code, with its text, dedented."""
    code = code if compiled.whole else textwrap.dedent(code)
    try:
        tree = parsing.module(code)
    except (SyntaxError, ValueError):
        return None
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    named = [f for f in functions if f.name == compiled.kernel]
    at = [f for f in functions if compiled.start in (f.lineno, _first(f))]
    found = next(iter([*at, *named] if compiled.whole else [*named, *functions]), None)
    return (textwrap.dedent(_text(code, found)), found) if found else None


def _first(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _text(code: str, function: ast.FunctionDef) -> str:
    return "\n".join(code.splitlines()[_first(function) - 1 : function.end_lineno]) + "\n"


def _in_file(path: Path, function: ast.FunctionDef, text: str) -> str | None:
    """Return a file's text, if it is here and has the function with that text at its top level."""
    try:
        code = path.read_text(encoding="utf-8") if path.is_file() else ""
        found = _top_level(code, function.name)
    except (OSError, ValueError, SyntaxError):
        return None
    return code if found is not None and _text(code, found).strip() == text.strip() else None


def _top_level(code: str, name: str) -> ast.FunctionDef | None:
    found = [n for n in parsing.module(code).body if isinstance(n, ast.FunctionDef) and n.name == name]
    return found[-1] if found else None


def _relative(code: str) -> list[str]:
    nodes = (n for n in parsing.module(code).body if isinstance(n, ast.ImportFrom) and n.level)
    return ["." * n.level + (n.module or "") for n in nodes]


def _alone(text: str, function: ast.FunctionDef) -> str:
    """Return a function with the imports that it surely means, and `triton.jit` alone of its decorators."""
    bare = _bare(text, function.name)
    used = free_names.used(parsing.module(bare).body)
    imports = [line for n, line in IMPORTS.items() if n in used or n in ("triton", "tl")]
    if "triton_helpers" in used or "tl_math" in used:
        imports = [INDUCTOR_LIBDEVICE if line == IMPORTS["libdevice"] else line for line in imports]
    return "\n".join(imports) + "\n\n\n" + bare


def _given(text: str) -> set[str]:
    defined = {n for b in parsing.module(text).body for n in _names(b)}
    return defined | set(dir(builtins))


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((a.asname or a.name).split(".")[0] for a in node.names)


def _source(text: str, function: ast.FunctionDef, path: Path, here: bool) -> Source:
    a = function.args
    parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs]
    constants = {p.arg for p in parameters if p.annotation and "constexpr" in ast.unparse(p.annotation)}
    tuned = {n for d in function.decorator_list for n in _chosen(d)} & constants
    name = function.name
    return Source(
        name, _bare(text, name), path, here, tuple(p.arg for p in parameters), frozenset(constants), frozenset(tuned)
    )


def _chosen(decorator: ast.expr) -> Iterator[str]:
    """Yield the names that an autotuner's configurations set, as far as they are written out."""
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and _TUNED.search(ast.unparse(node.func)):
            first = node.args[0] if node.args else None
            keys = first.keys if isinstance(first, ast.Dict) else []
            yield from (str(k.value) for k in keys if isinstance(k, ast.Constant))


def _bare(text: str, name: str) -> str:
    """Return a text in which the function's only decorator is `triton.jit`."""
    found = _top_level(text, name)
    if found is None:
        return text
    jit = next(
        (ast.unparse(d) for d in found.decorator_list if re.match(r"(triton\.)?jit\b", ast.unparse(d))), "triton.jit"
    )
    lines = text.splitlines()
    lines[_first(found) - 1 : found.lineno - 1] = [f"@{jit}"]
    return "\n".join(lines) + "\n"
