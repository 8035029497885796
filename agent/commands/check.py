"""`check`: the whole gate on a file that somebody gives, as a run with that one candidate.

The file may be a whole copy of the target or its kernel part alone (only the kernel part may differ), or TTGIR that
takes the place of one kernel's own. Relies on `kernel_part.py` and `replies.py` to cut and to merge. It reads texts and
never runs them: a given file is foreign code, so its run builds and judges it in the box, or not at all.
"""

import ast
from pathlib import Path

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.kernel_part import blocks, hidden
from pgo_agent.agent.llm.replies import TOO_DEEP, BadReply, merge
from pgo_agent.agent.run import target_file, ttgir_files
from pgo_agent.agent.run.context import Emit
from pgo_agent.agent.run.facts import GivenFile
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.target import CONTRACT, Target

_FORMS = "give a copy of the target with another kernel part, the kernel part alone, or a kernel's .ttgir"


def start(file: Path, of: Path, asked: RunSettings, store: Store, emit: Emit) -> Exit:
    """Make a new run that judges `file` as a candidate for the target `of`. Raises Faults before there is a run."""
    found = target.read(target_file.locate(of))
    given = read(file, found)
    box.choose(asked.sandbox, asked.python).admit(untrusted=True)
    return optimize.start(found.path, asked, store, emit, [given])


# the file -------------------------------------------------------------------------------------------------------------


def read(file: Path, found: Target) -> GivenFile:
    """Return what a run keeps of a given file: its name, its kind, and the target's text with its kernel part.

    A .ttgir file is kept as it is. Raises UsageFault when another one is no Python, has no kernel(), or says something
    else of the contract than the target.
    """
    text = target.text(file)
    if file.suffix == ".ttgir":
        ttgir_files.at(text)
        return GivenFile(str(file), "ttgir", text)
    target.parse(text, str(file))
    try:
        return GivenFile(str(file), "source", _candidate(file, text, found))
    except BadReply as e:
        raise UsageFault(f"{file}: {e}", _FORMS) from None
    except RecursionError:
        raise UsageFault(f"{file}: {TOO_DEEP}", "nest it less deeply") from None


def _candidate(file: Path, text: str, found: Target) -> str:
    brought = set[str]().union(*(b.names for b in blocks(text)))
    if "kernel" not in brought:
        raise UsageFault(f"{file} does not define kernel()", _FORMS)
    differing = _differing(text, found)
    if differing:
        raise UsageFault(
            f"{file} says something else than {found.contract_path} of: {', '.join(differing)}",
            "only the kernel part is judged: leave these as the target has them, or change the target itself",
        )
    return text if target.same_contract(text, found.source) else merge(found.source, text)


def _differing(text: str, found: Target) -> list[str]:
    """Names of the contract, and of what serves it alone, by other statements than the target's."""
    own = blocks(found.contract)
    served = set[str]() if found.sidecar else set[str]().union(*(own[i].names for i in hidden(own)))
    wanted, brought = (_statements(t, CONTRACT | served) for t in (found.contract, text))
    whole = bool(brought.keys() & CONTRACT) and not found.sidecar
    return sorted(n for n in {*brought, *(wanted if whole else ())} if brought.get(n) != wanted.get(n))


def _statements(text: str, names: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for block in blocks(text):
        for name in block.names & names:
            found.setdefault(name, []).extend(ast.dump(n) for n in block.nodes)
    return found


# its run --------------------------------------------------------------------------------------------------------------
