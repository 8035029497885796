"""Rule: a launch that may start early must wait for the launches before it before it touches their memory.

`launch_pdl` lets a kernel start while the one before it still runs (programmatic dependent launch). Only behind its
`griddepcontrol.wait` is the memory of that one complete (PTX, griddepcontrol). The wait covers the launch before and
what that launch itself waited for: a launch without a wait hides those before it from those behind it. Launches without
`launch_pdl`, and torch ops, start when all before them have ended.

Two touches of one storage are taken to overlap: offsets are not computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.gate.barriers import launches
from pgo_agent.sandbox.gate.evidence import tensors
from pgo_agent.sandbox.gate.synchronisation.finding import Finding, at
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir.dataflow import ANYTHING, Flow, says
from pgo_agent.sandbox.ttgir.tree import Block, Module

RULE = "dependent launch"


@dataclass(frozen=True)
class Use:
    """What a step of a plan does to one storage."""

    storage: int
    writes: bool
    waited: bool  # behind the step's wait for the launches before it
    where: str


@dataclass(frozen=True)
class Text:
    """One kernel of the plan, parsed."""

    name: str
    module: Module
    values: Flow
    early: bool  # launched with `launch_pdl`


def rule(plan: Mapping[str, Any], texts: Mapping[str, Text]) -> Iterator[Finding]:
    """Give what breaks the rule in one plan; `texts` has all of its kernels."""
    running: set[int] = set()  # steps that may still run when the next one starts
    done: list[Sequence[Use]] = []
    for n, step in enumerate(plan["steps"]):
        text = texts.get(step.get("kernel", ""))
        uses = list(_uses(step, text)) if text else list(_op(step))
        early = text is not None and text.early
        before = {*running, n - 1} if early and n else set()
        after = running if early and n else set()  # the wait is for the step before, and for what that one waited for
        for use in uses:
            yield from _met(use, after if use.waited else before, done, text)
        if early and not n and text:
            yield from _first(uses, text)
        running = after if text is not None and _waits(text) else before
        done.append(uses)


def _met(use: Use, running: set[int], done: Sequence[Sequence[Use]], text: Text | None) -> Iterator[Finding]:
    for n in sorted(running):
        other = next((o for o in done[n] if _overlap(o, use)), None)
        if other and text:
            does, did = "writes" if use.writes else "reads", "writes" if other.writes else "reads"
            sentence = (
                f"{text.name} {does} at {use.where} what {other.where} {did}, and is launched with launch_pdl: "
                f"nothing there makes it wait for that launch"
            )
            yield Finding(Verdict.RACE, sentence, RULE)
            return


def _overlap(a: Use, b: Use) -> bool:
    return (a.writes or b.writes) and (a.storage == b.storage or ANYTHING in (a.storage, b.storage))


def _first(uses: Sequence[Use], text: Text) -> Iterator[Finding]:
    """Give a finding if the first launch does not wait: something unknown made the inputs."""
    use = next((u for u in uses if not u.waited), None)
    if use:
        sentence = (
            f"{text.name} is launched with launch_pdl and does not wait before {use.where} for what its caller launched"
        )
        yield Finding(Verdict.UNDECIDED, sentence, RULE)


def _uses(step: Mapping[str, Any], text: Text) -> Iterator[Use]:
    storage_of = storages(step)
    waited = behind(text.module)
    for touch in text.values.touches():
        where = f"{at(text.module, touch.op)} of {text.name}"
        of = {storage_of.get(r, ANYTHING) for r in touch.roots}
        behind_it = id(touch.op) in waited
        for storage in of:
            yield from (Use(storage, w, behind_it, where) for w in {not touch.reads, touch.writes})


def _op(step: Mapping[str, Any]) -> Iterator[Use]:
    """Give the uses of a torch op: it may read and write all its tensors."""
    for tensor in tensors(step):
        yield Use(tensor["t"], True, True, str(step.get("op", "")).removesuffix(".default"))


def storages(step: Mapping[str, Any]) -> dict[int, int]:
    """Return the storage of each tensor argument, by the argument's position."""
    result = {}
    for n, v in enumerate(launches.values(step["signature"], step["args"])):
        tensor = v.get("desc", v) if isinstance(v, Mapping) else {}
        if "t" in tensor:
            result[n] = tensor["t"]
    return result


def behind(module: Module) -> set[int]:
    """Return the identities of the operations that run after the kernel's wait on every path."""
    operations: set[int] = set()
    _walk(module.kernel.regions[0].blocks[0], False, operations)
    for block in module.kernel.regions[0].blocks[1:]:  # after a jump, with the state at the end of the first block
        _walk(block, _walk(module.kernel.regions[0].blocks[0], False, set()), operations)
    return operations


def _waits(text: Text) -> bool:
    return _walk(text.module.kernel.regions[0].blocks[0], False, set())


def _walk(block: Block, waited: bool, operations: set[int]) -> bool:
    """Note what runs behind a wait; return whether the block's end does."""
    for op in block.ops:
        if waited:
            operations.add(id(op))
        ends = [_walk(b, waited, operations) for region in op.regions for b in region.blocks]
        both = op.name == "scf.if" and len(ends) == 2 and all(ends)
        waited = waited or both or says(op, "griddepcontrol.wait")
    return waited
