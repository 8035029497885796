"""Watches a user's program on fake CUDA tensors: which functions launch Triton kernels, with what, and what is checked.

A function is seen through Python's profile hook when it begins and ends, so its arguments are those that it was called
with. Of the frames that a launch stands in, the outermost function of the watched file that was given a tensor is the
launcher; where no check looks at its tensors, an outer one of its package is, whose tensors are checked. Relies on
`fake_gpu.py` for the stand-in GPU; computes nothing, so values of tensors are not known.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

import torch
from pgo_agent.sandbox.tracer import call_frames, custom_ops, launch_frames
from pgo_agent.sandbox.tracer.call_frames import Call
from pgo_agent.sandbox.tracer.checks import Checks
from pgo_agent.sandbox.tracer.fake_addresses import Addresses
from pgo_agent.sandbox.tracer.tensor_values import TensorValues
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

T = TypeVar("T")
MOST_CALLS = 256
MOST_LITERALS = 4096  # numbers that a program writes down as one tensor
_STAND_INS: dict[type, Any] = {bool: True, int: 1, float: 0.0}  # for values of tensors, which nobody knows


@dataclass(frozen=True)
class _Launch:
    """A launch, and what it stood in."""

    what: dict[str, Any]
    chain: list[Call]  # functions that may be its launcher, the innermost first
    own: int  # the outermost of the watched file in it
    site: dict[str, Any] | None  # the line of the program that led to it
    place: dict[str, Any] | None  # where only the program's own code launches: the line that does
    frame: FrameType | None
    checked: int  # comparisons before it


class Watch(TorchDispatchMode):
    """Enter it around the program; `checks` and `notes` hold what was seen."""

    def __init__(
        self,
        watched: Callable[[str], bool],
        around: Callable[[str], bool],
        addresses: Addresses,
        launcher: str = "",
    ) -> None:
        """`watched`: whether a file's functions are launchers; `around`: whether it is of the same package, so that
        they may be. `launcher`: the one that is asked for."""
        super().__init__()
        self.watched, self.around, self.launcher = watched, around, launcher
        self.launches: list[_Launch] = []
        self.notes: dict[str, None] = {}
        self._open: dict[FrameType, Call] = {}
        self._theirs: dict[str, bool] = {}  # files, as often as anything of theirs is called: imports call much
        self._depth = 0
        self.values = TensorValues(addresses)
        self._literals = WeakIdKeyDictionary()  # tensors that were made of numbers -> those
        self.checks = Checks(self.values, self._line)

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

    @staticmethod
    def aside(function: Callable[..., T], *args: Any) -> T:
        """Call a function of ours that calls nothing of the program's: watched, it takes several times as long."""
        watching = sys.getprofile()
        sys.setprofile(None)
        try:
            return function(*args)
        finally:
            sys.setprofile(watching)

    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            if (theirs := self._theirs.get(file)) is None:
                theirs = self._theirs[file] = self.watched(file) or self.around(file) or call_frames.theirs(file)
            if theirs:
                self._open[frame] = Call(frame, call_frames.arguments(frame))
        elif event == "return" and frame in self._open and (call := self._open.pop(frame)).used:
            call.result = value

    def launched(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        arguments: dict[str, Any],
        constants: list[str],
        facts: dict[str, Any],
    ) -> None:
        """Note a launch with what it stands in. `constants`: arguments that the kernel is compiled for.

        `facts`: what its code says: arguments that it writes through (`stored`) and reads through (`loaded`), whether
        it adds floats in any order.
        """
        at = launch_frames.standing(sys._getframe(), self.watched, self.around, self._open)
        of_watched = self.watched(call_frames.file_of(kernel))
        if not (at.named(of_watched) or of_watched or at.inner):
            self.note(f"no function of the file launches {kernel.__name__}, and no function that is given tensors does")
            return
        launch = {"kernel": kernel.__name__, "file": call_frames.file_of(kernel), "grid": grid, "args": arguments}
        launch |= {"constants": constants, "via": [f for f in at.files if not f.startswith("<")]} | facts
        launch["line"] = at.place.f_lineno if at.place else 0
        named = at.named(of_watched)
        for call in at.chain if named else at.program:
            call.used = True
        place = None if named or at.place is None else self._line(at.place)
        site = None if at.site is None else self._line(at.site)
        chain = at.chain if named else at.program
        self.launches.append(
            _Launch(launch, chain, at.own if named else 0, site, place, at.place, len(self.checks.seen))
        )

    def _calls(self) -> list[Call]:
        """Return the calls of launchers with their launches: of each launch one of the functions that it stood in."""
        looked_at = {s for c in self.checks.seen for side in c["sides"] for s in self.values.sources(side)}
        known = {s for c in self.checks.seen for v in c["names"].values() for s in self.values.sources(v)}
        calls = dict[Call, None]()
        for launch in self.launches:
            chain = self._possible(launch)
            if not chain:
                continue
            call = self._launcher(chain, launch.own, looked_at, known)
            if call not in calls and len(calls) >= MOST_CALLS:
                continue
            calls.setdefault(call)
            call.site = call.site or launch.site
            call.launches.append(launch.what)
        return list(calls)

    def _possible(self, launch: "_Launch") -> list[Call]:
        """Return the functions that may be a launch's launcher: none of the program's that itself checks results."""
        return [c for c in launch.chain if launch.place is None or c.code not in self.checks.codes]

    def _bare(self) -> list[dict[str, Any]]:
        """Return launches that no function makes: those of one frame together, until it checks or launches again."""
        result = list[dict[str, Any]]()
        last = None
        for launch in (o for o in self.launches if o.place is not None and not self._possible(o)):
            lines = {o["line"] for o in result[-1]["launches"]} if result else set[int]()
            same = last and (launch.frame, launch.checked) == (last.frame, last.checked)
            if not same or launch.what["line"] in lines:
                if len(result) >= MOST_CALLS:
                    break
                result.append({"site": launch.place, "launches": list[dict[str, Any]]()})
            result[-1]["launches"].append(launch.what)
            result[-1]["after"] = (launch.place or {})["names"]
            last = launch
        return result

    def _launcher(self, chain: list[Call], own: int, looked_at: set[int], known: set[int]) -> Call:
        """Return the launcher among functions. `looked_at`: storages that are checked; `known`: that the program has a
        name for where it checks something."""
        asked = (c for c in chain if self.launcher in (c.name, c.name.rpartition(".")[0]))
        if self.launcher and (found := next(asked, None)):
            return found
        first, backward = chain[max(own, 0)], ".backward"
        all_calls = (c for launch in self.launches for c in launch.chain)
        if first.context is not None and any(
            c.context is first.context and c.name.endswith(backward) for c in all_calls
        ):
            return first
        outer = [c for c in chain[max(own, 0) :] if not c.asked]
        first = next((c for c in reversed(chain[: max(own, 0) + 1]) if not c.asked), first)
        matched = [c for c in outer if self.values.storages((c.args, c.result)) & looked_at]
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
        if name == "equal":
            self.checks.op(name, args, None)
        if name in ("_local_scalar_dense", "is_nonzero", "equal"):
            return self._value(args[0], name)
        if name in ("nonzero", "masked_select") or str(func) == "aten.repeat_interleave.Tensor":
            return self._all(args[0], name)
        if str(func) == "aten.index.Tensor":
            args = (args[0], [part for i in args[1] for part in self._indices(i)], *args[2:])
        out = func(*args, **kwargs)
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
            self.values.changed(args[0], name)
            for call in self._open.values():
                call.written.add(self.values.storage(args[0]))
        self.values.drawn(name, args, out)
        self.values.hold((args, kwargs), out)
        self.checks.op(name, args, out)
        if name == "lift_fresh" and type(args[0]) is torch.Tensor and args[0].numel() <= MOST_LITERALS:
            with no_dispatch():
                self._literals[out] = args[0].flatten().tolist()
            self.values.table(self._literals[out], out)
        return out

    def _all(self, tensor: Any, name: str) -> Any:
        """Return what an op gives whose result is as long as values say: as if it took every element, and once."""
        self._asked()
        if name == "repeat_interleave" and tensor in self._literals:
            return torch.empty((sum(self._literals[tensor]),), dtype=torch.int64, device=tensor.device)
        self.note(f"the program asked which elements hold{call_frames.where()}: all of them were given")
        if name != "masked_select":
            shape = (tensor.numel(), tensor.dim()) if name == "nonzero" else (tensor.numel(),)
            return torch.empty(shape, dtype=torch.int64, device=tensor.device)
        return torch.empty((tensor.numel(),), dtype=tensor.dtype, device=tensor.device)

    def _indices(self, index: Any) -> list[Any]:
        """Return what stands for an index: of a mask the places of its elements, as if all of them held."""
        if not isinstance(index, torch.Tensor) or index.dtype not in (torch.bool, torch.uint8):
            return [index]
        return list(self._all(index, "nonzero").unbind(1))

    def _value(self, tensor: Any, name: str) -> Any:
        if getattr(tensor, "constant", None) is not None:
            return tensor.constant.item()
        self._asked()
        yes = tensor.dtype == torch.bool or name != "_local_scalar_dense"
        kind: type = bool if yes else float if tensor.dtype.is_floating_point else int
        where = f"the program asked for the value of a tensor{call_frames.where()}"
        if kind is int and (number := self.values.within(tensor)) is not None:
            self.note(f"{where}: numbers of the range that it was drawn from were given")
            return number
        self.note(f"{where}: {_STAND_INS[kind]} was given")
        return _STAND_INS[kind]

    def _asked(self) -> None:
        """Note that the calls that run now need the value of a tensor on the host, which no plan can hold."""
        for call in self._open.values():
            call.asked = True

    def _launch(self, launch: dict[str, Any]) -> dict[str, Any]:
        return launch | {"args": {n: self.values.launched(v) for n, v in launch["args"].items()}}

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
                    "args": {n: self.values.given(v) for n, v in c.args.items()},
                    "result": self.values.plain(c.result),
                    "site": c.site,
                    "context": shared(c.context),
                    "written": sorted(c.written),
                    "launches": [self._launch(launch) for launch in c.launches],
                }
                for c in calls
            ],
            "bare": [b | {"launches": [self._launch(launch) for launch in b["launches"]]} for b in self._bare()],
            "checks": self.checks.seen,
            "notes": list(self.notes),
        }
