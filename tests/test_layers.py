"""The rooms of the house stand in one order: a module imports from its own room and from those below, lazily too."""

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORDER = (  # lowest first; a name without a folder of its own is a module beside the rooms
    "sandbox/*",
    "sandbox/bundle",
    "sandbox/isolation",
    "sandbox/ttgir",
    "sandbox/gate",
    "sandbox/compiler",
    "sandbox/tracer",
    "sandbox/interpreter",
    "sandbox/execution",
    "sandbox/build",
    "sandbox/judge",
    "sandbox/profile",
    "agent/*",
    "agent/profile",
    "agent/moves",
    "agent/llm",
    "agent/run",
    "agent/evaluation",
    "agent/proposal",
    "agent/search",
    "agent/views",
    "agent/commands",
    "evals/runner",
    "evals/gate",
    "evals/nightly",
    "evals/regressions",
    "evals/ablation",
    "evals/mutants",
    "evals/field",
    "evals/problems",
    "evals/leaderboard",
    "evals/*",
    "agent/cli",
)


@cache
def modules() -> tuple[Path, ...]:
    paths = (path for top in ("sandbox", "agent", "evals") for path in sorted((ROOT / top).rglob("*.py")))
    return tuple(path.relative_to(ROOT) for path in paths if not {"corpus", "targets"} & set(path.parts))


def room(path: Path) -> str:
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else f"{path.parts[0]}/*"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[Path]:
    """The modules of this project that a module names in an import, wherever in it the import stands."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (at for name in node.names if (at := found(f"{node.module}.{name.name}") or found(node.module)))
        elif isinstance(node, ast.Import):
            yield from (at for name in node.names if (at := found(name.name)))


@cache
def found(dotted: str) -> Path | None:
    if not dotted.startswith("pgo_agent."):
        return None
    at = Path(*dotted.split(".")[1:])
    for path in (at.with_suffix(".py"), at / "__init__.py"):
        if (ROOT / path).is_file():
            return path
    return None


def test_every_module_stands_in_a_room_that_has_a_place_in_the_order() -> None:
    assert {room(path) for path in modules()} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_room_imports_only_from_itself_and_from_rooms_below(name: str) -> None:
    below = set(ORDER[: ORDER.index(name) + 1])
    up = [f"{path} imports {at}" for path in modules() if room(path) == name for at in imports(path)
          if room(at) not in below]  # fmt: skip
    assert up == []


def at_once(nodes: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """What is imported when a module is: dotted names, of a module and of what is taken from it."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, f"{node.module}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((name.name, name.name) for name in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from at_once([*node.body, *node.orelse])
        elif isinstance(node, ast.Try | ast.With):
            yield from at_once(node.body)


def test_no_module_of_the_agent_imports_torch_or_triton_before_a_command_needs_it() -> None:
    needs = {path: set(at_once(tree(path).body)) for path in modules()}
    heavy = {path for path, names in needs.items() if {m.partition(".")[0] for m, _ in names} & {"torch", "triton"}}
    more = heavy
    while more:
        more = {p for p, names in needs.items() if {found(n) or found(m) for m, n in names} & more} - heavy
        heavy |= more
    copied = Path("agent/commands/export/patched_launches.py")  # into a user's folder, and imported there
    assert {path for path in heavy if path.parts[0] == "agent"} == {copied}
