"""A second ptxas, and the flags that a candidate may give to ptxas (`ptx_options=` of a launch): a closed list.

Triton cuts the text of the flags at single spaces and puts the words on ptxas's command line, where another word could
name a file to read or to write, or change what is computed. So they are compared word by word. Each flag has one
spelling here, with `=`, so that no word is the value of the one before it. Every ptxas of triton 3.6 to 3.9 knows them.
Not here: debugging, -maxrregcount (a configuration has maxnreg), and flags that changed no code in 72 builds of the
shipped kernels. The list says what cannot do harm, not what is right: the judge checks a candidate's results whatever
its flags are.
"""

from importlib.util import find_spec
from pathlib import Path

from pgo_agent.sandbox.errors import BadBundle

FLAGS = {
    # How hard ptxas optimizes: another order of instructions, other registers. At 1, 176 builds of the shipped kernels
    # kept every FFMA, FADD and tensor instruction; 14 did an FMUL or exp2 again, or once less, instead of keeping it.
    # 2 and 3 are the default. Not 0: it computes with other instructions and checks the stack.
    "--opt-level": ("1", "2", "3"),
    # How many registers an optimization may take to save instructions; the default is 5. The same was seen at 0.
    "--register-usage-level": tuple(map(str, range(11))),
    # The cache policy of plain loads: as usual, past L1, first to be evicted. Loads that name one, volatile and ordered
    # ones, and atomics keep theirs; none of these orders less than the usual one. Not lu: it may drop what it read.
    "--def-load-cache": ("ca", "cg", "cs"),
    # The same of plain stores.
    "--def-store-cache": ("cg", "cs"),
}
ALLOWED = frozenset(f"{name}={value}" for name, values in FLAGS.items() for value in values)
_SHOWN = 80  # characters of a refused word that are worth showing


def flags(text: object) -> tuple[str, ...]:
    """Return the words of a launch's `ptx_options`. Raises BadBundle with the first word that is not allowed."""
    if text is None or text == "":
        return ()
    if not isinstance(text, str):
        raise BadBundle(f"ptx_options: a {type(text).__name__}, not text")
    words = tuple(text.split(" "))
    other = next((w for w in words if w not in ALLOWED), None)
    if other is not None:
        raise BadBundle(
            f"ptx_options: {_shortened(other)} is not a flag that a candidate may give to ptxas; {_listed()}"
        )
    names = [w.partition("=")[0] for w in words]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice:
        raise BadBundle(f"ptx_options: {twice} is given twice")
    return words


def second() -> str:
    """Return the path of the ptxas in the package nvidia-cuda-nvcc (our extra `assembler`). Raises BadBundle without
    it."""
    package = find_spec("nvidia")
    places = [Path(p) for p in (package.submodule_search_locations or ()) if package] if package else []
    tools = sorted(t for p in places for t in p.glob("*/bin/ptxas"))
    if not tools:
        raise BadBundle("no second ptxas is installed: pip install 'pgo-agent[assembler]'")
    return str(tools[-1])


def _shortened(word: str) -> str:
    text = ascii(word)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _listed() -> str:
    """Return the allowed flags, in words for a proposer."""
    return "allowed, one space apart: " + ", ".join(f"{n}={'|'.join(values)}" for n, values in FLAGS.items())
