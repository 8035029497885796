"""One interpreter process at work: the candidate's launcher on each case, in each configuration that was asked for.

The answer holds a list of entries for each case, one for each configuration, with
- `outputs`, `changed` (names of inputs that are no longer what they were), `in_place` (those of them that outputs lie
  in), `stray` (bytes written into guard zones), or
  `error`, its `line`, whether it is the interpreter that lacks something (`unsupported`), and where the interpreter saw
  what is wrong its `verdict` (wrong, deadlock);
- `launched` (kernels that ran with at least one block), `configs` (how many there are to choose from), and
  `not_modelled` (what was computed otherwise than the compiled code may do it; nothing where the interpreter has seen
  what is wrong).
Cases called `late` are not begun after `begin_by` seconds.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.interpreter import (
    arithmetic,
    blame,
    blocks,
    facade,
    lacking,
    libdevice,
    memory,
    products,
    reductions,
    scalars,
    syntax,
    tensors,
)
from pgo_agent.sandbox.tracer import answers
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

AGAIN = 10.0  # seconds that a run may have taken for a second one to say what it relies on
UNDEFINED = "the result depends on what a masked load without `other` gives, which is undefined"


def _never(*_args: Any, **_options: Any) -> Any:
    """Stands for compiling, loading and launching: only a kernel that is not interpreted (Gluon) comes to that."""
    raise lacking.Lacking("a kernel of another language than Triton's")


class Session:
    """Makes this process an interpreter's; there is no way back."""

    def __init__(self, folder: Path, request: dict[str, Any]) -> None:
        self.started = time.monotonic()
        self.folder, self.request = folder, request
        self.candidate = folder / request["candidate"]
        torch.set_num_threads(1)
        device = devices.find(request["device"])
        answers.patch_torch(device, answers.Refusals())
        driver.set_active(answers.Driver(device, _never, _never))
        JITFunction.run = _never  # Gluon's compiler would not know the interpreted functions of Triton's library
        for module in (scalars, arithmetic, products, reductions, syntax, libdevice):
            module.install()
        self.blocks = blocks.Blocks()
        self.memory = memory.Memory(self.blocks, str(self.candidate))
        self.blocks.install(self.memory.know)
        self.memory.install()
        self.choice, self.most = 0, 1
        self._choose()

    def _choose(self) -> None:
        """Replaces the choosing inside `triton.autotune`."""
        session = self

        def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
            session.most = max(session.most, len(configs))
            config = self.best_config = configs[min(session.choice, len(configs) - 1)]
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            try:
                return self.fn.run(*args, **kwargs, **config.all_kwargs())
            finally:
                self.nargs = None

        Autotuner.run = run

    def answer(self) -> dict[str, list[dict[str, Any]]]:
        """The entries of each case."""
        cases = self.request["cases"]
        try:
            with facade.OnCpu(self.memory.know):
                self.kernel = target.load(self.candidate, "pgo_candidate").kernel
        except (Exception, SystemExit) as e:
            nothing = {"launched": [], "configs": 0, "not_modelled": []}
            return {name: [blame.entry(e, self.candidate) | nothing] for name in cases}
        return {name: list(self._entries(name, n)) for n, name in enumerate(cases) if self._in_time(name)}

    def _in_time(self, case: str) -> bool:
        late = case in self.request.get("late", ())
        return not late or time.monotonic() - self.started <= self.request["begin_by"]

    def _entries(self, case: str, number: int) -> Iterator[dict[str, Any]]:
        self.choice, self.most = 0, 1
        while self.choice < min(self.most, self.request["configs"][case]):
            lacking.noted()
            try:
                entry = self._entry(case, f"{number}-{self.choice}")
            except (Exception, SystemExit) as e:
                entry = blame.entry(e, self.candidate)
            noted = lacking.noted()
            entry |= {"launched": self.blocks.names, "configs": self.most}
            yield entry | {"not_modelled": [] if "verdict" in entry else [*noted, *self.blocks.assumed]}
            self.choice += 1

    def _entry(self, case: str, label: str) -> dict[str, Any]:
        began = time.monotonic()
        place, given, outs = self._run(case)
        taken = time.monotonic() - began
        saved = tensors.save({str(i): o.contiguous() for i, o in enumerate(outs)}, self.folder / "out", label)
        changed = tensors.changed(given, self.request["cases"][case], self.folder / "in")
        line = self.memory.undefined
        if line and taken < AGAIN:
            lacking.noted()  # of numbers that nobody may rely on: what is noted of other ones counts
            if not tensors.same(outs, self._run(case, ones=True)[2]):
                return {"error": UNDEFINED, "line": line, "unsupported": False, "verdict": "wrong"}
        kept = {o.untyped_storage().data_ptr() for o in outs}
        in_place = [n for n in changed if _storage(given[n]) in kept]
        return {"outputs": saved, "changed": changed, "in_place": in_place, "stray": place.stray()}

    def _run(self, case: str, ones: bool = False) -> tuple[facade.OnCpu, dict[str, Any], list[Any]]:
        """One call of the launcher. `ones`: what masked-off lanes hold, see `memory.py`."""
        self.memory.forget()
        self.memory.begin(ones)
        self.blocks.begin()
        torch.manual_seed(0)
        place = facade.OnCpu(self.memory.know)
        described = self.request["cases"][case]
        given = tensors.load(described, self.folder / "in", storage=place.storage)
        with place:
            out = self.kernel(**given)
        return place, given, list(out) if isinstance(out, list | tuple) else [out]


def _storage(value: Any) -> int:
    return int(value.untyped_storage().data_ptr()) if isinstance(value, torch.Tensor) else 0
