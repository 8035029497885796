"""What the words of one op say: results, operands, attributes, types, location. See `tree.Op` for the fields.

Works on tokens without white space and without the braces of regions. An op that it does not know gets what its text
shows: nothing here fails on a strange op, only on brackets that do not match.
"""

from collections.abc import Sequence

from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.token_lists import Words, closing, items, joined, locations, nesting, outside
from pgo_agent.sandbox.ttgir.tokens import Token, Unreadable
from pgo_agent.sandbox.ttgir.tree import Argument, Op, Region

_DEFINING = ("tt.func", "scf.for", "scf.while")  # the head says what the region's block begins with
_SYNTAX = frozenset({"attributes", "default", "to", "step", "iter_args", "num_warps"})


def understand(first: Token, parts: tuple[str | Region, ...], pieces: Sequence[Words]) -> Op:
    """Return the op whose words stand in `pieces`: before its first region, between regions, behind the last."""
    results, rest = _results(pieces[0], sum(map(len, pieces)))
    if not rest or rest[0].kind not in ("word", "string"):
        raise Unreadable(first.line, f"an op was expected, not {first.text!r:.40}")
    name = rest[0].text.strip('"')
    if "." not in name and name != "module":
        raise Unreadable(first.line, f"an op was expected, not {name!r:.40}")
    words = [*rest[1:], *(pieces[-1] if len(pieces) > 1 else [])]
    defined = arguments(rest[1:]) if name in _DEFINING else ()
    body, location = _without_locations(words)
    body, attributes = _without_dictionaries(body, generic=rest[0].kind == "string")
    head, signature = _at_signature(name, body)
    argument_names = {a.name for a in defined}
    operands = tuple(t.text for t in head if t.kind == "value" and t.text not in argument_names)
    operand_types, result_types = types.of_op(name, signature, bool(operands), len(results))
    return Op(
        parts,
        name,
        first.line,
        results,
        operands,
        defined,
        _outside(head),
        attributes,
        operand_types,
        result_types,
        location,
    )


def _outside(head: Words) -> tuple[str, ...]:
    """Words and literals outside of brackets, without those that only hold the syntax together."""
    outer, depth = [], 0
    for t in head:
        if depth == 0 and t.kind in ("word", "number", "string", "symbol") and t.text not in _SYNTAX:
            outer.append(t.text)
        depth += nesting(t.text)
    return tuple(outer)


def opening(words: Words, first: bool) -> tuple[str, tuple[Argument, ...]]:
    """Return the name of a region and what its entry block begins with, by the words that stand before its brace."""
    names = [t.text for t in words if t.kind == "word"]
    if first:
        return ("default" if names[-1:] == ["default"] else ""), arguments(_results(words, 0)[1])
    return (names[0] if names else ""), arguments(words)


def arguments(words: Words) -> tuple[Argument, ...]:
    """Return values that stand before ':' inside parentheses (with their type), or before '=' (of loops)."""
    defined, depth = [], 0
    for i, token in enumerate(words):
        depth += nesting(token.text)
        following = words[i + 1].text if i + 1 < len(words) else ""
        if token.kind == "value" and following == "=":
            defined.append(Argument(token.text, ""))
        elif token.kind == "value" and following == ":" and depth:
            defined.append(Argument(token.text, joined(_type_at(words, i + 2))))
    return tuple(defined)


def _results(words: Words, most: int) -> tuple[tuple[str, ...], Words]:
    """%a, %b:2 = ... -> (%a, %b#0, %b#1), and what stands behind the equals sign.

    `most`: words of the whole op. It has a type for each result, so a larger number of them is wrong.
    """
    equals = next((i for i, t in enumerate(words) if t.text == "="), None)
    if not words or words[0].kind != "value" or equals is None:
        return (), words
    names: list[str] = []
    for i, token in enumerate(words[:equals]):
        several = [t.text for t in words[max(0, i - 2) : i]]
        if token.kind == "value":
            names.append(token.text)
        elif token.text.isdecimal() and several[1:] == [":"] and names[-1:] == several[:1]:
            names[-1:] = (f"{names[-1]}#{n}" for n in range(min(int(token.text[:9]), most)))
    return tuple(names), words[equals + 1 :]


def _type_at(words: Words, start: int) -> Words:
    """Return the type that begins at `start`: up to the comma or bracket that ends it, an attribute, a location or a
    value."""
    depth = 0
    for i in range(start, len(words)):
        text = words[i].text
        if words[i].kind == "value" or (depth == 0 and text in (",", ")", "{", "loc")):
            return words[start:i]
        depth += nesting(text)
    return words[start:]


def _without_locations(words: Words) -> tuple[list[Token], str]:
    """Take out every loc(...); the last one is the op's own."""
    spans = locations(words)
    return outside(words, spans), joined(words[spans[-1][0] + 2 : spans[-1][1]]) if spans else ""


def _without_dictionaries(words: Words, generic: bool) -> tuple[list[Token], dict[str, str]]:
    """Take out attribute dictionaries {a = 1 : i32, b}, and in MLIR's generic form the properties <{...}>."""
    rest: list[Token] = []
    attributes: dict[str, str] = {}
    depth, i = 0, 0
    while i < len(words):
        text = words[i].text
        property_ = generic and depth == 1 and [t.text for t in rest[-2:]] == [")", "<"]
        if text == "{" and (depth == 0 or property_):
            end = closing(words, i)
            attributes |= dict(_entry(item) for item in items(words[i + 1 : end]) if item)
            i = end + 1
        else:
            depth += nesting(text)
            rest.append(words[i])
            i += 1
    return rest, attributes


def _entry(item: Words) -> tuple[str, str]:
    return item[0].text.strip('"'), joined(item[2:]) if len(item) > 2 and item[1].text == "=" else ""


def _at_signature(name: str, words: Words) -> tuple[Words, Words]:
    """Return what stands before the types, and the types: behind the last colon outside of brackets, or behind the
    arrow."""
    colon = arrow = None
    depth = 0
    for i, token in enumerate(words):
        if depth == 0 and token.text == ":":
            colon = i
        if depth == 0 and token.text == "->" and arrow is None:
            arrow = i
        depth += nesting(token.text)
    if name in ("scf.for", "scf.if", "tt.func"):  # scf.for ... -> (results) : type of its counter
        start = colon if arrow is None else arrow
        end = colon if arrow is not None and colon is not None and colon > arrow else len(words)
        return (words, ()) if start is None or arrow is None else (words[:start], words[start:end])
    return (words, ()) if colon is None else (words[:colon], words[colon + 1 :])
