"""Refuses an autotuner that would try its configurations on memory which the kernel adds to.

`triton.autotune` launches a kernel many times at the first call. A step that is done in place is then done as often,
and so is an atomic addition to zeros, unless the tuner restores what the kernel reads and writes (`restore_value`,
`reset_to_zero`). The judge cannot see it: it launches each configuration by itself. What the kernel as shipped does is
its author's matter. Reads text and plans; runs nothing.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from pgo_agent.agent.moves.analysis.launched import named, parameters
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.gate import plan_rules
from pgo_agent.sandbox.gate.evidence import Side, side, tensors
from pgo_agent.sandbox.gate.reason import quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.dataflow import Flow
from pgo_agent.sandbox.ttgir.tokens import Unreadable

RESTORES = ("restore_value", "reset_to_zero")


def refused(ctx: Context, candidate: Candidate) -> Judgement | None:
    """Return the verdict on a candidate whose first call would change inputs several times; else None."""
    names = ctx.target.in_place
    if candidate.kind == "ttgir" or not candidate.build.ok:
        return None
    ours, theirs = tuners(candidate.source), tuners(ctx.target.source)
    loose = {n: c for n, c in ours.items() if n not in theirs or _restored(c) != _restored(theirs[n])}
    if not loose:
        return None
    contents = ctx.store.contents
    built = side(contents, contents.manifest(candidate.build.bundle), in_place=names)
    for kernel, changed in changing(built, loose, candidate.source):
        words = (
            f"{kernel} is autotuned and changes {changed}: at the first call it would do so with every "
            "configuration, one after another; give triton.autotune restore_value or reset_to_zero with these arguments"
        )
        return Judgement(Verdict.REJECTED, "screen", quoted(words))
    return None


def tuners(source: str) -> dict[str, ast.Call]:
    """Return the autotuners of several configurations by the name of the kernel that they decorate, or are called
    with; none whose configurations or hooks may restore by themselves what only a run tells."""
    tree = parsing.module(source)
    return {kernel: call for kernel, call in _tuned(tree, _names(tree)) if _tries_several(call)}


def _names(tree: ast.Module) -> set[str]:
    """Return what triton.autotune is called in a file, without what stands before a dot."""
    imported = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom))
    return {"autotune"} | {a.asname for n in imported for a in n.names if a.name == "autotune" and a.asname}


def _tuned(tree: ast.Module, names: set[str]) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=kernel, decorator_list=decorators):
                calls = (d for d in decorators if isinstance(d, ast.Call))
                yield from ((kernel, d) for d in calls if named(d).rpartition(".")[2] in names)
            case ast.Call(func=ast.Call() as tuner, args=[given, *_]) if named(tuner).rpartition(".")[2] in names:
                yield from ((n.id, tuner) for n in ast.walk(given) if isinstance(n, ast.Name))


def _tries_several(call: ast.Call) -> bool:
    configs = next((k.value for k in call.keywords if k.arg == "configs"), next(iter(call.args), None))
    if isinstance(configs, ast.List) and len(configs.elts) == 1:
        return False
    hooks = [k.value for inner in ast.walk(call) if isinstance(inner, ast.Call) for k in inner.keywords
             if k.arg == "pre_hook"]  # fmt: skip
    return all(isinstance(getattr(h, "body", h), ast.Constant) for h in hooks)  # None, or one that does nothing


def changing(built: Side, loose: Mapping[str, ast.Call], source: str) -> Iterator[tuple[str, str]]:
    """Give such kernels that read and write what their tuner does not restore, with that: an input in place, or memory
    that was written before the launch."""
    restored = {n: _restored(call) for n, call in loose.items()}
    names = {n: _parameters(source, n) for n in loose}
    for plan in (p for plans in built.plans.values() for p in plans):
        held = {s: f"{n} in place" for s, n in plan_rules.held(plan, built.in_place).items()}
        for step in plan["steps"]:
            if "kernel" not in step:
                held |= {t["t"]: f"what {step['op']} wrote before" for t in tensors(step.get("out", []))}
                continue
            name = built.manifest["kernels"][step["kernel"]]["name"]
            safe = restored.get(name, frozenset())
            if name not in loose or safe is None:
                continue
            kept = {t["t"] for p, a in zip(names[name], step["args"], strict=False) if p in safe for t in tensors(a)}
            for storage in _read_and_written(built.texts[step["kernel"]], step) - kept:
                if storage in held:
                    yield name, held[storage]


def _restored(call: ast.Call) -> frozenset[str] | None:
    """Return the arguments that a tuner restores; None where only a run tells."""
    names = set[str]()
    for keyword in (k for k in call.keywords if k.arg in RESTORES):
        try:
            names.update(ast.literal_eval(keyword.value))
        except (ValueError, TypeError):
            return None
    return frozenset(names)


def _parameters(source: str, name: str) -> list[str]:
    functions = (n for n in ast.walk(parsing.module(source)) if isinstance(n, ast.FunctionDef) and n.name == name)
    return [p for f in functions for p in parameters(f)]


def _read_and_written(ttgir: str, step: Mapping[str, Any]) -> set[int]:
    """Return the storages that a launch reads and writes; where its text is not clear, all that it is given."""
    given = [t["t"] for t in tensors(step["args"])]
    try:
        flow = Flow(reader.parse(ttgir))
    except Unreadable:
        return set(given)
    if flow.pointers != len(given):
        return set(given)
    return {given[i] for i in flow.stored} & {given[i] for i in flow.loaded}
