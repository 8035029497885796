"""Whether two kernels give the same bits, in Triton's interpreter: on every small case, as it is and on stress inputs.

`python -m pgo_agent.evals.mutants.bits FOLDER` compares, in a process of its own, which imports the target's contract;
the kernels run in the box. Equal bits on many inputs do not prove two kernels equal: only reading them does.
Nothing is known of what the interpreter does not model, or of cases that no small one stands for.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pgo_agent.agent.run.settings import DEFAULT_DEVICE, RunSettings
from pgo_agent.sandbox.isolation import box

SEEDS = 6  # of plain inputs of each case
SECONDS = 240.0  # of one kernel on all of them


def compare(target: Path, first: str, second: str, settings: RunSettings, folder: Path) -> dict[str, Any]:
    """Return how many inputs gave equal bits, of how many, and the names of some that did not: {equal, of, differ}.

    {error} when they cannot be compared: one of them raises, or does not end.
    """
    request = {"target": str(target), "texts": [first, second], "device": settings.device or DEFAULT_DEVICE}
    request |= {"sandbox": settings.sandbox, "python": settings.python}
    forks = box.choose(settings.sandbox, settings.python).prepare(box.INTERPRETER)
    (folder / "bits.json").write_text(json.dumps(request | {"forks": forks}))
    command = [sys.executable, "-m", "pgo_agent.evals.mutants.bits", str(folder)]
    lent = () if forks is None else (forks,)
    done = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=lent)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["it ended"])[-1][:300]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(folder: Path) -> None:
    from pgo_agent.sandbox import target

    request = json.loads((folder / "bits.json").read_text())
    if request["forks"] is not None:
        box.choose(request["sandbox"], request["python"]).borrow(box.INTERPRETER, request["forks"])
    subject = target.read(Path(request["target"]))
    module = target.load(subject.contract_path, "pgo_target")
    trials = dict(_inputs(module))
    outputs = [_outputs(request, subject, text, trials, folder / str(n)) for n, text in enumerate(request["texts"])]
    differ = [name for name in trials if not _equal(*(o[name] for o in outputs))]
    result = {"equal": len(trials) - len(differ), "of": len(trials), "differ": differ[:5]}
    print(json.dumps(result))


def _inputs(module: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Inputs by what they are called: those of every small case, as they are and under every stress input that fits."""
    import torch
    from pgo_agent.sandbox.errors import TargetFault
    from pgo_agent.sandbox.judge.results import numerics
    from pgo_agent.sandbox.judge.results.stress_inputs import STRESS_INPUTS

    for name, case in module.SMALL.items():
        for seed in range(SEEDS):
            yield f"{name}, seed {seed}", numerics.make_inputs(module, case, seed, torch.device("cpu"))
        for stress_input in STRESS_INPUTS:
            try:
                inputs = numerics.make_inputs(module, case, SEEDS, torch.device("cpu"), stress_input)
            except TargetFault:
                continue
            yield f"{name} with {stress_input.name}", inputs


def _outputs(request: dict[str, Any], of: Any, text: str, trials: dict[str, Any], folder: Path) -> dict[str, list[Any]]:
    """Return what a kernel gives, by the inputs' names and for each of its configurations."""
    from pgo_agent.sandbox.build.trace_and_compile import place
    from pgo_agent.sandbox.interpreter import tensors

    folder.mkdir()
    _, candidate = place(folder, of, text, hide=True)
    (folder / "in").mkdir()
    described = {name: tensors.save(inputs, folder / "in", str(i)) for i, (name, inputs) in enumerate(trials.items())}
    job = {
        "candidate": candidate,
        "cases": described,
        "configs": dict.fromkeys(trials, 3),
        "device": request["device"],
    }
    (folder / "request.json").write_text(json.dumps(job))
    inside = box.choose(request["sandbox"], request["python"])
    ran = inside.run(box.INTERPRETER, folder, SECONDS)
    if ran.timed_out or ran.killed:
        raise SystemExit("it does not end")
    results = json.loads((folder / "out" / "result.json").read_text())
    if failed := next((r["error"] for rs in results.values() for r in rs if "error" in r), None):
        raise SystemExit(failed)
    return {n: [tensors.load(r["outputs"], folder / "out") for r in rs] for n, rs in results.items()}


def _equal(first: list[Any], second: list[Any]) -> bool:
    """Return whether all outputs of all configurations have the same shapes and bits."""
    import torch

    def bits(t: Any) -> Any:
        return t.contiguous().reshape(-1).view(torch.uint8)

    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(a[k].shape == b[k].shape and torch.equal(bits(a[k]), bits(b[k])) for k in a)
        for a, b in zip(first, second, strict=True)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
