"""Types and layouts in a few characters: 128x64 f16, mma, dot0(mma), slice1(blocked).

After the attributes of Triton's dialects as MLIR prints them in 3.6 to 3.9; one that is not known shows its own name.
"""

import re
from collections.abc import Mapping

from pgo_agent.sandbox.ttgir import types

DEEPEST, LONGEST = 20, 4000  # layouts inside of layouts, and characters of one written out; Triton's have a few
_KINDS = {"nvidia_mma": "mma", "nvmma_shared": "nvmma", "swizzled_shared": "swizzled", "dot_op": "dot"}
_NAME = re.compile(r"#(?:ttg|ttng|triton_gpu)\.(\w+)")
_ALIAS = re.compile(r"#[A-Za-z_]\w*\b(?![.<])")
_NUMBERS = re.compile(r"\b(\w+) = \[([\d, ]+)\]")


def of_type(text: str) -> str:
    """Return 128x64 f16 for a tensor or buffer, the type itself for a scalar, *f16 for a pointer."""
    shaped = types.shaped(text)
    if shaped is None:
        return element(text)
    kind = "desc " if shaped.kind == "tensordesc" else ""
    return f"{kind}{'x'.join(map(str, shaped.shape))} {element(shaped.element)}"


def element(text: str) -> str:
    """Return f16 for f16, *f16 for !tt.ptr<f16>."""
    pointer = re.fullmatch(r"!tt\.ptr<([^<>,]+)(?:, \d+)?>", text)
    return f"*{pointer[1]}" if pointer else text


def encoding(text: str, aliases: Mapping[str, str]) -> str:
    """Return the layout of a type, written out; empty without one."""
    shaped = types.shaped(text)
    return opened(shaped.encoding[0], aliases) if shaped and shaped.encoding else ""


def opened(text: str, aliases: Mapping[str, str]) -> str:
    """Return a layout with its aliases, and theirs, replaced by what they stand for, as far as it stays readable."""
    for _ in range(DEEPEST):
        meanings = [aliases[a] for a in _ALIAS.findall(text) if a in aliases]
        if not meanings or len(text) + sum(map(len, meanings)) > LONGEST:
            break
        text = _ALIAS.sub(lambda m: aliases.get(m[0], m[0]), text)
    return text


def short(layout: str, levels: int = DEEPEST) -> str:
    """Return a word for a layout."""
    match = _NAME.search(layout)
    if match is None or levels == 0:
        return layout or "none"
    name = _KINDS.get(match[1], match[1])
    inner = re.search(r"parent = (.*)$", layout)
    dimension = re.search(r"\b(?:opIdx|dim) = (\d+)", layout)
    return f"{name}{dimension[1] if dimension else ''}({short(inner[1], levels - 1)})" if inner else name


def conversion(before: str, after: str) -> str:
    """Return "blocked -> mma", with what differs where both are of one kind."""
    one, other = short(before), short(after)
    if one != other:
        return f"{one} -> {other}"
    a, b = dict(_NUMBERS.findall(before)), dict(_NUMBERS.findall(after))
    changed = [k for k in a if k in b and a[k] != b[k]]
    says = "; ".join(f"{k} {a[k]} -> {b[k]}" for k in changed)
    return f"{one} -> {other}" + (f" ({says})" if says else "")


def instruction(layout: str) -> str:
    """Return wgmma 64x128x16 or mma 16x8x16; empty for a result that no tensor core makes.

    versionMajor 3 is wgmma, of a warpgroup: 64 rows, where the layout names those of one warp (NVIDIA's PTX ISA).
    """
    version, shape = re.search(r"versionMajor = (\d+)", layout), re.search(r"instrShape = \[([\d, ]+)\]", layout)
    if version is None or shape is None:
        return ""
    sizes = [s.strip() for s in shape[1].split(",")]
    if version[1] == "3":
        return "wgmma " + "x".join(["64", *sizes[1:]])
    return "mma " + "x".join(sizes)
