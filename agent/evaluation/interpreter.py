"""Checks a source in Triton's interpreter, without a GPU: the one way in which a run uses it.

It passes on which kernels the plans of the public cases launch, as only these are checked, and the time limit. Long
work reports its progress.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.gate.coverage import PUBLIC
from pgo_agent.sandbox.gate.verdict import Judgement
from pgo_agent.sandbox.judge.questions import CHECK_SECONDS, Check


def judged(ctx: Context, source: str, bundle: str = "", untrusted: bool = False) -> Judgement:
    """Return the verdict on a source. `bundle`: id of its build; without it, its kernels are unknown."""
    kernels = launched(ctx.store.contents.manifest(bundle)) if bundle else []
    return ctx.cpu.verdict(Check(source, untrusted, ctx.settings.interpreting or CHECK_SECONDS, tuple(kernels)))


def attach(ctx: Context) -> None:
    """Make a run report the progress of the interpreter and the compiler during long work."""

    def heard(stage: str) -> None:
        _, _, far = stage.partition("interpreter: ")
        if far:
            report(f"in Triton's interpreter: {far}")

    def report(text: str) -> None:
        ctx.emit("progress", said=text)

    ctx.cpu.on_stage = heard
    ctx.builder = replace(ctx.builder, report=report)


def launched(manifest: Mapping[str, Any]) -> list[str]:
    """Return the names of the kernels that the plans of the public cases launch."""
    plans = (p for case, labelled in manifest["plans"].items() if case.startswith(PUBLIC) for p in labelled.values())
    keys = dict.fromkeys(s["kernel"] for plan in plans for s in plan["steps"] if "kernel" in s)
    return list(dict.fromkeys(str(manifest["kernels"][k]["name"]) for k in keys))
