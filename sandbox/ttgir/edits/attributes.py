"""The attributes of one op, changed in its text: in its dictionary, behind a word, or a number that stands alone.

Nothing is added that the op might not know: an attribute that is not there must be one with a dialect in its name, or
one of the few below that MLIR leaves out where they have their default.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableOperation
from pgo_agent.sandbox.ttgir.token_lists import nesting
from pgo_agent.sandbox.ttgir.tokens import Token, Unreadable, tokens

# Written as bare numbers in an op's text (TritonNvidiaGPUOps.td of 3.6 to 3.9).
NUMBERS = {
    ("ttng.init_barrier", "count"),
    ("ttng.barrier_expect", "size"),
    ("ttng.arrive_barrier", "count"),
}
# Left out where they have their default; the first are written before the dictionary (TritonOps.td).
_CACHED = ("tt.load", "tt.store", "ttg.async_copy_global_to_local")
WORDS = {(op, name) for op in _CACHED for name in ("cacheModifier", "evictionPolicy")}
OPTIONAL = {
    ("tt.load", "isVolatile"),
    ("ttng.warp_group_dot", "isAsync"),
    ("ttg.async_copy_global_to_local", "isVolatile"),
}


class Unchanged(ValueError):
    """Why an attribute cannot be set, and what can be written instead."""


@dataclass(frozen=True)
class _Piece:
    token: Token
    part: int  # of the op
    begin: int
    depth: int  # of brackets, before it

    @property
    def end(self) -> int:
        return self.begin + len(self.token.text)


def names(operation: MutableOperation) -> list[str]:
    """Return what can be set of an op as it stands."""
    listed = [name.strip('"') for name, _ in _entries(operation)]
    listed += [n for op, n in sorted(NUMBERS) if op == operation.name and _number(operation)]
    return listed + [n for op, n in sorted(OPTIONAL | WORDS) if op == operation.name and n not in listed]


def named(operation: MutableOperation, name: str) -> str:
    """Return the attribute of an op that a name means: `num_stages` is tt.num_stages where that is there. Empty for
    none."""
    existing = names(operation)
    if name in existing:
        return name
    same = [n for n in existing if n.rpartition(".")[2].lower() == name.lower()]
    return same[0] if len(same) == 1 else name if "." in name.strip(".") else ""


def change(operation: MutableOperation, name: str, value: str) -> None:
    """Set an attribute to another value, with the old value's type where it names none. Raises Unchanged."""
    _checked(value)
    entry = next((v for n, v in _entries(operation) if n.strip('"') == name), None)
    if entry is not None:
        if not entry:
            raise Unchanged(f"{name} is there or not and has no value; replace the line to take it away")
        _write(operation, entry, _typed(value, entry))
    elif (operation.name, name) in NUMBERS:
        _write(operation, _number(operation), value)
    else:
        _add(operation, name, value)


def _checked(value: str) -> None:
    """Raise Unchanged for a text that is not one value of MLIR."""
    try:
        listed = [t for t in tokens(value) if t.kind != "space"]
    except Unreadable:
        listed = []
    depth = 0
    for token in listed:
        depth += nesting(token.text)
        if depth < 0 or token.kind == "value" or (depth == 0 and token.text in (",", "=")):
            listed = []
            break
    if not listed or depth or "\n" in value or "//" in value:
        raise Unchanged(f"{value[:40]} is no value of an attribute; write one such as 2, true or array<i32: 1, 0>")


def _pieces(operation: MutableOperation) -> list[_Piece]:
    """Return all words of an op's own text behind its results, without white space."""
    pieces, depth = [], 0
    for number, part in enumerate(operation.parts):
        at = 0
        for token in tokens(part) if isinstance(part, str) else ():
            if token.kind != "space":
                pieces.append(_Piece(token, number, at, depth))
                depth += nesting(token.text)
            at += len(token.text)
    equals = next((i for i, p in enumerate(pieces) if p.token.text == "="), -1) if operation.results else -1
    return pieces[equals + 1 :]


def _entries(operation: MutableOperation) -> Iterator[tuple[str, list[_Piece]]]:
    """Attributes and the words of their values: `name = value` in dictionaries, and outside of brackets."""
    pieces = _pieces(operation)
    for i, piece in enumerate(pieces[:-1]):
        opens = _dictionary(pieces, i)
        if opens:
            yield from _listed(pieces, i)
        following = pieces[i + 1 : i + 3]
        alone = piece.depth == 0 and piece.token.kind == "word" and following[0].token.text == "="
        if alone and len(following) == 2 and following[1].token.kind in ("word", "number"):
            yield piece.token.text, following[1:]


