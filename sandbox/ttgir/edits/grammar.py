"""The phrases of an edit: verbs, labels and ranges of them, places, attributes. Each takes what it reads off a text.

Form is free where the meaning stays one: `L31-L33`, `L31 to L33`, `lines L31, L32 and L33` are the same lines.
"""

import re
from dataclasses import dataclass

LABEL = r"(?-i:[A-La-eghj-l][0-9]+)"  # i32 and f16 are types
Spans = tuple[tuple[str, str], ...]  # first and last label of each range; the same one twice for a line alone
_VERBS = {
    **dict.fromkeys(("move", "hoist", "sink"), "move"),
    **dict.fromkeys(("set", "change", "update"), "set"),
    **dict.fromkeys(("delete", "remove", "drop", "erase"), "delete"),
    **dict.fromkeys(("insert", "add"), "insert"),
    **dict.fromkeys(("replace", "substitute"), "replace"),
}
_WHERE = {
    **dict.fromkeys(("before", "above"), "before"),
    **dict.fromkeys(("after", "below", "behind"), "after"),
    **dict.fromkeys(("past", "after the end of", "after end of"), "past"),
    **dict.fromkeys(("at the start of", "at start of", "start of", "at the beginning of"), "start"),
    **dict.fromkeys(("at the end of", "at end of", "end of"), "end"),
}
_BULLET = re.compile(r"(?:(?:edit|step)\s*\#?[0-9]*\s*[:.)-]\s*|\(?[0-9]+\s*[.):]\s*|[-*+•>]\s+)", re.I)
_FILLER = re.compile(
    rf"\b(?:the\s+)?(?:lines?|ops?|labels?|instructions?|statements?|the)\s+(?=(?:from\s+)?{LABEL}\b)", re.I
)
_WRAPPED = re.compile(rf"[\"'\[<(]+({LABEL})[\"'\]>)]+")
_THROUGH = r"\s*(?:\.\.+|…|-+>?|–|—|:|\b(?:to|through|thru|until)\b)\s*"  # noqa: RUF001
_SPAN = re.compile(rf"(?:from\s+)?({LABEL})\b(?:{_THROUGH}({LABEL}|[0-9]+)\b)?", re.I)
_NEXT = re.compile(r"\s*(?:,\s*and\b|,|&|\+|\band\b)\s*", re.I)
_PLACE = re.compile(
    rf"\s*:?\s*(?:to\s+|->\s*)?(?:right\s+|directly\s+|immediately\s+)?"
    rf"({'|'.join(sorted(_WHERE, key=len, reverse=True))})"
    rf"\s+({LABEL})\b(?!\s*(?:\.\.|-|to\b)\s*{LABEL})",
    re.I,
)
_COMMENT = re.compile(r"^#(?!\w+\s*=).*$|(?:^|\s)(?:#(?![A-Za-z_])|//).*$")
_NAME = r"\"?[A-Za-z_][A-Za-z0-9_$.-]*\"?"
_IS = r"\s*(?::?=|\bto\b|\bas\b)\s*"
_ATTRIBUTES = (
    rf"(?P<label>{LABEL})\b(?:'s)?\s*[:.,]?\s*(?:attributes?\s+)?(?:(?P<op>{_NAME})[\s:,]\s*)??"
    rf"(?:attributes?\s+)?(?P<name>{_NAME}){_IS}(?P<value>.+)",
    rf"(?:the\s+)?(?:attributes?\s+)?(?P<name>{_NAME})\s+(?:of|on|in|at|for)\s+(?:(?P<op>{_NAME})\s+(?:of|on|in|at)\s+)?"
    rf"(?P<label>{LABEL})\b{_IS}(?P<value>.+)",
    rf"(?:the\s+)?(?:attributes?\s+)?(?P<name>{_NAME}){_IS}(?P<value>\S.*?)\s+(?:of|on|in|at|for)\s+(?P<op>)"
    rf"(?P<label>{LABEL})",
)


class Misread(ValueError):
    """Why an edit cannot be read."""


