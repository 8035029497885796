"""What a user's program compares: by the usual functions, which only remember what they were given, and by differences.

`(a - b).abs()`, `(a == b).all()` and `torch.equal(a, b)` are comparisons, too. Relies on `tensor_values.py` for what a
tensor is told by. It decides nothing: every comparison holds.
"""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
import triton.testing
from pgo_agent.sandbox.tracer import call_frames
from pgo_agent.sandbox.tracer.tensor_values import TensorValues

MOST = 64
_BEGIN = {"sub": "-", "eq": "=="}  # op of a difference -> what the program's text says
_END = {"-": ("abs", "linalg_vector_norm", "norm", "pow", "square"), "==": ("all",)}  # what makes it a comparison


class Checks:
    """Comparisons, in order."""

    def __init__(self, values: TensorValues, line: Callable[[FrameType], dict[str, Any]]) -> None:
        """`line`: gives a frame's line, with the names of its function."""
        self.values, self.line = values, line
        self.seen: list[dict[str, Any]] = []
        self.codes = set[CodeType]()  # of functions that compare
        self._differences: dict[int, tuple[str, tuple[Any, Any]]] = {}  # storage -> how it was made, of which

    def install(self) -> None:
        """Replace the usual comparisons."""
        torch.testing.assert_close = self._check("assert_close", None)
        torch.allclose = torch.Tensor.allclose = self._check("allclose", True)
        triton.testing.assert_close = self._check("assert_close", None)
        triton.testing.do_bench = triton.testing.do_bench_cudagraph = _once

    def op(self, name: str, args: Any, out: Any) -> None:
        """Note an op of torch that may be part of a comparison."""
        if name == "equal":
            self._note(call_frames.innermost(), "equal", args[0], args[1], {})
        elif name in _BEGIN and len(args) > 1 and all(isinstance(a, torch.Tensor) for a in args[:2]):
            if args[0].shape == args[1].shape:
                self._differences[self.values.storage(out)] = _BEGIN[name], (args[0], args[1])
        elif args and isinstance(args[0], torch.Tensor) and self._differences:
            kind, sides = self._differences.get(self.values.storage(args[0]), ("", (None, None)))
            if name in _END.get(kind, ()):
                del self._differences[self.values.storage(args[0])]
                self._note(call_frames.innermost(), kind, *sides, {})

    def _check(self, name: str, answer: Any) -> Callable[..., Any]:
        def checked(actual: Any, expected: Any, *args: Any, **kwargs: Any) -> Any:
            bounds = dict(zip(("rtol", "atol"), args, strict=False)) | kwargs
            self._note(sys._getframe(1), name, actual, expected, bounds)
            return answer

        return checked

    def _note(self, frame: FrameType | None, name: str, actual: Any, expected: Any, bounds: dict[str, Any]) -> None:
        if frame is None:
            return
        self.codes.add(frame.f_code)
        if len(self.seen) < MOST:
            sides = [self.values.plain(actual), self.values.plain(expected)]
            numbers = {n: float(b) for n, b in bounds.items() if isinstance(b, int | float)}
            self.seen.append(self.line(frame) | {"check": name, "sides": sides, "bounds": numbers})


def _once(fn: Callable[[], Any], *_args: Any, **kwargs: Any) -> Any:
    """What stands in for a benchmark: the function is called once, and all times are 1 ms."""
    fn()
    quantiles = kwargs.get("quantiles")
    return 1.0 if not quantiles else [1.0] * len(quantiles)
