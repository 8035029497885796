"""The kernel part of a candidate as a module that needs torch and triton alone.

It keeps what the target says of where its functions came from, with the licence of the package that has them. What
imports anything else is refused: such a module would not be standalone. Relies on text; nothing is run.
"""

import ast
import importlib.metadata
import sys
from collections.abc import Collection
from pathlib import Path

from pgo_agent.agent.commands import origins
from pgo_agent.agent.commands.export.chosen import Chosen
from pgo_agent.agent.kernel_part import Block, blocks, hidden, used_by
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.packages_folder import imported, within

ALLOWED = frozenset({"torch", "triton"}) | sys.stdlib_module_names
LAUNCHER = "kernel"
LONG = 60  # characters: some packages give the text of their licence for its name


def text(chosen: Chosen, beside: Collection[str] = ()) -> str:
    """Return the module, with what is named `beside`. Raises UsageFault for a kernel that needs other modules."""
    return f"{_head(chosen)}\n\n{kernel_text(chosen.candidate.source, beside)}\n"


def kernel_text(source: str, beside: Collection[str] = ()) -> str:
    """Return what kernel() needs of a file. Raises UsageFault for a kernel that needs other modules."""
    kept = _kernel_part(source, {LAUNCHER, *beside})
    body = "".join(b.text for b in kept).strip("\n")
    roots = {root or "a module beside the file" for root in imported(parsing.module(body))}
    if others := sorted(roots - ALLOWED):
        raise UsageFault(
            f"the kernel needs {', '.join(others)}, and a module of its own may need torch and triton alone",
            "write the target from the kernel's own file (`pgo-agent init FILE -- PROGRAM` takes the functions in), "
            "or install that package where you use the text that `pgo-agent show --source` prints",
        )
    return body


def _kernel_part(source: str, roots: Collection[str]) -> list[Block]:
    """Return the blocks that the launcher needs, and those that run when the module is imported, without texts."""
    parts = blocks(source)
    secret = hidden(parts)
    needed = used_by(parts, [i for i, b in enumerate(parts) if b.names.intersection(roots)])
    doing = {i for i, b in enumerate(parts) if i not in secret and not b.names and not _is_text(b)}
    return [b for i, b in enumerate(parts) if i in needed | used_by(parts, doing, secret)]


def _is_text(part: Block) -> bool:
    node = part.nodes[0] if part.nodes else None
    return node is None or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


# where it comes from --------------------------------------------------------------------------------------------------


def _head(chosen: Chosen) -> str:
    lines = [f"# {chosen.name}: {LAUNCHER}() in Triton, written by pgo-agent.", *(f"# {line}" for line in chosen.said)]
    lines += [f"# {line}" for line in licences(chosen)]
    return "\n".join(line.rstrip() for line in lines)


def licences(chosen: Chosen) -> list[str]:
    """Return what is known of the files that functions were taken from: path, and the package with its licence."""
    result = list[str]()
    for origin in origins.recorded(chosen.candidate.source, Path(chosen.run.target)):
        result.append(f"Taken from {_short(origin.path)}, sha256 {origin.digest}. {_licence(origin.path)}")
    return result


def _short(path: Path) -> str:
    """Return a path without what is of this machine alone."""
    return str(Path(*(within(path) or path.parts[-1:])))


def _licence(path: Path) -> str:
    """Return a sentence on the licence of a file."""
    if not within(path):
        return "Its licence is that of the repository that it is from."
    package, stated = _package(path)
    if not package:
        return "No installed package says whose it is."
    return f"{package}, licence: {stated or 'not stated'}. Keep its notice."


def licence(chosen: Chosen) -> str:
    """Return the licence that the packages state from which functions were taken; `other` where none, or several."""
    found = {_package(o.path)[1] for o in origins.recorded(chosen.candidate.source, Path(chosen.run.target))}
    return next(iter(found)) or "other" if len(found) == 1 else "other"


def _package(path: Path) -> tuple[str, str]:
    """Return the package of an installed file with its version, and the licence that it states; empty for another."""
    below = within(path)
    if not below:
        return "", ""
    top = Path(below[0]).stem
    for name in importlib.metadata.packages_distributions().get(top, [])[:1]:
        of = importlib.metadata.metadata(name).json
        listed = of.get("classifier", [])
        classified = [c.rpartition(" :: ")[2] for c in listed if c.startswith("License :: ")]
        named = [n for n in (of.get("license_expression"), of.get("license")) if n and len(str(n)) < LONG]
        stated = next(iter(named), "") or ", ".join(classified) or of.get("license", "")
        return f"{name} {of['version']}", str(stated).strip().partition("\n")[0][:80]
    return "", ""