@dataclass(frozen=True)
class Anchor:
    """Where something goes: before or after a line, past all inside of it, or inside of it at its start or end."""

    where: str  # before, after, past, start, end
    label: str


def cleaned(line: str) -> str:
    """Return a line without bullet, number, back quotes, bold marks and comment; filler before labels is gone, too."""
    text = re.sub(r"`|\*\*", "", line).strip()
    while bullet := _BULLET.match(text):
        text = text[bullet.end() :]
    text = _WRAPPED.sub(r"\1", _COMMENT.sub("", text))
    return _FILLER.sub("", text).strip()


def verb(line: str) -> tuple[str, str]:
    """Return the edit that a line begins with, and what follows it; nothing for any other line."""
    first, *rest = line.split(None, 1) or [""]
    return _VERBS.get(first.lower().rstrip(":"), ""), "".join(rest)


def labels(text: str) -> list[str]:
    """Return all that looks like a label."""
    return re.findall(rf"\b{LABEL}\b", text)


def spans(text: str, example: str) -> tuple[Spans, str]:
    """Return the lines that an edit is of, and what stands behind them."""
    ranges: list[tuple[str, str]] = []
    rest = text
    while match := _SPAN.match(rest):
        ranges.append(_range(match))
        rest = rest[match.end() :]
        following = _NEXT.match(rest)
        if following is None or not _SPAN.match(rest[following.end() :]):
            return tuple(ranges), rest
        rest = rest[following.end() :]
    raise Misread(
        f"a label such as L31 was expected, as the view shows it, not '{text[:30]}'; write for example: {example}"
    )


def _range(match: re.Match[str]) -> tuple[str, str]:
    first, last = match[1].upper(), (match[2] or match[1]).upper()
    last = last if last[0].isalpha() else first[0] + last
    if first[0] != last[0] or int(last[1:]) < int(first[1:]):
        raise Misread(f"{first} to {last} is no range of lines; to say where lines go write 'before {last}' or 'after'")
    return first, last


def place(text: str, hint: str) -> tuple[Anchor, str]:
    """Return where an edit puts something, and what stands behind that."""
    match = _PLACE.match(text)
    if match is None:
        raise Misread(hint)
    return Anchor(_WHERE[re.sub(r"\s+", " ", match[1].lower())], match[2].upper()), text[match.end() :]


def without_with(text: str) -> str:
    """Return what stands behind `with:`."""
    return re.sub(
        r"^\s*(?:with|by)\b(?:\s+(?:the\s+)?(?:following|this|these)\b)?(?:\s+(?:ops?|block|code)\b)?", "", text
    )


def ended(rest: str) -> None:
    """Raise Misread when more stands here than a remark that names no line."""
    remark = re.fullmatch(r"\s*(?:[.;,:]?|(?:\(|--?|–|—|;|,|so\b|because\b|since\b).*)\s*", rest, re.S)  # noqa: RUF001
    if remark is None or labels(rest):
        raise Misread(f"'{rest.strip()[:40]}' is more than the edit needs; write one edit a line, remarks behind '#'")


def attribute(line: str) -> tuple[str, str, str, str]:
    """Return label, op (empty when none is named), name and value of an attribute."""
    text = re.sub(r"(?<=\w)\s*\{(.*)\}\s*$", r" \1", line) if "{" in line and "=" in line.partition("{")[2] else line
    match = next((m for form in _ATTRIBUTES if (m := re.fullmatch(form, text.strip(), re.I))), None)
    if match is None:
        raise Misread("write one attribute of one line and its value: set L31 pendings = 1")
    value = match["value"].strip().rstrip(";").rstrip()
    value = value[:-1].rstrip() if value.endswith(".") and not value[:-1].isdigit() else value.removesuffix(".")
    if labels(re.sub(r"\"[^\"]*\"", "", value)) or re.search(r",\s*[A-Za-z_.]+\s*=", value):
        raise Misread("it sets more than one attribute; write a line for each: set L31 pendings = 1")
    return match["label"].upper(), (match["op"] or "").strip('"'), match["name"].strip('"'), value
