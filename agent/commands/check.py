"""`check`: the whole gate on a file that somebody gives, as a run with that one candidate.

The file may be a whole copy of the target or its kernel part alone (only the kernel part may differ), or TTGIR that
replaces the TTGIR of one kernel. Relies on `kernel_part.py` and `replies.py` to cut and to merge. It reads texts and
never runs them: a given file is untrusted code, so its run builds and judges it in the box, or not at all.
"""

import ast
from pathlib import Path

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.kernel_part import blocks, hidden
from pgo_agent.agent.llm.replies import TOO_DEEP, BadReply, merge
from pgo_agent.agent.run import target_file, ttgir_files
from pgo_agent.agent.run.events import Emit
from pgo_agent.agent.run.facts import GivenFile
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.target import CONTRACT, Target

_FORMS = "give a copy of the target with another kernel part, the kernel part alone, or a kernel's .ttgir"
_ONLY_THE_KERNEL_PART = (
    "only the kernel part is judged: leave these as the target has them, or change the target itself"
)


def start(file: Path, of: Path, asked: RunSettings, store: Store, emit: Emit) -> Exit:
    """Make a new run that judges `file` as a candidate for the target `of`. Raises Faults before there is a run."""
    subject = target.read(target_file.locate(of))
    candidate = read(file, subject)
    box.choose(asked.sandbox, asked.python).admit(untrusted=True)
    return optimize.start(subject.path, asked, store, emit, [candidate])


# the file -------------------------------------------------------------------------------------------------------------


def read(file: Path, subject: Target) -> GivenFile:
    """Return what a run stores of a given file: its name, its kind, and the target's text with its kernel part.

    A .ttgir file is stored as it is. Raises UsageFault when another file is not Python, has no kernel(), or has another
    contract than the target.
    """
    return of_text(str(file), target.text(file), subject)


def of_text(name: str, text: str, subject: Target, advice: str = _ONLY_THE_KERNEL_PART) -> GivenFile:
    """Return the same of a text; `name` is that of its file. `advice`: for another contract. Raises UsageFault as
    `read` does."""
    if name.endswith(".ttgir"):
        ttgir_files.at(text)
        return GivenFile(name, "ttgir", text)
    target.parse(text, name)
    try:
        return GivenFile(name, "source", _candidate(name, text, subject, advice))
    except BadReply as e:
        raise UsageFault(f"{name}: {e}", _FORMS) from None
    except RecursionError:
        raise UsageFault(f"{name}: {TOO_DEEP}", "nest it less deeply") from None


def _candidate(file: str, text: str, subject: Target, advice: str) -> str:
    names = set[str]().union(*(b.names for b in blocks(text)))
    if "kernel" not in names:
        raise UsageFault(f"{file} does not define kernel()", _FORMS)
    differing = _differing(text, subject)
    if differing:
        raise UsageFault(f"{file} says something else than {subject.contract_path} of: {', '.join(differing)}", advice)
    return text if target.same_contract(text, subject.source) else merge(subject.source, text)


def _differing(text: str, subject: Target) -> list[str]:
    """Return names of the contract, and of helpers that only it uses, whose statements differ from the target's."""
    parts = blocks(subject.contract)
    helpers = set[str]() if subject.sidecar else set[str]().union(*(parts[i].names for i in hidden(parts)))
    wanted, present = (_statements(t, CONTRACT | helpers) for t in (subject.contract, text))
    whole = bool(present.keys() & CONTRACT) and not subject.sidecar
    return sorted(n for n in {*present, *(wanted if whole else ())} if present.get(n) != wanted.get(n))


def _statements(text: str, names: set[str]) -> dict[str, list[str]]:
    """Return the statements that define each of the names, as dumped syntax trees."""
    by_name: dict[str, list[str]] = {}
    for block in blocks(text):
        for name in block.names & names:
            by_name.setdefault(name, []).extend(ast.dump(n) for n in block.nodes)
    return by_name


# its run --------------------------------------------------------------------------------------------------------------
