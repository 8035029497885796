"""A reference where there is none: the kernel as it stood, whose copy stands in the contract as text.

The copy is launched by `sandbox/interpreter/original.py`. No candidate reaches it: it is part of the contract.
"""

from collections.abc import Sequence

from pgo_agent.agent.commands.init.captured_calls import Captured


def lines(captured: Captured, body: Sequence[str]) -> list[str]:
    """Return the lines of reference(). `body`: those of kernel(), which call the launcher."""
    taken = [line.replace(f"{captured.name}(", "launch(", 1) for line in body]
    tiles = f", tiles={list(captured.tiles)!r}" if captured.tiles else ""
    return [
        "from pgo_agent.sandbox.interpreter import original",
        f'launch = original.launcher(ORIGINAL, "{captured.name}", [{", ".join(captured.inputs)}]{tiles})',
        *taken,
    ]


def escaped(text: str) -> str:
    """Return a text as it stands between three double quotes."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
