"""A kernel's TTGIR as pseudo-code, with what each line costs beside it.

Names and source lines come from a trace with locations, costs from the static profile. Says nothing of time.
"""

from collections import Counter

from pgo_agent.sandbox.profile import passes, static
from pgo_agent.sandbox.profile.backend import Subject, Workbench
from pgo_agent.sandbox.profile.report import Problem, StaticProfile
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.readable.view import Readable, readable


@passes.cpu(version=2)
def pseudocode(bench: Workbench, subject: Subject) -> str:
    """The text, at most 120 columns wide: beside each line the instructions that it became. Empty for a kernel that
    does not compile. Raises Unreadable for a TTGIR that Triton did not print, and what `static.static` raises.
    """
    profile = static.static(bench, subject, "nvidia")
    if isinstance(profile, Problem):
        return ""
    files = (bench.shelf.build(subject.build) or {})["kernel"]["files"]
    module = reader.parse(bench.shelf.get(files["ttgir"], "ttgir").decode())
    located = reader.parse(subject.origin.located.read(bench.shelf).decode()) if subject.origin else None
    view = readable(module, located)
    return view.text(_costs(view, profile))


def _costs(view: Readable, profile: StaticProfile) -> dict[str, str]:
    """Label -> instructions."""
    labels, found = view.labels(), Counter[str]()
    for line in profile.lines:
        if label := labels.get(line.line):
            found[label] += line.instructions
    return {label: f"{count} instr" for label, count in found.items()}
