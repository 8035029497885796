"""Writes the skeleton of a target: the kernel part as the file has it, and the contract with every guess marked.

Relies on Jinja2 for `target.py.j2`. Sizes are made up: the largest tensor of a public case has 2^24 or 2^25 elements,
small cases suit Triton's interpreter, held-out ones divide nothing.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pgo_agent.agent.commands.init.infer import Guesses
from pgo_agent.agent.commands.init.outputs import Output
from pgo_agent.agent.commands.init.scan import Found
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.target import CONTRACT

GUESSED, TO_WRITE = "# guessed", "# to write"  # how a skeleton marks what a person must look at
MARKS = (TO_WRITE, GUESSED)
SIZES: Mapping[str, Sequence[Sequence[int]]] = {  # of the largest tensor, by its rank from 1; others take the last one
    "CASES": ((1 << 24,), (8192, 4096), (8, 1024, 4096), (4, 16, 2048, 128)),
    "SMALL even": ((2048,), (16, 128), (2, 8, 128), (1, 2, 64, 32)),
    "SMALL ragged": ((1000,), (7, 100), (2, 5, 100), (2, 3, 50, 20)),
    "HELD_OUT": ((99_991,), (1111, 2047), (3, 77, 1999), (2, 5, 333, 96)),
}
MOST_RANK = 4


def write(found: Found, guesses: Guesses) -> str:
    """The text of the target file. Raises UsageFault where the kernel needs names that a target uses itself."""
    import jinja2

    taken = CONTRACT | ({"kernel"} if found.launcher.name != "kernel" else set())
    clashes = sorted(taken & {n for b in found.kept for n in b.names})
    if clashes:
        raise UsageFault(
            f"{found.path} has names of its own for what a target must define: {', '.join(clashes)}",
            "rename them in a copy, and give that",
        )
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("pgo_agent.agent.commands.init").joinpath("target.py.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(**_values(found, guesses))


def _values(found: Found, guesses: Guesses) -> dict[str, Any]:
    names = _names(guesses)
    return {
        "path": found.path.name,
        "launcher": found.launcher.name,
        "arguments": guesses.arguments,
        "outputs": guesses.outputs,
        "copied": [o.name for o in guesses.outputs if not o.own],
        "left_out": guesses.left_out,
        "call": _call(found, guesses),
        "result": _result(guesses.outputs),
        "unpacked": _unpacked(guesses),
        "part": kernel_part(found),
        "wrapped": found.launcher.name != "kernel",
        "torch": any("torch" in b.names for b in found.kept),
        "integers": [a for a in guesses.arguments if a.whole],
        "floats": any(a.dims is not None and not a.whole for a in guesses.arguments),
        "cases": {section: sizes(names, guesses, section) for section in SIZES},
        "space": guesses.space,
        "dots": "tl.dot" in "".join(b.text for b in found.kept),
        "largest": _largest(guesses),
        "moved": _moved(guesses),
        "guessed": GUESSED,
        "to_write": TO_WRITE,
    }


def _names(guesses: Guesses) -> list[str]:
    """Every dimension once, those of the largest tensor first."""
    tensors = sorted((a.dims for a in guesses.arguments if a.dims), key=len, reverse=True)
    return list(dict.fromkeys(d for dims in tensors for d in dims))


def _largest(guesses: Guesses) -> tuple[str, ...]:
    return max((a.dims for a in guesses.arguments if a.dims), key=len, default=())


def sizes(names: Sequence[str], guesses: Guesses, section: str) -> dict[str, int]:
    """A size for every dimension of a section's case: by its place in a tensor, counted from the last one."""
    own = SIZES[section][min(max(len(_largest(guesses)), 1), MOST_RANK) - 1]
    found: dict[str, int] = {}
    for dims in sorted((a.dims for a in guesses.arguments if a.dims), key=len, reverse=True):
        for n, place in zip(reversed(dims), range(1, len(dims) + 1), strict=True):
            found.setdefault(n, own[-min(place, len(own))])
    return {n: found[n] for n in names}


def _call(found: Found, guesses: Guesses) -> str:
    """The call of the launcher; keyword-only parameters by name."""
    by_name = [a.arg for a in found.launcher.args.kwonlyargs]
    skipped = False
    given = []
    for name in (a.arg for a in (*found.launcher.args.posonlyargs, *found.launcher.args.args)):
        skipped = skipped or name in guesses.left_out
        if name not in guesses.left_out:
            given.append(f"{name}={name}" if skipped else name)
    given += [f"{n}={n}" for n in by_name if n not in guesses.left_out]
    return f"{found.launcher.name}({', '.join(given)})"


def _unpacked(guesses: Guesses) -> str:
    """What the launcher's result is bound to; empty where nothing of it is wanted."""
    wanted = {o.place: o.name for o in guesses.outputs if o.place is not None}
    if -1 in wanted:
        return wanted[-1]
    if not wanted:
        return ""
    return ", ".join(wanted.get(i, "_") for i in range(guesses.returned))


def _result(outputs: Sequence[Output]) -> str:
    return ", ".join(o.name for o in outputs if o.reachable)


def _moved(guesses: Guesses) -> list[str]:
    """Elements of every tensor that is read or written, as expressions of a case; but for those that nobody knows."""
    known = {a.name: a for a in guesses.arguments}
    read = [_elements(a.dims) for a in guesses.arguments if a.dims]
    written = [known[o.like].dims if o.like in known else o.dims for o in guesses.outputs]
    names = set(_names(guesses))
    return [*read, *(_elements(d) for d in written if d and set(d) <= names)]


def _elements(dims: Sequence[str]) -> str:
    return " * ".join(f'case["{d}"]' for d in dims)


# the kernel part ------------------------------------------------------------------------------------------------------


def kernel_part(found: Found) -> str:
    """What the launcher needs of its file, with imports that hold elsewhere, too."""
    return "".join(_absolute(found.path, b.text) if b.imports else b.text for b in found.kept).strip("\n")


def _absolute(path: Path, text: str) -> str:
    """Relative imports by the package that the file lies in; as they are where it lies in none."""
    package = _package(path)
    for node in parsing.module(text).body:
        if isinstance(node, ast.ImportFrom) and node.level and len(package) >= node.level:
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            text = re.sub(
                rf"from\s+{re.escape('.' * node.level + (node.module or ''))}\s+import", f"from {base} import", text
            )
    return text


def _package(path: Path) -> list[str]:
    names, folder = list[str](), path.resolve().parent
    while (folder / "__init__.py").exists():
        names, folder = [folder.name, *names], folder.parent
    return names


def beside(found: Found) -> list[str]:
    """Modules that only lie beside the file: the sandbox does not show them."""
    told = []
    for node in (inner for b in found.kept for n in b.nodes for inner in ast.walk(n)):
        if isinstance(node, ast.ImportFrom) and node.level and not _package(found.path):
            told.append("." * node.level + (node.module or ""))
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        told += [n for n in names if _lies(found.path.parent, n.partition(".")[0])]
    return list(dict.fromkeys(told))


def _lies(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
