"""Constants as a reader writes them, and what can be said of an expression by them."""

import re
import struct

from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.pseudocode import kinds
from pgo_agent.sandbox.ttgir.pseudocode.graph import Node, Value

_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
DIGITS = {16: 5, 32: 7, 64: 15}  # decimal digits that tell floats of a width apart, about


def text(written: str, element: str) -> str:
    """0.0 for 0.000000e+00, -inf for 0xFF800000; integers and what is no number as they are."""
    if written in ("true", "false"):
        return written.capitalize()
    if not element.startswith(("f", "bf")):
        return written
    value = _decoded(written, element)
    if value is None:
        return written
    short = f"{value:.{DIGITS.get(types.bits(element), 7)}g}"
    return short if not short.lstrip("-").isdigit() else f"{short}.0"


def _decoded(written: str, element: str) -> float | None:
    try:
        if not written.lower().startswith("0x"):
            return float(written)
        width = types.bits(element)
        raw = int(written, 16)
        if element == "bf16":
            return float(struct.unpack("<f", (raw << 16).to_bytes(4, "little"))[0])
        return float(struct.unpack(_FORMATS[width], raw.to_bytes(width // 8, "little"))[0])
    except (ValueError, KeyError, OverflowError, struct.error):
        return None


def integer(value: Value | None) -> int | None:
    """Return the integer that a value is; None when it is no constant."""
    node = value.node if value is not None else None
    if node is None or node.name != "arith.constant":
        return None
    try:
        return int(kinds.constant_text(node.op))
    except ValueError:
        return None


def narrow(value: Value | None) -> bool:
    """Return whether a value is small by how it is made, so that truncation keeps it: x & 1, x % n, x - x // n * n."""
    node = value.node if value is not None else None
    if node is None or node.name not in ("arith.andi", "arith.remui", "arith.subi"):
        return False
    by = integer(node.operand(1))
    if node.name == "arith.andi":
        return by == 1
    return 0 < by < 2**31 if node.name == "arith.remui" and by is not None else _bounded(node)


def remainder(node: Node) -> Value | None:
    """Return the n of x - x // n * n, which warp specialization writes for x % n."""
    product = node.operand(1)
    times = product.node if product is not None else None
    if node.name != "arith.subi" or times is None or times.name != "arith.muli" or len(times.operands) != 2:
        return None
    for quotient, n in (times.operands, times.operands[::-1]):
        division = quotient.node
        if division and division.name in ("arith.divui", "arith.divsi") and division.operands == [node.operand(0), n]:
            return n
    return None


def _bounded(node: Node) -> bool:
    n = integer(remainder(node))
    return n is not None and 0 < n < 2**31


def wraps(select: Node) -> int | None:
    """S where a select is (x + 1) % S: 0 if x + 1 >= S else x + 1, x being carried by a loop from -1 or more.

    By induction: what the loop starts with is in [-1, S), and what it goes on with is this very value.
    """
    condition, zero, following = (select.operand(i) for i in range(3))
    compared = condition.node if condition is not None else None
    if compared is None or compared.name != "arith.cmpi" or compared.op.words[:1] not in (("sge",), ("eq",)):
        return None
    size = integer(compared.operand(1))
    if size is None or size < 1 or integer(zero) != 0 or compared.operand(0) is not following or following is None:
        return None
    added = following.node
    if added is None or added.name != "arith.addi" or integer(added.operand(1)) != 1:
        return None
    return size if _carried(added.operands[0], select.results[0], size) else None


def _carried(value: Value, following: Value, size: int) -> bool:
    """Return whether a loop carries a value from a constant in [-1, size) and goes on with `following`."""
    loop = value.body.owner if value.body is not None and value.node is None else None
    if loop is None or loop.name != "scf.for" or value.index == 0:
        return False
    start, end = integer(loop.operand(2 + value.index)), loop.bodies[0].end
    goes_on = end.operand(value.index - 1) if end is not None else None
    return start is not None and -1 <= start < size and goes_on is following


def numbers(written: str) -> list[int]:
    """Return the integers of the last list [..] in a text without types: offsets of a view."""
    head = written.split(" : ")[0]
    groups = re.findall(r"\[([\d, ]+)\]", head) or re.findall(r"array<i32: ([\d, ]+)>", written)
    return [int(n[:20]) for n in re.findall(r"\d+", groups[-1])] if groups else []
