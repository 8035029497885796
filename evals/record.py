"""`python -m pgo_agent.evals.record RUN`: writes what builds and candidates are recognized by into evals/results/.

One JSON line for each configuration that the run's sweep measured, with its raw samples, and one for each candidate
with its verdict; all of them name the GPU, the versions and the commit. A point without samples or with a problem is
not written. The run's last session is in its row, which `pgo-agent eval nightly` writes. Read by `shipped_results.py`.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from pgo_agent.agent.run.incumbent import gains
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.version import commit_of
from pgo_agent.evals.runner.folders import RESULTS
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject


def lines(store: Store, run: Run, commit: str) -> Iterator[JsonObject]:
    """Yield the lines of a run. Raises UsageFault when the run measured nothing."""
    base, summary = run.baseline, run.summary
    if base is None or not isinstance(summary, MeasuredRun):
        raise UsageFault(f"run {run.id} measured nothing on a GPU", "record a run that was judged on one")
    common: JsonObject = {
        "target": Path(run.target).stem,
        "digest": run.digest,
        "environment": summary.environment.as_json(),
        "commit": commit,
        "run": run.id,
        "when": run.created,
        "models": store.answered(run.id),
        "winner": summary.winner,
    }
    for p in base.points:
        if p.samples and not p.problem:
            yield common | {
                "what": "sweep",
                "environment": summary.environment.as_json() | (p.taken_on or {}),
                "case": p.case,
                "choice": p.choice,
                "plan_id": p.plan_id,
                "codes": p.codes,
                "ms": p.samples,
                "finalist": p.finalist,
                "check": p.check,
                **base.work_of(p.case).as_json(),
            }
    candidates = store.candidates(run.id)
    moves = {c.id: c.move for c in candidates}
    for c in candidates:
        if c.verdict is not None:
            yield common | {
                "what": "verdict",
                "candidate": c.id,
                "kind": c.kind,
                "move": c.move,
                "author": c.author,
                "idea": c.rationale,
                "on": moves.get(c.parent, c.parent),
                "against": c.against,
                "ratios": {case: round(r, 4) for case, r in gains(store.evidence(run.id, c.id)).items()},
                "verdict": c.verdict,
                "stage": c.stage,
                "reason": c.reason,
                "speedup": c.speedup,
                "seconds": c.seconds,
                "source": c.source if c.verdict == "accepted" else None,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", nargs="?", default="last")
    parser.add_argument("--store", type=Path, default=Path(".pgo-agent"))
    parser.add_argument("--out", type=Path, default=None, help="default: evals/results/recorded-TARGET-DEVICE.jsonl")
    args = parser.parse_args()
    store = Store(args.store, create=False)
    run = store.run(args.run)
    recorded = list(lines(store, run, commit_of()))
    out = args.out or RESULTS / f"recorded-{Path(run.target).stem}-{run.device}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(line) + "\n" for line in recorded))
    print(f"{len(recorded)} lines in {out}")


if __name__ == "__main__":
    main()
