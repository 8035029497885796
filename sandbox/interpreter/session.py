"""One interpreter process: runs the candidate's launcher on each case, in the configurations of `schedule.py`.

The answer is rewritten after each run, so that an endless run loses no other. It holds a list of entries for each case,
one for each run, with
- `outputs`, `changed` (names of changed inputs, allowed or not), `in_place` (those of them that hold outputs), `stray`
  (bytes written into guard zones); or
  `error`, its `line`, whether the interpreter lacks something (`unsupported`), and the `verdict` (wrong, deadlock) if
  the interpreter found a fault;
- `endless`, for a run ended at its deadline: whether it would not have ended (`deadline.py`);
- `launched` (kernels that ran at least one block), `config` (name of its configuration), `configs` (their number),
  `listed` (their names, in the first entry of a case), and `not_modelled` (what compiled code may compute otherwise;
  empty for an entry with a verdict).
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.guard_zones import NAN, ZERO, Fill
from pgo_agent.sandbox.interpreter import (
    arithmetic,
    blocks,
    builtin_names,
    cuda_as_cpu,
    deadline,
    dependent_launch,
    fault_origin,
    functions,
    libdevice,
    memory,
    products,
    reductions,
    repeated,
    scalars,
    syntax,
    tensors,
    unsupported,
)
from pgo_agent.sandbox.interpreter.schedule import Schedule
from pgo_agent.sandbox.tracer import autotune, fake_cuda_api
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

AGAIN = 10.0  # longest run in seconds that is repeated to test for undefined values
LEFT = "its results change with what an earlier launch of its own left in its buffers"
UNWRITTEN = "its results change with what was in memory that it allocates and does not write"
FILLED = 2  # runs that are repeated with other content in such memory
UNDEFINED = "the result depends on what a masked load without `other` gives, which is undefined"


def _never(*_args: Any, **_options: Any) -> Any:
    """Stand in for compiling, loading and launching, which only kernels that are not interpreted (Gluon) reach."""
    raise unsupported.Lacking("a Gluon kernel")


class Session:
    """Turns this process into an interpreter, for good."""

    def __init__(self, folder: Path, request: dict[str, Any]) -> None:
        self.folder, self.request = folder, request
        self.candidate = folder / request["candidate"]
        torch.set_num_threads(1)
        _unseen()
        device = devices.find(request["device"])
        fake_cuda_api.patch_torch(device, fake_cuda_api.Refusals())
        driver.set_active(fake_cuda_api.Driver(device, _never, _never))
        JITFunction.run = _never  # Gluon's compiler would not know the interpreted functions of Triton's library
        for module in (
            repeated,
            scalars,
            builtin_names,
            arithmetic,
            products,
            reductions,
            syntax,
            libdevice,
            dependent_launch,
            functions,
        ):
            module.install()
        products.on(device.arch)
        self.blocks = blocks.Blocks()
        self.memory = memory.Memory(self.blocks, str(self.candidate))
        self.blocks.install(self.memory.know)
        self.memory.install()
        self.choice = self.filled = 0
        self.lists: dict[str, list[str]] = {}  # of the current run: autotuned kernel -> its configurations
        self.results: dict[str, list[dict[str, Any]]] = {}
        self._choose()

    def _choose(self) -> None:
        """Replace the choice in `triton.autotune`."""
        session = self

        def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
            session.lists.setdefault(self.base_fn.__name__, [autotune.label(autotune.describe(c)) for c in configs])
            config = self.best_config = configs[min(session.choice, len(configs) - 1)]
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            try:
                return self.fn.run(*args, **kwargs, **config.all_kwargs())
            finally:
                self.nargs = None

        autotune.replace(run)

    def work(self) -> None:
        """Run the schedule and write the entries."""
        schedule = Schedule.of(self.request)
        for number, (case, index) in enumerate(schedule.jobs() if self._loaded() else ()):
            self.choice = index
            entry, tells = self._entered(case, str(number))
            listed = _listed(self.lists)
            schedule.ran(case, index, listed, tells)
            entry |= {"config": listed[index] if index < len(listed) else "", "configs": len(listed)}
            self.results.setdefault(case, []).append(entry if case in self.results else entry | {"listed": listed})
            self._write()
            if (left := self._left()) is not None and left <= 0:
                break
        self._write()

    def _loaded(self) -> bool:
        """Import the candidate; return whether that worked. An error becomes the answer to each case."""
        try:
            with cuda_as_cpu.OnCpu(self.memory.know):
                self.kernel = target.load(self.candidate, "pgo_candidate").kernel
        except (Exception, SystemExit) as e:
            nothing = {"launched": [], "configs": 0, "not_modelled": []}
            self.results |= {name: [fault_origin.entry(e, self.candidate) | nothing] for name in self.request["cases"]}
        return not self.results

    def _left(self) -> float | None:
        """Return the seconds that a run may take; None: no limit."""
        return self.request["until"] - time.monotonic() if "until" in self.request else None

    def _write(self) -> None:
        """Write the results so far, which remain if the process is killed."""
        part = self.folder / "out" / "result.json.part"
        part.write_text(json.dumps(self.results))
        part.replace(part.with_suffix(""))

    def _entered(self, case: str, label: str) -> tuple[dict[str, Any], bool]:
        """Return the entry of one run, and whether it gave results with elements."""
        unsupported.noted()
        self.lists.clear()
        tells = False
        try:
            with deadline.within(self._left(), self.blocks):
                entry, tells = self._entry(case, label)
        except (Exception, SystemExit) as e:
            entry = fault_origin.entry(e, self.candidate)
        noted = list(dict.fromkeys([*unsupported.noted(), *self.blocks.assumed]))
        entry |= {"launched": self.blocks.names, "not_modelled": [] if "verdict" in entry else noted}
        return entry, tells

    def _entry(self, case: str, label: str) -> tuple[dict[str, Any], bool]:
        began = time.monotonic()
        place, inputs, outs = self._run(case)
        taken = time.monotonic() - began
        saved = tensors.save({str(i): o.contiguous() for i, o in enumerate(outs)}, self.folder / "out", label)
        changed = tensors.changed(inputs, self.request["cases"][case], self.folder / "in")
        line = self.memory.undefined
        if line and taken < AGAIN:
            unsupported.noted()  # notes on undefined values do not count
            if not tensors.same(outs, self._run(case, ones=True)[2]):
                return {"error": UNDEFINED, "line": line, "unsupported": False, "verdict": "wrong"}, False
        if taken < AGAIN and (left := _left(place, outs)) and not tensors.same(outs, self._run(case, left=left)[2]):
            return {"error": LEFT, "line": None, "unsupported": False, "verdict": "wrong"}, False
        if taken < AGAIN and place.unwritten and self.filled < FILLED and not any(map(_has_nan, outs)):
            self.filled += 1
            if not all(tensors.same(outs, self._run(case, fill=f)[2]) for f in (ZERO, Fill())):
                return {"error": UNWRITTEN, "line": None, "unsupported": False, "verdict": "wrong"}, False
        out_storages = {o.untyped_storage().data_ptr() for o in outs}
        in_place = [n for n in changed if _storage(inputs[n]) in out_storages]
        entry = {"outputs": saved, "changed": changed, "in_place": in_place, "stray": place.stray()}
        return entry, any(o.numel() for o in outs)

    def _run(
        self, case: str, ones: bool = False, left: Sequence[Any] = (), fill: Fill = NAN
    ) -> tuple[cuda_as_cpu.OnCpu, dict[str, Any], list[Any]]:
        """Call the launcher once. `ones`: masked-off lanes hold ones, see `memory.py`. `left`: what an earlier call
        left in its allocations; `fill`: what the others hold."""
        self.memory.forget()
        self.memory.begin(ones)
        self.blocks.begin()
        torch.manual_seed(0)
        place = cuda_as_cpu.OnCpu(self.memory.know, left, fill)
        described = self.request["cases"][case]
        inputs = tensors.load(described, self.folder / "in", storage=place.storage)
        with place:
            out = self.kernel(**inputs)
        return place, inputs, list(out) if isinstance(out, list | tuple) else [out]


def _left(place: cuda_as_cpu.OnCpu, outs: Sequence[Any]) -> list[Any]:
    """Return what a call left in its allocations, in order, None for those of results; empty where all are results."""
    results = [(o.untyped_storage().data_ptr(), o.untyped_storage().nbytes()) for o in outs]
    inside = [any(at <= b.data_ptr() < at + n for at, n in results) for b in place.unwritten]
    return [None if i else b.clone() for i, b in zip(inside, place.unwritten, strict=True)] if not all(inside) else []


def _has_nan(out: Any) -> bool:
    """Whether a result shows by itself that a part of it is not written, or is one that no number is."""
    return isinstance(out, torch.Tensor) and out.is_floating_point() and bool(out.isnan().any())


def _unseen() -> None:
    """Let nothing in the environment say that kernels are interpreted: some launchers then leave out autotuners."""
    triton.knobs.propagate_env = False
    triton.knobs.runtime.interpret = True
    os.environ.pop("TRITON_INTERPRET", None)


def _storage(value: Any) -> int:
    return int(value.untyped_storage().data_ptr()) if isinstance(value, torch.Tensor) else 0


def _listed(lists: dict[str, list[str]]) -> list[str]:
    """Return the names of a run's configurations, by index. With several autotuned kernels each uses its own list, and
    its last entry beyond the end."""
    most = max((len(names) for names in lists.values()), default=1)
    return [
        "; ".join(labels[min(i, len(labels) - 1)] for labels in lists.values()) or "as written" for i in range(most)
    ]
