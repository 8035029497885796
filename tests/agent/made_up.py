"""A judge of made-up times behind the real worker of a spool: `python made_up.py DIR TARGET[:TARGET] FASTER [--once]`.

There is no GPU where most tests run. What a run asks through a folder, and what it does with answers, is tried with
this: every bundle is read and checked as a GPU's judge process does, and nothing is launched. FASTER is how many times
faster each candidate is said to be. Every command that it answers becomes a line of DIR.asked. `--wrong LABEL`: the
configuration of the file's own list that is called so is twice as fast as all others, and wrong. `--ends LABEL`: that
one ends the process in a public case.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.judge.interface import Ended
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.spool.folder import Folder
from pgo_agent.sandbox.judge.spool.server import Worker

COVERED = {"coverage": coverage.of(cases=1).as_json()}

DEVICE = devices.find("h200")
SECONDS = 2.5  # that each command is said to have held the GPU
ROUNDS = 12
WRONG = {
    "problem": "wrong: output 0: max error 0.1 above 0.01",
    "ms": [1.0] * 4,
    "finalist": True,
    "check": {"problem": "output 0: max error 0.1 above 0.01", "admits": {"max_ratio": 24.0, "mean_ratio": 1.5}},
}


@dataclass
class MadeUp:
    """What stands in for the judge process of a GPU."""

    faster: float
    asked: Path
    wrong: str = ""
    ends: str = ""
    busy: float = 0.0
    processes: int = 0

    def open(self) -> Environment:
        return Environment(DEVICE.name, driver="made up", torch="made up", triton="made up")

    def fresh(self) -> None:
        self.processes += 1

    def close(self) -> None:
        """There is nothing to end."""

    def answer(self, command: str, fields: dict[str, Any]) -> dict[str, Any]:
        for where in _bundles(fields):
            found = validate.load(Path(where["manifest"]), Path(where["artefacts"]), _limits(command))
            assert found.id == where["id"]
        with self.asked.open("a") as file:
            print(json.dumps({"do": command, "worker": os.getpid(), "process": self.processes}), file=file)
        self.busy += SECONDS
        return dict(getattr(self, f"_{command}")(fields))

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _sweep(self, given: dict[str, Any]) -> dict[str, Any]:
        if any(e["choice"] == self.ends and e["case"].startswith("CASES/") for e in given["entries"]):
            raise Ended("sweep CASES/1m", timed_out=False, detail="made up: an illegal memory access")
        return {
            "entries": [
                e | {"bundle": e["bundle"]["id"], "problem": "", "ms": [2.0 + i / 10] * 4, "finalist": i < 2}
                | (WRONG if e.get("own") and e["choice"] == self.wrong else {})
                for i, e in enumerate(given["entries"])
            ]
        }  # fmt: skip

    def _judge(self, given: dict[str, Any]) -> dict[str, Any]:
        where = given["candidate"]["bundle"]
        plans = json.loads(Path(where["manifest"]).read_bytes())["plans"]
        choices = {case: next(iter(plans[case])) for case in given["public"]}
        return self._timed(given, choices, "time")

    def _look(self, given: dict[str, Any]) -> dict[str, Any]:
        evidence = {"speedup": [self.faster] * 3}
        return {"verdict": "checked", "stage": "quick", "reason": "it may be faster", "evidence": evidence, **COVERED}

    def _confirm(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._timed(given, {c: p["choice"] for c, p in given["candidate"].items()}, "confirm")

    def _timed(self, given: dict[str, Any], choices: dict[str, str], stage: str) -> dict[str, Any]:
        cases = given["public"]
        others = {side: [2.0] * ROUNDS for side in ("incumbent", "tuned") if given.get(side)}
        times = {c: {**others, "candidate": [2.0 / self.faster] * ROUNDS} for c in cases}
        reason = f"{self.faster:.3f}x by a judge of made-up times"
        said = {"stage": stage, "verdict": "passed", "reason": reason, "seconds": 1.0, "found": {}}
        evidence = {"choices": choices, "speedup": [self.faster] * 3, "time": times, "stages": [said]}
        if given.get("no_slower"):
            from pgo_agent.sandbox.judge.timing import regression  # numpy: a third of the import of each such process

            sides = {c: {**s, "A/A": s["incumbent"]} for c, s in times.items()}
            decided, why, figures = regression.on_time(sides, dict.fromkeys(cases, 0.0), "incumbent", None)
            told = {"verdict": str(decided), "reason": str(why), "why": why.as_json()}
            return {"stage": stage, "evidence": evidence | figures, **told, **COVERED}
        verdict = "accepted" if self.faster > 1 else "slower"
        return {"verdict": verdict, "stage": stage, "reason": reason, "evidence": evidence, **COVERED}

    def _race(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"verdict": "checked", "stage": "race", "reason": "no hazard was made up", "evidence": {}, **COVERED}

    def _idle(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"idle": []}

    def _peaks(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"flops": 8e14, "moved": 4e12}

    def _timeline(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"problem": "a judge of made-up times records nothing"}

    def _counters(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"problem": "a judge of made-up times counts nothing"}

    def _final(self, given: dict[str, Any]) -> dict[str, Any]:
        ms = {"winner": 2.0 / self.faster, "autotuned": 1.0}
        sides = {n: [ms.get(n, 2.0)] * ROUNDS for n in (*given["sides"], "A/A")}
        if not given.get("compile_reference"):
            return {"times": dict.fromkeys(given["cases"], sides)}
        return {"times": dict.fromkeys(given["cases"], sides | {target.COMPILED: [6.0] * ROUNDS}), "uncompiled": {}}


def _limits(command: str) -> validate.Limits:
    from pgo_agent.sandbox.build.builder import limits_of  # half of the import of each such process

    return replace(limits_of(DEVICE), variables=command == "race", records=command == "timeline")


def _bundles(fields: Any) -> list[dict[str, str]]:
    if isinstance(fields, dict):
        return [fields] if "manifest" in fields else [b for v in fields.values() for b in _bundles(v)]
    return [b for v in fields for b in _bundles(v)] if isinstance(fields, list) else []


def serve(folder: Path, subjects: str, faster: float, once: bool, wrong: str = "", ends: str = "") -> None:
    while not folder.is_dir():
        time.sleep(0.1)
    found = {t.digest: t for name in subjects.split(os.pathsep) for t in [target.read(Path(name))]}
    asked = folder.with_name(f"{folder.name}.asked")
    with closing(Worker(Folder(folder), found, lambda _: MadeUp(faster, asked, wrong, ends))) as worker:
        worker.serve(once, lambda text: print(text, flush=True))


def main() -> None:
    named = {n: sys.argv[sys.argv.index(f"--{n}") + 1] for n in ("wrong", "ends") if f"--{n}" in sys.argv}
    serve(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), "--once" in sys.argv, **named)


def once(folder: Path, *targets: str, faster: float = 1.2) -> None:
    """Answer what is asked in `folder`/box now."""
    from tests.agent.command_line import begin

    subjects = os.pathsep.join(str(folder / t) for t in targets)
    begin(folder / "box", subjects, str(faster), "--once", cwd=folder, program=__name__).communicate()


@contextmanager
def answering(folder: Path, *targets: str, how: Sequence[str] = (), faster: float = 1.2) -> Iterator[None]:
    """While somebody answers what is asked in `folder`/box of these targets, or of add.py."""
    from tests.agent.command_line import begin  # pytest: a third of the import of each made-up GPU's process

    subjects = os.pathsep.join(str(folder / t) for t in targets or ("add.py",))
    worker = begin(folder / "box", subjects, str(faster), *how, cwd=folder, program=__name__)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate()


if __name__ == "__main__":
    main()
