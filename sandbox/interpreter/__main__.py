"""`python -m pgo_agent.sandbox.interpreter FOLDER`: runs the candidate on each case of FOLDER/request.json.

Runs in the box with TRITON_INTERPRET=1. For each case and configuration it leaves the outputs as bytes, or the error,
how many bytes were written outside of tensors, which configuration of how many it was, and which kernels ran; after
each run, so that one that does not end costs no other. `schedule.py` says what is run, `watching.py` ends what waits.
"""

import json
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pgo_agent.sandbox.imports import heavy
from pgo_agent.sandbox.interpreter.schedule import Schedule
from pgo_agent.sandbox.interpreter.watching import LACKING, WAITING, Overtime, Watch

E = TypeVar("E", bound=BaseException)


def _never(*_args: Any, **_options: Any) -> Any:
    """Stands for compiling, loading and launching: only a kernel that is not interpreted (Gluon) comes to that."""
    raise NotImplementedError(f"a kernel of another language than Triton's is {LACKING}")


def _blame(error: BaseException, candidate: Path) -> dict[str, Any]:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(candidate)]
    late, lacking = _cause(error, Overtime), _lacking(error)
    told = {"endless": late.endless} if late else {}
    said = f"{type(error).__name__}: {error}" if lacking is None and late is None else str(late or lacking)
    unsupported = lacking is not None or (late is not None and not late.endless)
    return {"error": said[:2000], "line": lines[-1] if lines else None, "unsupported": unsupported} | told


def _lacking(error: BaseException) -> NotImplementedError | None:
    """What says that the interpreter lacks something (Gluon, assembly, some of libdevice), and not the kernel."""
    found = _cause(error, NotImplementedError)
    return found if found is not None and LACKING in str(found) else None


def _cause(error: BaseException | None, kind: type[E]) -> E | None:
    """The first of a kind among an error and its causes."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error


def _convert_floats() -> None:
    """Makes a float argument a tensor of fp32, as a compiled kernel gets it; Triton's interpreter leaves it a float."""
    import numpy as np
    from triton import language as tl
    from triton.runtime import interpreter

    convert = interpreter._implicit_cvt

    def also_floats(arg: Any) -> Any:
        if not isinstance(arg, float):
            return convert(arg)
        return tl.tensor(interpreter.TensorHandle(np.array([arg], dtype=np.float32), tl.float32), tl.float32)

    interpreter._implicit_cvt = also_floats


def main(folder: Path) -> None:
    with heavy():
        import torch
        from pgo_agent.sandbox import devices, target
        from pgo_agent.sandbox.interpreter import facade, libdevice, tensors
        from pgo_agent.sandbox.tracer import answers, autotune
        from triton.runtime import driver
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

    request = json.loads((folder / "request.json").read_text())
    torch.set_num_threads(1)
    device = devices.find(request["device"])
    answers.patch_torch(device, answers.Refusals())
    driver.set_active(answers.Driver(device, _never, _never))
    JITFunction.run = _never  # Gluon's compiler would not know the interpreted functions of Triton's library
    _convert_floats()
    libdevice.install()
    watch = Watch()
    watch.install()
    chosen = {"index": 0}
    lists: dict[str, list[str]] = {}  # of the run that goes on: an autotuned kernel's configurations

    def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        lists.setdefault(self.base_fn.__name__, [autotune.label(autotune.describe(c)) for c in configs])
        config = self.best_config = configs[min(chosen["index"], len(configs) - 1)]
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        try:
            return self.fn.run(*args, **kwargs, **config.all_kwargs())
        finally:
            self.nargs = None

    Autotuner.run = run
    candidate = folder / request["candidate"]
    results: dict[str, Any] = {}
    write = partial(_write, folder / "out", results)
    try:
        with facade.OnCpu():
            kernel = target.load(candidate, "pgo_candidate").kernel
    except (Exception, SystemExit) as e:
        results |= {name: [_blame(e, candidate)] for name in request["cases"]}
    schedule, left = Schedule.of(request), partial(_left, request)
    for number, (name, index) in enumerate(schedule.jobs() if not results else ()):
        chosen["index"] = index
        lists.clear()
        place = facade.OnCpu()
        given = tensors.load(request["cases"][name], folder / "in", storage=place.storage)
        try:
            with watch.run(left()), place:
                out = kernel(**given)
            if watch.waits:  # and somebody caught it
                raise NotImplementedError(WAITING)
            outs = list(out) if isinstance(out, list | tuple) else [out]
            saved = tensors.save({str(i): o.contiguous() for i, o in enumerate(outs)}, folder / "out", str(number))
            changed = tensors.changed(given, request["cases"][name], folder / "in")
            result = {"outputs": saved, "changed": changed, "stray": place.stray()}
            tells = any(o.numel() for o in outs)
        except (Exception, SystemExit) as e:
            result, tells = _blame(e, candidate), False
        listed = _listed(lists)
        schedule.ran(name, index, listed, tells)
        told = {"config": listed[index] if index < len(listed) else "", "configs": len(listed)}
        listing = {} if name in results else {"listed": listed}
        results.setdefault(name, []).append(result | told | listing | {"launched": list(watch.launched)})
        write()
        if (over := left()) is not None and over <= 0:
            break
    write()


def _left(request: dict[str, Any]) -> float | None:
    """Seconds that a run may take; None where nobody says."""
    return request["until"] - time.time() if "until" in request else None


def _listed(lists: dict[str, list[str]]) -> list[str]:
    """What the configurations of a run are called, by index: with several autotuned kernels each moves on in its own
    list, and stays at its end."""
    most = max((len(labels) for labels in lists.values()), default=1)
    return ["; ".join(own[min(i, len(own) - 1)] for own in lists.values()) or "as written" for i in range(most)]


def _write(out: Path, results: dict[str, Any]) -> None:
    """What there is so far: a process that is ended at its deadline leaves that."""
    partial = out / "result.json.part"
    partial.write_text(json.dumps(results))
    partial.replace(out / "result.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
