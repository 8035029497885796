"""A reference where there is none: the kernel as it stood, whose copy stands in the contract as text.

The copy is launched by `sandbox/interpreter/original.py`. No candidate reaches it: it is part of the contract.
"""

from collections.abc import Sequence


def lines(launcher: str, inputs: Sequence[str], body: Sequence[str], tiles: Sequence[str] = ()) -> list[str]:
    """Return the lines of reference(). `body`: those that call the launcher; `tiles`: block sizes that it may halve."""
    taken = [line.replace(f"{launcher}(", "launch(", 1) for line in body]
    halved = f", tiles={list(tiles)!r}" if tiles else ""
    return [
        "from pgo_agent.sandbox.interpreter import original",
        f'launch = original.launcher(ORIGINAL, "{launcher}", [{", ".join(inputs)}]{halved})',
        *taken,
    ]


def escaped(text: str) -> str:
    """Return a text as it stands between three double quotes."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
