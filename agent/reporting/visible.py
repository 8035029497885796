"""Texts that nobody trusts, made to read as what they are."""

import unicodedata

KEPT = frozenset("\n\t")
# Marks that reorder what is read, or stand in it unseen ("Trojan Source", Boucher and Anderson, 2021).
HIDING = frozenset(["Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp"])


def visible(text: str) -> str:
    """With its control characters, and whatever changes the direction of writing, by their numbers."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in KEPT or unicodedata.category(c) not in HIDING else f"\\u{ord(c):04x}" for c in text)