def _dictionary(pieces: list[_Piece], i: int) -> bool:
    """Return whether an attribute dictionary opens here, not a region or what stands in brackets."""
    piece, before = pieces[i], [p.token.text for p in pieces[max(i - 2, 0) : i]]
    if piece.token.text != "{" or pieces[i + 1].part != piece.part:
        return False
    return piece.depth == 0 or (piece.depth == 1 and before[-1:] == ["<"] and before[:1] == [")"])


def _listed(pieces: list[_Piece], opened: int) -> Iterator[tuple[str, list[_Piece]]]:
    inside = pieces[opened].depth + 1
    item = list[_Piece]()
    for piece in pieces[opened + 1 :]:
        closes = piece.token.text == "}" and piece.depth == inside
        if closes or (piece.token.text == "," and piece.depth == inside):
            if item:
                yield item[0].token.text, item[2:] if len(item) > 1 and item[1].token.text == "=" else []
            item = []
        else:
            item.append(piece)
        if closes:
            return


def _number(operation: MutableOperation) -> list[_Piece]:
    """Return the only bare number of an op's operands."""
    pieces = _pieces(operation)
    colon = next((i for i, p in enumerate(pieces) if p.token.text == ":" and p.depth == 0), len(pieces))
    numbers = [p for p in pieces[:colon] if p.token.kind == "number" and p.depth == 0]
    return numbers if len(numbers) == 1 else []


def _write(operation: MutableOperation, words: list[_Piece], value: str) -> None:
    if not words:
        raise Unchanged("its text does not show it as one number; replace the line")
    part = str(operation.parts[words[0].part])
    operation.parts[words[0].part] = part[: words[0].begin] + value + part[words[-1].end :]


def _typed(value: str, old: list[_Piece]) -> str:
    """2 in place of 1 : i32 is 2 : i32; True is true."""
    value = value.lower() if value in ("True", "False") else value
    colon = next((i for i, p in enumerate(old) if p.token.text == ":" and p.depth == old[0].depth), None)
    if colon is None or ":" in value:
        return value
    return f"{value} : {''.join(p.token.text for p in old[colon + 1 :])}"


def _add(operation: MutableOperation, name: str, value: str) -> None:
    """Add an attribute that the op's text leaves out."""
    value = value.lower() if value in ("True", "False") else value
    if (operation.name, name) in WORDS:
        _insert(operation, f"{name} = {value} ", words=True)
        return
    typed = f"{value} : i32" if value.lstrip("-").isdigit() else value
    closing = _closing(operation)
    if closing is None:
        _insert(operation, f"{{{name} = {typed}}} ", words=False)
        return
    part = str(operation.parts[closing.part])
    operation.parts[closing.part] = f"{part[: closing.begin]}, {name} = {typed}{part[closing.begin :]}"


def _closing(operation: MutableOperation) -> _Piece | None:
    """Return the brace that closes the op's dictionary."""
    pieces = _pieces(operation)
    for i in range(len(pieces) - 1):
        if _dictionary(pieces, i) and pieces[i + 1].token.text != "}":
            inside = pieces[i].depth + 1
            return next((p for p in pieces[i:] if p.token.text == "}" and p.depth == inside), None)
    return None


def _insert(operation: MutableOperation, text: str, words: bool) -> None:
    """Write words before the types of an op; before its dictionary where `words`."""
    if operation.rooms:
        part = str(operation.parts[-1]) if isinstance(operation.parts[-1], str) else ""
        brace = part.find("}") + 1
        if len(operation.rooms) != 1 or operation.name != "scf.for" or not brace:
            raise Unchanged("nothing can be added to an op with blocks other than scf.for; replace the line")
        operation.parts[-1] = f"{part[:brace]} {text.strip()}{part[brace:]}"
        return
    pieces = _pieces(operation)
    stops = ("{", ":", "loc") if words else (":", "loc")
    before = next((p for p in pieces if p.depth == 0 and p.token.text in stops), None)
    at, where = (pieces[-1].end, pieces[-1].part) if before is None else (before.begin, before.part)
    part = str(operation.parts[where])
    operation.parts[where] = (
        f"{part[:at]} {text.strip()}{part[at:]}" if before is None else part[:at] + text + part[at:]
    )
