"""Writes the skeleton of a target: the kernel part as the file has it, and the contract with every guess marked.

Relies on Jinja2 for `target.py.j2`. Sizes are invented: the largest tensor of a public case has 2^24 or 2^25 elements,
small cases suit Triton's interpreter, and block sizes do not divide held-out sizes.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pgo_agent.agent.commands.init.infer import Guesses
from pgo_agent.agent.commands.init.outputs import Output
from pgo_agent.agent.commands.init.scan import ScannedFile
from pgo_agent.agent.kernel_part import Block
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


def write(scanned: ScannedFile, guesses: Guesses) -> str:
    """Return the text of the target file. Raises UsageFault when the kernel needs names that a target defines."""
    import jinja2

    taken = CONTRACT | ({"kernel"} if scanned.launcher.name != "kernel" else set())
    clashes = sorted(taken & {n for b in scanned.needed for n in b.names})
    if clashes:
        raise UsageFault(
            f"{scanned.path} has names of its own for what a target must define: {', '.join(clashes)}",
            "rename them in a copy, and give that",
        )
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("pgo_agent.agent.commands.init").joinpath("target.py.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(**_values(scanned, guesses))


def _values(scanned: ScannedFile, guesses: Guesses) -> dict[str, Any]:
    names = _names(guesses)
    return {
        "path": scanned.path.name,
        "launcher": scanned.launcher.name,
        "arguments": guesses.arguments,
        "outputs": guesses.outputs,
        "in_place": in_place(guesses.changed),
        "left_out": guesses.left_out,
        "call": _call(scanned, guesses),
        "result": _result(guesses.outputs),
        "unpacked": _unpacked(guesses),
        "part": kernel_part(scanned.path, scanned.needed),
        "wrapped": scanned.launcher.name != "kernel",
        "torch": any("torch" in b.names for b in scanned.needed),
        "integers": [a for a in guesses.arguments if a.whole],
        "floats": any(a.dims is not None and not a.whole for a in guesses.arguments),
        "cases": {section: sizes(names, guesses, section) for section in SIZES},
        "space": guesses.space,
        "dots": "tl.dot" in "".join(b.text for b in scanned.needed),
        "largest": _largest(guesses),
        "moved": _moved(guesses),
        "guessed": GUESSED,
        "to_write": TO_WRITE,
    }


def in_place(changed: Sequence[str]) -> str:
    """Return the value of IN_PLACE for arguments that a launch writes into; empty for none."""
    names = ", ".join(f'"{n}"' for n in dict.fromkeys(changed))
    return f"({names}{'' if ', ' in names else ','})" if names else ""


def _names(guesses: Guesses) -> list[str]:
    """Return every dimension once, those of the largest tensor first."""
    tensors = sorted((a.dims for a in guesses.arguments if a.dims), key=len, reverse=True)
    return list(dict.fromkeys(d for dims in tensors for d in dims))


def _largest(guesses: Guesses) -> tuple[str, ...]:
    return max((a.dims for a in guesses.arguments if a.dims), key=len, default=())


def sizes(names: Sequence[str], guesses: Guesses, section: str) -> dict[str, int]:
    """Return a size for every dimension of a section's case, by its position in a tensor, counted from the last."""
    by_position = SIZES[section][min(max(len(_largest(guesses)), 1), MOST_RANK) - 1]
    by_name: dict[str, int] = {}
    for dims in sorted((a.dims for a in guesses.arguments if a.dims), key=len, reverse=True):
        for n, place in zip(reversed(dims), range(1, len(dims) + 1), strict=True):
            by_name.setdefault(n, by_position[-min(place, len(by_position))])
    return {n: by_name[n] for n in names}


def _call(scanned: ScannedFile, guesses: Guesses) -> str:
    """Return the call of the launcher; keyword-only parameters by name."""
    by_name = [a.arg for a in scanned.launcher.args.kwonlyargs]
    skipped = False
    arguments = []
    for name in (a.arg for a in (*scanned.launcher.args.posonlyargs, *scanned.launcher.args.args)):
        skipped = skipped or name in guesses.left_out
        if name not in guesses.left_out:
            arguments.append(f"{name}={name}" if skipped else name)
    arguments += [f"{n}={n}" for n in by_name if n not in guesses.left_out]
    return f"{scanned.launcher.name}({', '.join(arguments)})"


def _unpacked(guesses: Guesses) -> str:
    """Return the names that the launcher's result is bound to; empty when none of it is used."""
    wanted = {o.place: o.name for o in guesses.outputs if o.place is not None}
    if -1 in wanted:
        return wanted[-1]
    if not wanted:
        return ""
    return ", ".join(wanted.get(i, "_") for i in range(guesses.returned))


def _result(outputs: Sequence[Output]) -> str:
    return ", ".join(o.name for o in outputs if o.reachable)


def _moved(guesses: Guesses) -> list[str]:
    """Return the number of elements of every tensor that is read or written, if known, as expressions of a case."""
    by_name = {a.name: a for a in guesses.arguments}
    read = [_elements(a.dims) for a in guesses.arguments if a.dims and a.name not in guesses.changed]
    written = [by_name[o.like].dims if o.like in by_name else o.dims for o in guesses.outputs]
    names = set(_names(guesses))
    return [*read, *(_elements(d) for d in written if d and set(d) <= names)]


def _elements(dims: Sequence[str]) -> str:
    return " * ".join(f'case["{d}"]' for d in dims)


# the kernel part ------------------------------------------------------------------------------------------------------


def kernel_part(path: Path, needed: Sequence[Block]) -> str:
    """Return what the launcher needs of its file, with imports that work elsewhere, too."""
    return "".join(absolute(path, b.text) for b in needed).strip("\n")


def absolute(path: Path, text: str) -> str:
    """Return the text with relative imports made absolute, those inside of functions, too; unchanged when the file is
    in no package."""
    inside = package(path)
    for node in ast.walk(parsing.module(text)):
        if isinstance(node, ast.ImportFrom) and node.level and len(inside) >= node.level:
            base = ".".join([*inside[: len(inside) - node.level + 1], *([node.module] if node.module else [])])
            text = re.sub(
                rf"from\s+{re.escape('.' * node.level + (node.module or ''))}\s+import", f"from {base} import", text
            )
    return text


def package(path: Path) -> list[str]:
    """Return the names of the packages that a file lies in, the outermost first."""
    names, folder = list[str](), path.resolve().parent
    while (folder / "__init__.py").exists():
        names, folder = [folder.name, *names], folder.parent
    return names


def beside(scanned: ScannedFile) -> list[str]:
    """Return modules that are only beside the file: the sandbox does not show them."""
    modules = []
    for node in (inner for b in scanned.needed for n in b.nodes for inner in ast.walk(n)):
        if isinstance(node, ast.ImportFrom) and node.level and not package(scanned.path):
            modules.append("." * node.level + (node.module or ""))
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        modules += [n for n in names if _lies(scanned.path.parent, n.partition(".")[0])]
    return list(dict.fromkeys(modules))


def _lies(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
