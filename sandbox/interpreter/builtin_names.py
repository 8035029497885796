"""Functions of Triton's language under other names: `exp = tl.exp`, `from triton.language import gather`.

Triton's interpreter replaces the functions where `triton.language` holds them, and only while a kernel runs. A name
that a kernel's module holds by itself stays the compiler's function. Here such a name looks up the function when it is
called. Relies on the module of a kernel being complete when the kernel is first called.
"""

import inspect
from collections.abc import Callable
from typing import Any

from triton import language as tl
from triton.runtime import interpreter

_HOMES = (tl.core, tl.math, tl)  # the last that holds a function counts: the interpreter replaces it there


def install() -> None:
    """Replace such names in the module of each kernel that runs. Call it before a candidate is imported."""
    patch = interpreter._patch_lang
    known = {id(f): (home, name) for home in _HOMES for name, f in inspect.getmembers(home, tl.core.is_builtin)}
    seen = set[int]()

    def patched(fn: Any) -> Any:
        names = fn.__globals__
        if id(names) not in seen:
            seen.add(id(names))
            names |= {n: _looked_up(*known[id(f)]) for n, f in names.items() if id(f) in known}
        return patch(fn)

    interpreter._patch_lang = patched


def _looked_up(home: Any, name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return getattr(home, name)(*args, **options)

    return call
