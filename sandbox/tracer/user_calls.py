"""Watches a user's program on fake CUDA tensors: which functions launch Triton kernels, with what, and what is checked.

A function is seen through Python's profile hook when it begins and ends, so its arguments are those that it was called
with. Of the frames that a launch stands in, the outermost function of the watched file that was given a tensor is the
launcher; where no check looks at its tensors, an outer one of its package is, whose tensors are checked. Relies on
`fake_gpu.py` for the stand-in GPU; computes nothing, so values of tensors are not known.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
import triton.testing
from pgo_agent.sandbox.tracer import custom_ops
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MOST_CALLS, MOST_CHECKS, MOST_PARAMETERS = 256, 64, 64
FUNCTION_METHODS = ("forward", "backward")
_STAND_INS: dict[type, Any] = {bool: True, int: 1, float: 0.0}  # for values of tensors, which nobody knows
_NOT_THEIRS = ("site-packages", "dist-packages", "/lib/python3")  # in the paths of files that are not the user's
_KEEPS = ("_to_copy", "clone", "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "detach", "contiguous")
_COPIES = ("_to_copy", "clone", "contiguous", "copy_")
_DRAWS = ("randn", "randn_like", "normal_", "rand", "rand_like", "uniform_", "empty", "empty_like", "empty_strided")


class Call:
    """One call of a function of the watched file, or of its package."""

    def __init__(self, frame: FrameType, args: dict[str, Any]) -> None:
        code = frame.f_code
        self.file, self.name, self.line, self.args = code.co_filename, code.co_qualname, code.co_firstlineno, args
        self.whole = not any(frame.f_locals.get(n) for n in _variadic(code))  # its arguments are all named
        self.launches: list[dict[str, Any]] = []
        self.used = False  # something was launched in it
        self.result: Any = None
        self.context = args.get("ctx")  # of an autograd Function
        self.site: dict[str, Any] | None = None  # the line of the user's program that led to it, and its names

    @property
    def callable(self) -> bool:
        """Whether a target can call it: a function of its module, or a method of an autograd Function."""
        owner, _, method = self.name.rpartition(".")
        plain = not owner and "<" not in self.name and self.whole
        return plain or ("ctx" in self.args and method in FUNCTION_METHODS and "<" not in self.name)

    @property
    def given_tensors(self) -> bool:
        return any(isinstance(x, torch.Tensor) for x in tree_leaves(self.args))


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
        self._storages: dict[int, int] = {}
        self._recipes: dict[int, dict[str, Any]] = {}  # how the values of a storage were drawn
        self._copied: dict[int, int] = {}  # storage -> the one that its values were copied from, in another type maybe
        self._keep: list[Any] = []

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
            self._open[frame] = Call(frame, _arguments(frame))
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
                call = self._open.get(frame) or Call(frame, _arguments(frame))
                inner = inner or (call.name if self.watched(file) else "")
                if call.callable and call.given_tensors:
                    chain.append(call)
                    own = len(chain) - 1 if self.watched(file) else own
            site = frame if site is None and _theirs(file) and not self.around(file) and chain else site
            frame = frame.f_back
        if not (own >= 0 or ((inner or self.watched(_file(kernel))) and chain)):
            who = inner or "no function of the file"
            self.note(f"{who} launches {kernel.__name__}, and no function that is given tensors does")
            return
        for call in chain:
            call.used = True
        launch = {"kernel": kernel.__name__, "file": _file(kernel), "grid": grid, "args": arguments}
        launch["stored"] = stored
        launch["via"] = [f for f in files if not f.startswith("<")]
        self.launches.append((launch, chain, own, None if site is None else self._line(site)))

    def _calls(self) -> list[Call]:
        """Return the calls of launchers with their launches: of each launch one of the functions that it stood in."""
        looked_at = {s for c in self.checks for side in c["sides"] for s in self._sources(side)}
        calls = dict[Call, None]()
        for launch, chain, own, site in self.launches:
            call = self._launcher(chain, own, looked_at)
            if call not in calls and len(calls) >= MOST_CALLS:
                continue
            calls.setdefault(call)
            call.site = call.site or site
            call.launches.append(launch)
        return list(calls)

    def _launcher(self, chain: list[Call], own: int, looked_at: set[int]) -> Call:
        asked = (c for c in chain if self.launcher in (c.name, c.name.rpartition(".")[0]))
        if self.launcher and (found := next(asked, None)):
            return found
        first, backward = chain[max(own, 0)], ".backward"
        all_calls = (c for _, others, _, _ in self.launches for c in others)
        if first.context is not None and any(
            c.context is first.context and c.name.endswith(backward) for c in all_calls
        ):
            return first
        matched = [c for c in chain[max(own, 0) :] if self._tensors((c.args, c.result)) & looked_at]
        named = [c for c in matched if all(self._known(t) for t in tree_leaves(c.args) if isinstance(t, torch.Tensor))]
        if own >= 0 and first in named:
            return first
        return named[-1] if named else next(iter(matched), first)

    def _known(self, tensor: Any) -> bool:
        """Whether the program has a name for a tensor where it checks something, or for what it was copied from."""
        names = {s for c in self.checks for v in c["names"].values() for s in self._sources(v)}
        return not names.isdisjoint((self.storage(tensor), *self._copies(self.storage(tensor))))

    def _tensors(self, tree: Any) -> set[int]:
        return {self.storage(t) for t in tree_leaves(tree) if isinstance(t, torch.Tensor)}

    def _sources(self, value: dict[str, Any]) -> list[int]:
        listed = [s for v in value.get("list", ()) for s in self._sources(v)]
        return [value["storage"], *value["copied"]] if "storage" in value else listed

    def _site(self, frame: FrameType | None) -> dict[str, Any] | None:
        """Return the line of the user's own program from which a launcher was called, with its names."""
        while frame is not None and not _theirs(frame.f_code.co_filename):
            frame = frame.f_back
        return None if frame is None else self._line(frame)

    def _line(self, frame: FrameType) -> dict[str, Any]:
        return {
            "file": frame.f_code.co_filename,
            "function": frame.f_code.co_name,
            "line": frame.f_lineno,
            "names": {n: self.plain(v) for n, v in _named(frame.f_locals)},
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
            self._changed(args)
        self._drawn(name, args, kwargs, out)
        return out

    def _changed(self, args: Any) -> None:
        """Forget what is known of the values of a tensor that an op writes into."""
        if args and isinstance(args[0], torch.Tensor):
            self._copied.pop(self.storage(args[0]), None)
            self._recipes.pop(self.storage(args[0]), None)

    def _all(self, tensor: Any, name: str) -> Any:
        """Return what an op gives whose result is as long as values say: as if it took every element."""
        self.note(f"the program asked which elements hold{_where()}: all of them were given")
        if name == "nonzero":
            return torch.empty((tensor.numel(), tensor.dim()), dtype=torch.int64, device=tensor.device)
        return torch.empty((tensor.numel(),), dtype=tensor.dtype, device=tensor.device)

    def _value(self, tensor: Any, name: str) -> Any:
        if getattr(tensor, "constant", None) is not None:
            return tensor.constant.item()
        yes = tensor.dtype == torch.bool or name != "_local_scalar_dense"
        kind: type = bool if yes else float if tensor.dtype.is_floating_point else int
        self.note(f"the program asked for the value of a tensor{_where()}: {_STAND_INS[kind]} was given")
        return _STAND_INS[kind]

    def _drawn(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """Remember how values were drawn, where they only change type or shape afterwards, and what was copied."""
        if not isinstance(out, torch.Tensor):
            return
        if name == "randint":
            numbers = [a for a in args if type(a) is int]
            low, high = (numbers[0], numbers[1]) if len(numbers) > 1 else (0, numbers[0])
            self._recipes[self.storage(out)] = {"low": low, "high": high}
        elif name in _DRAWS:
            self._recipes[self.storage(out)] = {"draw": name}
        elif name in _KEEPS and (recipe := self._recipes.get(self.storage(args[0]))):
            self._recipes.setdefault(self.storage(out), recipe)
        if name in _COPIES or (
            name == "mul" and type(args[1]) in (int, float) and args[1] == 1
        ):  # x * 1: a copy that is no leaf
            to, source = (args[0], args[1]) if name == "copy_" else (out, args[0])
            if self.storage(to) != self.storage(source) and to.numel() == source.numel():
                self._copied[self.storage(to)] = self.storage(source)

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
                        "sides": [self.plain(actual), self.plain(expected)],
                        "bounds": {n: float(b) for n, b in bounds.items() if isinstance(b, int | float)},
                    }
                )
            return answer

        return checked

    # plain values -----------------------------------------------------------------------------------------------------

    def storage(self, tensor: Any) -> int:
        key = tensor.untyped_storage()._cdata
        if key not in self._storages:
            self._storages[key] = len(self._storages)
            self._keep.append(tensor.untyped_storage())
        return self._storages[key]

    def _copies(self, storage: int) -> list[int]:
        """Return the storages that the values of one were copied from, the nearest first."""
        found = [storage]
        while (before := self._copied.get(found[-1])) is not None and before not in found:
            found.append(before)
        return found[1:]

    def plain(self, value: Any) -> dict[str, Any]:
        """Return a value in a form that JSON holds: a tensor by its shape, and others as what they are."""
        if isinstance(value, torch.Tensor):
            return {
                "storage": self.storage(value),
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "dtype": str(value.dtype)[6:],
                "grad": bool(value.requires_grad),
                "recipe": self._recipes.get(self.storage(value), {}),
                "copied": self._copies(self.storage(value)),
            }
        if value is None or isinstance(value, bool | int | float | str):
            return {"plain": value}
        if isinstance(value, torch.dtype):
            return {"dtype_": str(value)[6:]}
        if isinstance(value, list | tuple) and len(value) <= 64:
            return {"list": [self.plain(v) for v in value], "tuple": isinstance(value, tuple)}
        return {"other": type(value).__name__}

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
                    "args": {n: self.plain(v) for n, v in c.args.items()},
                    "result": self.plain(c.result),
                    "site": c.site,
                    "context": shared(c.context),
                    "launches": [
                        launch | {"args": {n: self.plain(v) for n, v in launch["args"].items()}}
                        for launch in c.launches
                    ],
                }
                for c in calls
            ],
            "checks": self.checks,
            "notes": list(self.notes),
        }


