"""`verdict`: what this workspace knows of exactly the text of a file. It judges nothing.

A candidate is known by its whole text, as `apply` writes it, or by its statements, whatever comments and layout are.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pgo_agent.agent.evaluation import given_file
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run.record.candidate import Candidate, candidate_id
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict


@dataclass(frozen=True)
class Known:
    """The newest verdict on a text; `accepted` before any other."""

    file: str
    verdict: str | None  # None: there is none
    said: str
    run: str | None = None
    candidate: str | None = None
    speedup: float | None = None  # over what was the incumbent then
    gpu: str | None = None  # that timed it


def tell(store: Store, file: Path, as_json: bool) -> Exit:
    """Print the verdict on a file. Returns DONE where it is accepted. Raises UsageFault for a file that is none."""
    found = known(store, file)
    print(json.dumps(asdict(found)) if as_json else found.said)
    return Exit.DONE if found.verdict == Verdict.ACCEPTED else Exit.NONE_FOUND


def known(store: Store, file: Path) -> Known:
    """Return what the workspace knows of a file."""
    text = target.text(file)
    judged = [(run, c) for run in reversed(store.runs()) for c in _of(store, run, text) if c.verdict is not None]
    if not judged:
        return Known(str(file), None, f"no verdict on exactly this text of {file} is in {store.root}")
    run, c = next(((r, c) for r, c in judged if c.verdict == Verdict.ACCEPTED), judged[0])
    gpu = run.environment.gpu if run.environment else None
    ratio = f", {c.speedup:.3f}x of {'the incumbent then' if c.against else 'its incumbent'}" if c.speedup else ""
    where = f" on {gpu}" if gpu else ", not measured"
    said = f"{c.verdict}{ratio}{where}: {c.reason} (run {run.id}, candidate {c.id[:8]})"
    return Known(str(file), c.verdict, said, run.id, c.id, c.speedup, gpu)


def _of(store: Store, run: Run, text: str) -> list[Candidate]:
    """Return the candidates of a run that are this text."""
    candidates = [c for c in store.candidates(run.id) if c.kind != "ttgir"]
    exact = [c for c in candidates if c.id == candidate_id(text)]
    return exact or [c for c in candidates if _same(c.source, text)]


def _same(source: str, text: str) -> bool:
    try:
        return given_file.same(source, text)
    except (SyntaxError, ValueError) as e:
        raise UsageFault(f"it is not Python: {e}", "name a kernel file") from None
