"""Interpreted functions that packages take for compiled ones: some look at what `triton.jit` gave, on their import.

They ask whether it is a JITFunction, for its parameters and for its key. Relies on Triton's InterpretedFunction, which
does the work, and on a JITFunction that is made when something of its text is asked for. What only a compiled one has
(registers, caches) it lacks.
"""

from typing import Any

from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

_Own: Any = interpreter.InterpretedFunction
_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment")
_OF_TEXT = ("params", "signature", "_src", "raw_src", "starting_line_number", "module")


class Interpreted(_Own, JITFunction):
    """Not initialised as a JITFunction: what one has of its text is another one's."""

    @property
    def cache_key(self) -> str:
        """Its text: Triton's own key refuses functions that call interpreted ones."""
        return str(self.src)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_TEXT:
            raise AttributeError(f"an interpreted kernel has no {name}")
        if "_compiled" not in self.__dict__:
            options = {n: v for n, v in self.kwargs.items() if n in _OPTIONS}
            self.__dict__["_compiled"] = JITFunction(self.fn, **options)
        return getattr(self.__dict__["_compiled"], name)


def install() -> None:
    """Let `triton.jit` make them. Call it before a candidate is imported."""
    interpreter.InterpretedFunction = Interpreted