def _named(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield a function's names with their values, and parameters and buffers of its modules by their dotted names."""
    for name, value in list(names.items()):
        yield name, value
        if isinstance(value, torch.nn.Module):
            for inner, tensor in islice((*value.named_parameters(), *value.named_buffers()), MOST_PARAMETERS):
                yield f"{name}.{inner}", tensor


def _arguments(frame: FrameType) -> dict[str, Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {n: frame.f_locals[n] for n in names if n in frame.f_locals}


def _variadic(code: CodeType) -> tuple[str, ...]:
    """Return the names of a function's `*args` and `**kwargs`."""
    at = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[at : at + bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)]


def _file(kernel: Any) -> str:
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return str(code.co_filename) if code else ""


def _theirs(file: str) -> bool:
    """Whether a file is the user's: not of an installed package, and not ours."""
    if file == "<call>":
        return True
    here = str(Path(__file__).parent)
    return not file.startswith(("<", here)) and not any(part in file for part in _NOT_THEIRS)


def _where() -> str:
    """The line of the user's program that runs now: the innermost one outside of installed packages."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if _theirs(frame.f_code.co_filename):
            return f" ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})"
        frame = frame.f_back
    return ""


def _once(fn: Callable[[], Any], *_args: Any, **kwargs: Any) -> Any:
    """What stands in for a benchmark: the function is called once, and all times are 1 ms."""
    fn()
    quantiles = kwargs.get("quantiles")
    return 1.0 if not quantiles else [1.0] * len(quantiles)
