"""`python -m pgo_agent.sandbox.interpreter FOLDER`: runs the candidate on each case of FOLDER/request.json.

Runs in the box with TRITON_INTERPRET=1. For each case and configuration it leaves the outputs as bytes, or the error,
and how many bytes were written outside of tensors; in both cases also which kernels ran (`launched`) and how many
configurations there are to choose from (`configs`). Cases called `late` are not begun after `begin_by` seconds.
"""

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.imports import heavy

_LACKING = "not supported in interpreter mode"  # Triton's own words for inline assembly


def _never(*_args: Any, **_options: Any) -> Any:
    """Stands for compiling, loading and launching: only a kernel that is not interpreted (Gluon) comes to that."""
    raise NotImplementedError(f"a kernel of another language than Triton's is {_LACKING}")


def _blame(error: BaseException, candidate: Path) -> dict[str, Any]:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(candidate)]
    said = f"{type(error).__name__}: {error}"[:2000]
    return {"error": said, "line": lines[-1] if lines else None, "unsupported": _unsupported(error)}


def _unsupported(error: BaseException | None) -> bool:
    """Whether it is the interpreter that lacks something (Gluon, assembly, some of libdevice), and not the kernel."""
    while error is not None and not isinstance(error, NotImplementedError):
        error = error.__cause__
    return _LACKING in str(error)


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
        from pgo_agent.sandbox.interpreter import facade, launches, libdevice, tensors
        from pgo_agent.sandbox.tracer import answers
        from triton.runtime import driver
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

    started, request = time.monotonic(), json.loads((folder / "request.json").read_text())
    torch.set_num_threads(1)
    device = devices.find(request["device"])
    answers.patch_torch(device, answers.Refusals())
    driver.set_active(answers.Driver(device, _never, _never))
    JITFunction.run = _never  # Gluon's compiler would not know the interpreted functions of Triton's library
    _convert_floats()
    libdevice.install()
    ran = launches.Launches()
    ran.install()
    chosen = {"index": 0, "most": 1}

    def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        chosen["most"] = max(chosen["most"], len(configs))
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
    try:
        with facade.OnCpu():
            kernel = target.load(candidate, "pgo_candidate").kernel
    except (Exception, SystemExit) as e:
        results = {name: [_blame(e, candidate) | {"launched": [], "configs": 0}] for name in request["cases"]}
    for name, described in request["cases"].items() if not results else ():
        if name in request.get("late", ()) and time.monotonic() - started > request["begin_by"]:
            continue
        chosen |= {"index": 0, "most": 1}
        results[name] = []
        while chosen["index"] < min(chosen["most"], request["configs"][name]):
            place = facade.OnCpu()
            ran.forget()
            given = tensors.load(described, folder / "in", storage=place.storage)
            try:
                with place:
                    out = kernel(**given)
                outs = list(out) if isinstance(out, list | tuple) else [out]
                label = f"{len(results)}-{chosen['index']}"
                saved = tensors.save({str(i): o.contiguous() for i, o in enumerate(outs)}, folder / "out", label)
                changed = tensors.changed(given, described, folder / "in")
                results[name].append({"outputs": saved, "changed": changed, "stray": place.stray()})
            except (Exception, SystemExit) as e:
                results[name].append(_blame(e, candidate))
            results[name][-1] |= {"launched": ran.names, "configs": chosen["most"]}
            chosen["index"] += 1
    (folder / "out" / "result.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
