"""`pgo-agent dispatch RUN`: proves a dispatch of a run's winners and keeps it; `apply RUN --dispatch` writes it.

What is kept lies in the workspace: the text, and the proof as JSON. The user's file is not touched.
"""

import json
from pathlib import Path

from pgo_agent.agent.commands.dispatch.proof import FOLDER, Prover
from pgo_agent.agent.exit_codes import FAULTY, Exit
from pgo_agent.agent.run.dispatch import Proof
from pgo_agent.agent.run.events import Emit
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.regression import Outcome
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle.store import writing
from pgo_agent.sandbox.errors import UsageFault


def start(run: str, settings: RunSettings, store: Store, emit: Emit) -> tuple[Proof, Exit]:
    """Prove a dispatch and keep it. Raises Faults, and UsageFault where nothing can be proven."""
    proof, text = Prover(_meant(store.run(run)), settings, store, emit).prove()
    folder = _folder(store, proof.run)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.py").write_text(text, encoding="utf-8")
        (folder / "proof.json").write_text(json.dumps(proof.as_json(), indent=1), encoding="utf-8")
    return proof, _exit(proof)


def kept(store: Store, run: str) -> tuple[Proof, str]:
    """Return what was proven of a run, and the text. Raises UsageFault where nothing was, or it did not hold."""
    run = _meant(store.run(run))
    folder = _folder(store, run)
    advice = f"`pgo-agent dispatch {run}` judges it on a GPU"
    try:
        proof = json_codec.from_json(Proof, json.loads((folder / "proof.json").read_bytes()))
        text = (folder / "kernel.py").read_text(encoding="utf-8")
    except OSError:
        raise UsageFault(f"run {run} has no dispatch", advice) from None
    except (ValueError, KeyError, TypeError):
        raise UsageFault(f"{folder / 'proof.json'} cannot be read", advice) from None
    if not proof.proven:
        raise UsageFault(f"the dispatch of run {run} is not proven: {proof.said}", advice)
    return proof, text


def _meant(run: Run) -> str:
    """Return the run whose winners are meant: where `run` judged a dispatch, that which it is made of."""
    folder = Path(run.facts.against).parent.parent  # of a proof: dispatch/RUN/original/FILE
    return folder.name if folder.parent.name == FOLDER else run.id


def _folder(store: Store, run: str) -> Path:
    return store.root / FOLDER / run


def _exit(proof: Proof) -> Exit:
    if proof.proven:
        return Exit.DONE
    return Exit.NONE_FOUND if proof.outcome in (Outcome.SLOWER, *FAULTY) else Exit.BUDGET
