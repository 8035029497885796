"""`python -m pgo_agent.sandbox.interpreter FOLDER`: runs the candidate on each case of FOLDER/request.json.

Runs in the box with TRITON_INTERPRET=1. For each case and configuration it leaves the outputs as bytes, or the error.
"""

import json
import sys
import traceback
from pathlib import Path
from typing import Any


def _never(*_args: Any) -> Any:
    raise RuntimeError("nothing is launched or loaded in the interpreter")


def _blame(error: BaseException, candidate: Path) -> dict[str, Any]:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(candidate)]
    return {"error": f"{type(error).__name__}: {error}"[:2000], "line": lines[-1] if lines else None}


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
    import torch
    from pgo_agent.sandbox import devices, target
    from pgo_agent.sandbox.interpreter import facade, tensors
    from pgo_agent.sandbox.tracer import answers
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner

    request = json.loads((folder / "request.json").read_text())
    torch.set_num_threads(1)
    device = devices.find(request["device"])
    answers.patch_torch(device, answers.Refusals())
    driver.set_active(answers.Driver(device, _never, _never))
    _convert_floats()
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
        results = {name: [_blame(e, candidate)] for name in request["cases"]}
    for name, described in request["cases"].items() if not results else ():
        chosen |= {"index": 0, "most": 1}
        results[name] = []
        while chosen["index"] < min(chosen["most"], request["configs"]):
            given = tensors.load(described, folder / "in")
            try:
                with facade.OnCpu():
                    out = kernel(**given)
                outs = list(out) if isinstance(out, list | tuple) else [out]
                label = f"{len(results)}-{chosen['index']}"
                saved = tensors.save({str(i): o.contiguous() for i, o in enumerate(outs)}, folder / "out", label)
                results[name].append({"outputs": saved})
            except (Exception, SystemExit) as e:
                results[name].append(_blame(e, candidate))
            chosen["index"] += 1
    (folder / "out" / "result.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
