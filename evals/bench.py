"""`make bench`: what a candidate costs: seconds to trace, to compile and (on a GPU) to judge, and host memory.

Each figure is of the target's own source at its first configuration; the builds are made from nothing, in a throw-away
workspace. Prints one line a figure, and JSON with `--json`.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge, bundle_ref, visible_gpu

REPEATS = 3


def measure(file: Path, device: str) -> dict[str, Any]:
    subject = target.read(file)
    chosen = box.choose()
    builds = []
    with tempfile.TemporaryDirectory() as place:
        for i in range(REPEATS):
            builder = Builder(subject, devices.find(device), chosen, ContentStore(Path(place) / str(i)), 1)
            built = builder.build(subject.source, {"CASES": None}, 1)
            builds.append(built.seconds)
        cases = len(built.choices)
        trace, compile_ = (sorted(b[k] for b in builds)[REPEATS // 2] for k in ("trace", "compile"))
        figures = {
            "sandbox": chosen.kind,
            "cases": cases,
            "trace, s a candidate": trace,
            "compile, s a candidate on one core": compile_,
            "build, s a case and core": (trace + compile_) / cases,
            "check in the interpreter, s a candidate": _interpreter(subject),
            "judge, s a candidate (warm)": _judge(subject, built.bundle, built.choices, builder.contents),
        }
    # ru_maxrss is in KiB on Linux; children: the largest process of the tracer, compiler and judge
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return figures | {"host memory of the largest process, GiB": peak / (1 << 20)}


def _interpreter(subject: target.Target) -> float:
    judge = GpuJudge(subject, gpu=None)
    try:
        judge.verdict("check", source=subject.source)
        started = time.monotonic()
        judge.verdict("check", source=f"{subject.source}\n")  # a candidate: the target's own is asked once
        return time.monotonic() - started
    finally:
        judge.close()


def _judge(subject: target.Target, bundle: str, choices: dict[str, Any], contents: ContentStore) -> float | None:
    """Seconds for a candidate that is the incumbent itself, so that every stage but the confirmation runs."""
    gpu = visible_gpu()
    if gpu is None:
        return None
    judge = GpuJudge(subject, gpu=gpu)
    side = {c: {"bundle": bundle_ref(contents, bundle), "choice": o[0].label} for c, o in choices.items()}
    fields = {
        "incumbent": side,
        "shipped": side,
        "tuned": None,
        "public": list(choices),
        "held_out": [],
        "weights": None,
    }
    try:
        judge.verdict("confirm", candidate=side, **fields)
        started = time.monotonic()
        judge.verdict("confirm", candidate=side, **fields)
        return time.monotonic() - started
    finally:
        judge.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(args.file, args.device)
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        text = "no GPU here" if value is None else f"{value:.2f}" if isinstance(value, float) else value
        print(f"{name:<44} {text}")


if __name__ == "__main__":
    main()
