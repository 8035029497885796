"""Stage inspect: reports facts of a build, and for a TTGIR text the kind of its edit.

An edit that keeps the multiset of arithmetic ops is `schedule-only`: its results must have the same bits as those of
the kernel's own text. Spills and serialized wgmma are reported but not refused: they only cost time, which is measured.
"""

import re
from collections import Counter
from collections.abc import Mapping

from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.evidence import Evidence, Side
from pgo_agent.sandbox.gate.reason import plain, quoted
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir import normalize, reader, types
from pgo_agent.sandbox.ttgir.tree import Module, Op

SCHEDULE, ARITHMETIC, SAME = "schedule-only", "arithmetic", "unchanged"
_COMPUTES = (
    "arith.",
    "math.",
    "tt.dot",
    "ttng.warp_group_dot",
    "ttng.tc_gen5_mma",
    "tt.reduce",
    "tt.scan",
    "tt.extern",
)
_WAITS = ("ttng.warp_group_dot_wait",)
_SCHEDULING = frozenset({"isAsync", "async_task_id"})
_ALIAS = re.compile(r"#\w+")


def stage(candidate: Side, _original: Side) -> Evidence:
    """Return `no_change` for the kernel's own TTGIR text, else the facts of the build."""
    statics = [candidate.statics[k] for k in candidate.launched]
    if not statics:
        covered = coverage.of(configurations=sum(map(len, candidate.plans.values())))
        return Evidence("inspect", None, plain("torch operators alone, no kernel"), coverage=covered)
    registers, spills = (max(s[name] for s in statics) for name in ("registers", "spill_store_bytes"))
    notes = sorted({n for s in statics for n in s["notes"]})
    facts = {"registers": registers, "spill_store_bytes": spills, "notes": notes}
    text = ", ".join((f"{registers} registers", f"{spills} bytes of spills" if spills else "no spills", *notes))
    if not candidate.replaced:
        return Evidence("inspect", None, quoted(text), found=facts, coverage=coverage.of(kernels=len(statics)))
    if candidate.replaced["by"] not in candidate.launched:
        return Evidence("inspect", Verdict.BUILD_ERROR, plain("the text does not compile, so that nothing launches it"))
    kind = _kind(candidate)
    if kind == SAME:
        return Evidence(
            "inspect", Verdict.NO_CHANGE, plain("it is the kernel's own text, or compiles to its very code")
        )
    facts |= {"edit": kind}
    return Evidence(
        "inspect", None, quoted(f"{kind} edit; {text}"), found=facts, coverage=coverage.of(kernels=len(statics))
    )


def _kind(candidate: Side) -> str:
    original = reader.parse(candidate.contents.get(candidate.replaced["ttgir"], "ttgir").decode())
    edited = reader.parse(candidate.texts[candidate.replaced["by"]])
    same = candidate.replaced["code_id"] == candidate.replaced["new_code_id"]
    if same or normalize.digest(original) == normalize.digest(edited):
        return SAME
    return SCHEDULE if arithmetic(original) == arithmetic(edited) else ARITHMETIC


def arithmetic(module: Module) -> Counter[str]:
    """Count the ops that make floating-point values, by op, types and attributes."""
    return Counter(
        _describe(op, module.aliases)
        for op in module.walk()
        if op.name.startswith(_COMPUTES) and op.name not in _WAITS and any(map(_floats, op.result_types))
    )


def _describe(op: Op, aliases: Mapping[str, str]) -> str:
    """Describe an op without its values, with layouts spelled out, because their names may differ."""
    constant = str(op).partition("=")[2].partition(" loc(")[0] if op.name == "arith.constant" else ""
    attributes = sorted((k, v) for k, v in op.attributes.items() if k not in _SCHEDULING)
    text = f"{op.name} {op.words} {constant} {attributes} {op.operand_types} {op.result_types}"
    return _ALIAS.sub(lambda m: aliases.get(m[0], m[0]), text)


def _floats(text: str) -> bool:
    shaped = types.shaped(text)
    element = shaped.element if shaped else text
    return element.startswith(("f", "bf", "tf"))
