"""Types as text: which of an op's signature are taken and which given, and what a tensor or a memdesc holds.

After the dialects' type syntax in Triton 3.6 to 3.9. Sizes in bytes are of the elements, without padding.
"""

import math
import re
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir.token_lists import Words, items, joined, nesting

_FLOAT_BITS = {"bf16": 16, "tf32": 32, "index": 64}
_SIZE = re.compile(r"[0-9]{1,20}")  # what 64 bits hold
_SIGNIFICANDS = {"f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8}


@dataclass(frozen=True)
class Shaped:
    """tensor<128x64xf16, #blocked>, !ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>, !tt.tensordesc<...>."""

    kind: str  # tensor, memdesc, tensordesc
    shape: tuple[int, ...]
    element: str  # f16, i32, !tt.ptr<f16>
    encoding: tuple[str, ...]  # layout, memory space and what else stands behind the element

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * bits(self.element) // 8


def shaped(text: str) -> Shaped | None:
    """Return a type with a shape; None for any other."""
    head, _, inner = text.strip().removesuffix(">").partition("<")
    kind = head.rpartition(".")[2]
    if kind not in ("tensor", "memdesc", "tensordesc") or not inner:
        return None
    first, *encoding = _split(inner)
    if kind == "tensordesc" and first.startswith("tensor<"):  # 3.6 wraps what 3.9 does not
        wrapped = shaped(first)
        return wrapped and Shaped(kind, wrapped.shape, wrapped.element, wrapped.encoding)
    *sizes, element = first.split("x", _leading_sizes(first))
    return Shaped(kind, tuple(map(int, sizes)), element, tuple(encoding))


def bits(element: str) -> int:
    """Return the width of an element type; 64 for pointers; 0 for one that is not known."""
    if element.startswith("!tt.ptr"):
        return 64
    if element in _FLOAT_BITS:
        return _FLOAT_BITS[element]
    digits = element[1:].partition("E")[0] if element[:1] == "f" else element[1:]  # f8E4M3FN
    return int(digits) if element[:1] in ("f", "i") and _SIZE.fullmatch(digits) else 0


def significand(element: str) -> int:
    """Return the bits of a significand with its hidden one (IEEE 754; OCP for 8 bits); an integer's width."""
    return _SIGNIFICANDS.get(element) or (4 if "E4M3" in element else 3 if "E5M2" in element else bits(element))


def _leading_sizes(text: str) -> int:
    count = 0
    for part in text.split("x"):
        if not _SIZE.fullmatch(part):
            break
        count += 1
    return count


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    pieces, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += nesting(c) if c != ">" or text[i - 1 : i] != "-" else 0
        if c == "," and depth == 0:
            pieces.append(text[start:i].strip())
            start = i + 1
    return [*pieces, text[start:].strip()]


def of_op(name: str, signature: Words, takes: bool, results: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types an op takes and those it gives, by the text of its signature: `A, B -> C`, `A to B`, `A`."""
    left, *right = items(signature, ("->", "to"))
    operand_types = _listed(left)
    if right:
        return operand_types, _listed(right[0])
    result_types = (_result_type(name, operand_types),) * results if operand_types and results else ()
    return (operand_types if takes else ()), result_types


def _listed(words: Words) -> tuple[str, ...]:
    if words and words[0].text == "(" and words[-1].text == ")":
        words = words[1:-1]
    return tuple(joined(item) for item in items(words, (",", "*")) if item)


def _result_type(name: str, operand_types: tuple[str, ...]) -> str:
    """Return the result's type where the text leaves it out."""
    if name in ("arith.cmpi", "arith.cmpf"):
        return _with_element(operand_types[0], "i1")
    if name == "tt.load":
        return _pointee(operand_types[0])
    return operand_types[-1] if name == "arith.select" else operand_types[0]


def _with_element(text: str, element: str) -> str:
    shape = shaped(text)
    if shape is None:
        return element
    sizes = "".join(f"{n}x" for n in shape.shape)
    return f"tensor<{', '.join((sizes + element, *shape.encoding))}>"


def _pointee(text: str) -> str:
    shape = shaped(text)
    pointer = shape.element if shape else text
    inner = _split(pointer.removeprefix("!tt.ptr<").removesuffix(">"))[0]
    return _with_element(text, inner)
