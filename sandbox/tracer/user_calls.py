"""Watches a user's program on fake CUDA tensors: which functions launch Triton kernels, with what, and what is checked.

A function is seen through Python's profile hook when it begins and ends, so its arguments are those that it was called
with. Of the frames that a launch stands in, the outermost function of the watched file that was given a tensor is the
launcher; where no check looks at its tensors, an outer one of its package is, whose tensors are checked. Relies on
`fake_gpu.py` for the stand-in GPU; computes nothing, so values of tensors are not known.
"""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import triton.testing
from pgo_agent.sandbox.tracer import call_frames, custom_ops
from pgo_agent.sandbox.tracer.call_frames import Call
from pgo_agent.sandbox.tracer.tensor_values import TensorValues
from torch.utils._python_dispatch import TorchDispatchMode

MOST_CALLS, MOST_CHECKS = 256, 64
_STAND_INS: dict[type, Any] = {bool: True, int: 1, float: 0.0}  # for values of tensors, which nobody knows


class Watch(TorchDispatchMode):
    """Enter it around the program; `calls`, `checks` and `notes` hold what was seen."""

    def __init__(self, watched: Callable[[str], bool], around: Callable[[str], bool], launcher: str = "") -> None:
        """`watched`: whether a file's functions are launchers; `around`: whether it is of the same package, so that
        they may be. `launcher`: the one that is asked for."""
        super().__init__()
        self.watched, self.around, self.launcher = watched, around, launcher
        self.launches: list[tuple[dict[str, Any], list[Call], int, dict[str, Any] | None]] = []
        self.checks: list[dict[str, Any]] = []
        self.notes: dict[str, None] = {}
        self._open: dict[FrameType, Call] = {}
        self._depth = 0
        self.values = TensorValues()

    # functions --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Watch":
        self._depth += 1  # it is entered again for the body of a custom op
        sys.setprofile(self._profile)
        threading.setprofile(self._profile)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if not self._depth:
            sys.setprofile(None)
            threading.setprofile(None)
        super().__exit__(*error)

    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and self._in_scope(frame):
            self._open[frame] = Call(frame, call_frames.arguments(frame))
        elif event == "return" and (call := self._open.pop(frame, None)) and call.used:
            call.result = value

    def _in_scope(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        return self.watched(file) or self.around(file)

    def launched(
        self, kernel: Any, grid: tuple[int, int, int], arguments: dict[str, Any], stored: list[str] | None
    ) -> None:
        """Note a launch with the functions that it stands in and that could be its launcher, the innermost first.

        `stored`: arguments that the kernel writes through, where that is known.
        """
        frame: FrameType | None = sys._getframe()
        chain, own = list[Call](), -1  # `own`: the outermost of the watched file
        site: FrameType | None = None
        files, inner = dict[str, None](), ""
        while frame is not None:
            file = frame.f_code.co_filename
            files.setdefault(file)
            if self._in_scope(frame):
                call = self._open.get(frame) or Call(frame, call_frames.arguments(frame))
                inner = inner or (call.name if self.watched(file) else "")
                if call.callable and call.given_tensors:
                    chain.append(call)
                    own = len(chain) - 1 if self.watched(file) else own
            site = frame if site is None and call_frames.theirs(file) and not self.around(file) and chain else site
            frame = frame.f_back
        if not (own >= 0 or ((inner or self.watched(call_frames.file_of(kernel))) and chain)):
            who = inner or "no function of the file"
            self.note(f"{who} launches {kernel.__name__}, and no function that is given tensors does")
            return
        for call in chain:
            call.used = True
        launch = {"kernel": kernel.__name__, "file": call_frames.file_of(kernel), "grid": grid, "args": arguments}
        launch["stored"] = stored
        launch["via"] = [f for f in files if not f.startswith("<")]
        self.launches.append((launch, chain, own, None if site is None else self._line(site)))

    def _calls(self) -> list[Call]:
        """Return the calls of launchers with their launches: of each launch one of the functions that it stood in."""
        looked_at = {s for c in self.checks for side in c["sides"] for s in self.values.sources(side)}
        known = {s for c in self.checks for v in c["names"].values() for s in self.values.sources(v)}
        calls = dict[Call, None]()
        for launch, chain, own, site in self.launches:
            call = self._launcher(chain, own, looked_at, known)
            if call not in calls and len(calls) >= MOST_CALLS:
                continue
            calls.setdefault(call)
            call.site = call.site or site
            call.launches.append(launch)
        return list(calls)

    def _launcher(self, chain: list[Call], own: int, looked_at: set[int], known: set[int]) -> Call:
        """Return the launcher among functions. `looked_at`: storages that are checked; `known`: that the program has a
        name for where it checks something."""
        asked = (c for c in chain if self.launcher in (c.name, c.name.rpartition(".")[0]))
        if self.launcher and (found := next(asked, None)):
            return found
        first, backward = chain[max(own, 0)], ".backward"
        all_calls = (c for _, others, _, _ in self.launches for c in others)
        if first.context is not None and any(
            c.context is first.context and c.name.endswith(backward) for c in all_calls
        ):
            return first
        matched = [c for c in chain[max(own, 0) :] if self.values.storages((c.args, c.result)) & looked_at]
        named = [c for c in matched if all(known & {s, *self.values.copies(s)} for s in self.values.storages(c.args))]
        if own >= 0 and first in named:
            return first
        return named[-1] if named else next(iter(matched), first)

    def _line(self, frame: FrameType) -> dict[str, Any]:
        return {
            "file": frame.f_code.co_filename,
            "function": frame.f_code.co_name,
            "line": frame.f_lineno,
            "names": {n: self.values.plain(v) for n, v in call_frames.named(frame.f_locals)},
        }

    def note(self, text: str) -> None:
        self.notes.setdefault(text)

    # torch ops --------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func).removeprefix("aten.").partition(".")[0]
        if func.namespace not in ("aten", "prims", "prim") and (body := custom_ops.body(func)):
            with self:
                return body(*args, **kwargs)
        if name in ("_local_scalar_dense", "is_nonzero", "equal"):
            return self._value(args[0], name)
        if name in ("nonzero", "masked_select"):
            return self._all(args[0], name)
        out = func(*args, **kwargs)
        if func._schema.is_mutable and name != "copy_":
            self.values.changed(args)
        self.values.drawn(name, args, out)
        return out

    def _all(self, tensor: Any, name: str) -> Any:
        """Return what an op gives whose result is as long as values say: as if it took every element."""
        self.note(f"the program asked which elements hold{call_frames.where()}: all of them were given")
        if name == "nonzero":
            return torch.empty((tensor.numel(), tensor.dim()), dtype=torch.int64, device=tensor.device)
        return torch.empty((tensor.numel(),), dtype=tensor.dtype, device=tensor.device)

    def _value(self, tensor: Any, name: str) -> Any:
        if getattr(tensor, "constant", None) is not None:
            return tensor.constant.item()
        yes = tensor.dtype == torch.bool or name != "_local_scalar_dense"
        kind: type = bool if yes else float if tensor.dtype.is_floating_point else int
        self.note(f"the program asked for the value of a tensor{call_frames.where()}: {_STAND_INS[kind]} was given")
        return _STAND_INS[kind]

    # checks -----------------------------------------------------------------------------------------------------------

    def install_checks(self) -> None:
        """Replace the usual comparisons with ones that only remember what they compare."""
        torch.testing.assert_close = self._check("assert_close", None)
        torch.allclose = torch.Tensor.allclose = self._check("allclose", True)
        triton.testing.assert_close = self._check("assert_close", None)
        triton.testing.do_bench = triton.testing.do_bench_cudagraph = _once

    def _check(self, name: str, answer: Any) -> Callable[..., Any]:
        def checked(actual: Any, expected: Any, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if len(self.checks) < MOST_CHECKS:
                bounds = dict(zip(("rtol", "atol"), args, strict=False)) | kwargs
                self.checks.append(
                    self._line(frame)
                    | {
                        "check": name,
                        "sides": [self.values.plain(actual), self.values.plain(expected)],
                        "bounds": {n: float(b) for n, b in bounds.items() if isinstance(b, int | float)},
                    }
                )
            return answer

        return checked

    def as_json(self) -> dict[str, Any]:
        calls = self._calls()
        contexts = [c.context for c in calls]

        def shared(context: Any) -> int | None:
            """Return a number that a Function's forward and backward share."""
            return None if context is None else next(i for i, c in enumerate(contexts) if c is context)

        return {
            "calls": [
                {
                    "file": c.file,
                    "function": c.name,
                    "line": c.line,
                    "args": {n: self.values.plain(v) for n, v in c.args.items()},
                    "result": self.values.plain(c.result),
                    "site": c.site,
                    "context": shared(c.context),
                    "launches": [
                        launch | {"args": {n: self.values.plain(v) for n, v in launch["args"].items()}}
                        for launch in c.launches
                    ],
                }
                for c in calls
            ],
            "checks": self.checks,
            "notes": list(self.notes),
        }


def _once(fn: Callable[[], Any], *_args: Any, **kwargs: Any) -> Any:
    """What stands in for a benchmark: the function is called once, and all times are 1 ms."""
    fn()
    quantiles = kwargs.get("quantiles")
    return 1.0 if not quantiles else [1.0] * len(quantiles)
