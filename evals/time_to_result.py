"""`python -m pgo_agent.evals.time_to_result FILE`: seconds to a result, ours and exhaustive `triton.autotune`'s.

Both search the same declared launch grid on this machine's GPU, one after the other, each from empty caches. Ours is a
whole run: builds, checks, both baselines, source moves. Autotune's is the first call of the kernel on every public case
with the grid as its list of configurations: it compiles and times, and checks nothing. The file must be trusted: its
launcher runs here, unboxed, as a user of autotune would run it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pgo_agent.agent.moves import launch_config
from pgo_agent.agent.moves.launch_sites import sites, with_configs
from pgo_agent.agent.run.record.store import Run, Store
from pgo_agent.agent.version import commit_of
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault

WORTH = 1.05  # a speedup over the tuned baseline that is worth the wait


def exhaustive(file: Path, limit: float) -> dict[str, Any]:
    """Seconds and chosen configuration of each public case under `triton.autotune` over the whole grid.

    `limit`: seconds after which it is stopped; what it had not done by then is missing, and `ended` is false.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        (folder / "variant.py").write_text(_variant(file))
        command = [sys.executable, "-m", "pgo_agent.evals.time_to_result", "--autotune", str(folder / "variant.py")]
        said, errors = folder / "said", folder / "errors"
        with (
            said.open("w") as out,
            errors.open("w") as err,
            subprocess.Popen(command, env=environment, stdout=out, stderr=err) as tuning,
        ):
            code = _ended(tuning, limit)
        if code:
            told = f"{errors.read_text()[:1500]} ... {errors.read_text()[-800:]}"  # a C compiler's words come first
            raise UsageFault(f"{file} cannot be autotuned: {told}", "run its kernel() by hand first")
        cases = [json.loads(line) for line in said.read_text().splitlines()]
        spent = round(sum(c["seconds"] for c in cases), 2) if code == 0 else limit
        return {"seconds": spent, "ended": code == 0, "cases": cases}


def _ended(process: subprocess.Popen[bytes], limit: float) -> int | None:
    """Its exit code; None when it was stopped at the limit."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        return None


def _variant(file: Path) -> str:
    """The file with its declared grid as the list of configurations."""
    found = target.read(file)
    site = next((s for s in sites(found.source) if s.autotuned), None)
    if site is None:
        raise UsageFault(f"{file} launches nothing under triton.autotune", "give a target that does")
    space = target.load(file, "pgo_target").LAUNCH_SPACE
    points = launch_config.launch_grid(space, [dict.fromkeys(space, 0)])
    return with_configs(found.source, site, points)


def _autotune(path: Path) -> None:
    """In a process of its own: calls the kernel once on each public case, and prints the time of each call."""
    import torch

    module, site = target.load(path, "pgo_variant"), next(s for s in sites(path.read_text()) if s.autotuned)
    generator = torch.Generator("cuda").manual_seed(0)
    for name, case in module.CASES.items():
        given = module.inputs(case, generator)
        torch.cuda.synchronize()
        started = time.monotonic()
        module.kernel(**given)
        torch.cuda.synchronize()
        best = getattr(module, site.kernel).best_config
        seconds = round(time.monotonic() - started, 2)
        print(json.dumps({"case": name, "seconds": seconds, "config": str(best)}), flush=True)


def ours(file: Path, store: Path, candidates: int) -> dict[str, Any]:
    """A run from an empty workspace: wall seconds and GPU seconds at the tuned baseline, at a win, and at its end."""
    command = [sys.executable, "-m", "pgo_agent.agent.cli.main", "optimize", str(file), "--json", "--judge", "gpu"]
    command += ["--candidates", str(candidates)]
    started, marks = time.monotonic(), dict[str, Any]()
    with subprocess.Popen([*command, "--store", str(store)], stdout=subprocess.PIPE, text=True) as run:
        for line in iter(run.stdout.readline if run.stdout else str, ""):
            event = json.loads(line)
            mark = _mark(event, marks)
            if mark:
                seconds = {"wall": round(time.monotonic() - started, 2), "gpu": event["gpu_seconds"]}
                marks[mark] = seconds | {k: event[k] for k in ("move", "speedup") if k in event}
    return marks


def _mark(event: dict[str, Any], marks: dict[str, Any]) -> str:
    """Name of the milestone that an event is; empty for any other."""
    if event["type"] == "baseline.completed":
        return "tuned baseline, checked"
    if event["type"] == "candidate.verdict" and event["verdict"] == "accepted" and (event["speedup"] or 0) >= WORTH:
        return "" if f"{WORTH}x" in marks else f"{WORTH}x"
    return "end of the run" if event["type"] == "run.completed" else ""


def _recorded(args: argparse.Namespace, run: Run) -> dict[str, Any]:
    """What was raced, and on which machine."""
    return {
        "what": "time to a result",
        "target": args.file.stem,
        "candidates": args.candidates,
        "limit": args.limit,
        "cores": len(os.sched_getaffinity(0)),
        "environment": (run.summary or {}).get("environment"),
        "commit": commit_of(),
        "when": run.created,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--autotune", action="store_true", help="only the autotuner's part, of a file with the grid")
    parser.add_argument("--candidates", type=int, default=12, help="budget of our run")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for the autotuner")
    parser.add_argument("--store", type=Path, default=None, help="keep our run in this workspace")
    parser.add_argument(
        "--out", type=Path, default=None, help="write the line here, too: evals/results/races-h200.jsonl"
    )
    args = parser.parse_args()
    if args.autotune:
        _autotune(args.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = args.store or Path(folder)
        if (store / "pgo.db").exists():
            raise UsageFault(f"{store} holds runs already", "give an empty --store: builds on it would cost nothing")
        found = {"ours": ours(args.file, store, args.candidates), "triton.autotune": exhaustive(args.file, args.limit)}
        line = json.dumps(_recorded(args, Store(store).run("last")) | found)
    print(line)
    if args.out:
        with args.out.open("a") as out:
            out.write(line + os.linesep)


if __name__ == "__main__":
    main()
