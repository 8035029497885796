"""Whether the programs of a launch pass values to one another, so that their order matters.

Triton's interpreter runs programs one after another: a lock is always free, a flag always or never raised, a count
always that of the programs before. A kernel that needs one of these may be right there and wrong on a GPU. The signs in
TTGIR are an atomic that compares or exchanges, or whose old value is used. Plain loads of what others store are missed.
"""

from collections.abc import Iterable

from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Op


def handing_on(texts: Iterable[str]) -> str:
    """Return why running programs in order proves nothing of these kernels; empty without such a sign."""
    for text in texts:
        if "tt.atomic" not in text:
            continue
        try:
            ops = list(reader.parse(text).walk())
        except Unreadable as e:
            return f"a kernel's TTGIR cannot be read: {e}"
        used = {operand for op in ops for operand in op.operands}
        atomic = next((op for op in ops if _hands_on(op, used)), None)
        if atomic:
            return f"its programs hand on values or locks ({atomic.name}, line {atomic.line} of its TTGIR)"
    return ""


def _hands_on(op: Op, used: set[str]) -> bool:
    if op.name == "tt.atomic_cas":
        return True
    return op.name == "tt.atomic_rmw" and ("exch" in op.words or any(r in used for r in op.results))
