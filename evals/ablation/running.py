"""`pgo-agent eval ablation`: makes the runs of a plan, one after another, and writes what each came to as JSON lines.

Every line is written when its run has ended, behind a line that says which run was begun for it: an ablation that is
killed, or waits for a reply, goes on with the same command. Results of another plan are refused. All runs share a
workspace, so that what is built for one arm is there for the others; none learns from another.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pgo_agent.agent import session
from pgo_agent.agent.context import Emit
from pgo_agent.agent.errors import Exit
from pgo_agent.agent.session import Wishes
from pgo_agent.agent.store import Run, Store
from pgo_agent.agent.version import commit_of
from pgo_agent.evals.ablation.plan import Plan, Wanted
from pgo_agent.evals.ablation.scores import score
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault


@dataclass(frozen=True)
class Results:
    """The file of results of one plan."""

    file: Path
    plan: Plan

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """What was written before; a last line that was cut off is none. Raises UsageFault for another plan's."""
        found = list(self._read())
        if found and found[0].get("digest") != self.plan.digest:
            raise UsageFault(
                f"{self.file} holds results of another plan",
                "name another file with -o: a plan is fixed before its runs",
            )
        return found

    def begun(self, wanted: Wanted) -> str | None:
        """The run that was begun last for what is wanted."""
        named = [line["run"] for line in self.lines if line["what"] == "begun" and _of(line) == _key(wanted)]
        return named[-1] if named else None

    def ended(self, wanted: Wanted) -> dict[str, Any] | None:
        return next((line for line in self.lines if line["what"] == "run" and _of(line) == _key(wanted)), None)

    def add(self, what: str, **fields: Any) -> dict[str, Any]:
        """Writes a line, and the plan before the first one. Raises EnvironmentFault where it cannot be written."""
        new = {"what": what} | fields
        first = {"what": "plan", "digest": self.plan.digest, "plan": asdict(self.plan)}
        lines = [new] if self.lines else [first, new]
        try:
            with self.file.open("a", encoding="utf-8") as out:
                out.write("".join(json.dumps(line) + "\n" for line in lines))
                out.flush()
                os.fsync(out.fileno())
        except OSError as e:
            raise EnvironmentFault(f"cannot write {self.file}: {e.strerror}", "name another file with -o") from None
        self.lines.extend(lines)
        return new

    def scores(self) -> dict[Wanted, float]:
        """Of the runs that ended by themselves."""
        ended = {w: self.ended(w) for w in self.plan.runs}
        return {w: line["score"] for w, line in ended.items() if line and not line["truncated"]}

    def _read(self) -> Iterator[dict[str, Any]]:
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(self.file, len(whole.encode()))
        for n, line in enumerate(whole.splitlines(), 1):
            with suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict) and "what" in found:
                    yield found
                    continue
            raise UsageFault(f"{self.file}, line {n}: it is no result of an ablation", "name another file with -o")


def check(results: Results, wishes: Wishes) -> None:
    """Raises UsageFault for results of another plan, and for a metric of times without a GPU."""
    gpu, _ = session.where(wishes)
    if gpu is not None:
        gpu.close()
    if gpu is None and results.plan.metric != "right":
        problem = f"the metric {results.plan.metric} needs a GPU, and none is used here"
        raise UsageFault(problem, "plan for `right`, or take a machine with one")
    results.lines  # noqa: B018 (it is read, and refused, here)


def run(results: Results, wishes: Wishes, store: Store, emit: Emit) -> Exit:
    """Makes every run that has no result yet. Gives WAITING when a model's reply is not there yet, else DONE.

    Raises what runs raise.
    """
    for wanted in results.plan.runs:
        if results.ended(wanted) is None and _one(results, wanted, wishes, store, emit) == Exit.WAITING:
            return Exit.WAITING
    return Exit.DONE


def _one(results: Results, wanted: Wanted, wishes: Wishes, store: Store, emit: Emit) -> Exit:
    """One run, from its beginning or from where it was."""

    def heard(event: dict[str, Any]) -> None:
        if event["type"] == "run.started" and results.begun(wanted) != event["run"]:
            results.add("begun", run=event["run"], **_named(wanted))
        emit(event)

    known = _known(store, results.begun(wanted))
    if known is None:
        session.start(Path(wanted.target), _wishes(results.plan, wanted, wishes), store, heard)
    elif known.state not in session.STATES:
        session.resume(known.id, store, heard, wait=wishes.wait)
    found = store.run(results.begun(wanted) or "last")
    if found.state not in session.STATES:
        return Exit.WAITING
    results.add("run", run=found.id, **_named(wanted), **_told(results.plan, store, found))
    return Exit.DONE


def _wishes(plan: Plan, wanted: Wanted, wishes: Wishes) -> Wishes:
    budget = replace(wishes, candidates=plan.candidates, patience=plan.patience, minutes=plan.minutes)
    return replace(budget, models=(wanted.arm.model,), insight=wanted.arm.insight, seed=wanted.seed, alone=True)


def _known(store: Store, name: str | None) -> Run | None:
    """A run that was begun, if this workspace holds it."""
    return next((r for r in store.runs() if r.id == name), None)


def _told(plan: Plan, store: Store, run: Run) -> dict[str, Any]:
    candidates, spent = store.candidates(run.id), store.spent(run.id)
    judged = [c for c in candidates if c.verdict is not None]
    return {
        "score": score(store, run, plan.metric),
        "state": run.state,
        "truncated": run.seconds > 60 * plan.minutes,
        "judged": len(judged),
        "accepted": [c.move for c in judged if c.verdict == "accepted"],
        "seconds": round(run.seconds, 1),
        "tokens": int(spent["tokens"]),
        "money": spent["money"],
        "gpu_seconds": run.gpu_seconds,
        "environment": (run.summary or {}).get("environment"),
        "commit": commit_of(Path(__file__).parent),
    }


def _named(w: Wanted) -> dict[str, Any]:
    return {"target": w.target, "seed": w.seed, "model": w.arm.model, "insight": str(w.arm.insight)}


def _key(w: Wanted) -> tuple[Any, ...]:
    return tuple(_named(w).values())


def _of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("target", "seed", "model", "insight"))
