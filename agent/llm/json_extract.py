"""Finds the JSON object in the text of a model. Thoughts, chatter and fences may surround it; trailing commas and line
breaks in strings are accepted. Nothing else is repaired or guessed. The caller checks whether the object is what it
asked for.
"""

import json
import re
from typing import Any

from pgo_agent.sandbox.json_codec import JsonObject

LONGEST = 200_000  # characters that are read
DEEPEST = 12  # levels of an object
STARTS = 32  # braces that are tried
THOUGHT = "</think>"  # what a model thought before it answered ends with it
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+")|,(?=\s*+[}\]])', re.S)
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda name: float(name))


class NoObject(ValueError):
    """A text holds no usable JSON object; the message is one short line."""


def find_object(text: str) -> JsonObject:
    """Return the longest object that is not part of another. Raises NoObject."""
    if len(text) > LONGEST:
        raise NoObject(f"it is longer than {LONGEST} characters")
    answer = text.rpartition(THOUGHT)[2]
    objects = _objects(answer) or [
        o for o in _objects(text) if THOUGHT in json.dumps(o[1])
    ]  # inside a string it ends no thought
    if not objects:
        raise NoObject("its JSON does not parse, or is cut off" if "{" in answer else "it holds no JSON object")
    best = max(objects, key=lambda o: o[0])[1]
    if not _shallow(best, DEEPEST):
        raise NoObject(f"its JSON is nested more than {DEEPEST} deep")
    return best


def _objects(text: str) -> list[tuple[int, JsonObject]]:
    """The objects in a text with their lengths."""
    objects, at = [], 0
    for _ in range(STARTS):
        at = text.find("{", at)
        if at < 0:
            break
        parsed = _parsed(text[at:])
        if parsed is None:
            at += 1
        else:
            objects.append(parsed)
            at += parsed[0]
    return objects


def _parsed(text: str) -> tuple[int, JsonObject] | None:
    """The object that a text begins with, and its length; None if there is none."""
    for tried in (text, _COMMA.sub(lambda m: m[1] or " ", text)):  # a comma becomes a space: lengths stay
        try:
            value, end = _DECODER.raw_decode(tried)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return end, value
    return None


def _shallow(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is None or (levels > 0 and all(_shallow(v, levels - 1) for v in inner))
