"""Reading and rewriting Triton source: what the source moves share. Nothing here knows what is fast."""


class DoesNotApply(Exception):
    """Why a rewrite cannot be shown to leave all values as they are, in words for a kernel engineer."""
