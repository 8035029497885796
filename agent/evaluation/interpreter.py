"""What Triton's interpreter says of a source, without a GPU: the one way in which a run asks it.

Tells it which kernels the plans of the public cases launch, for right is what ran alone, and how long it may take. What
takes long says how far it is.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.gate.verdict import Judgement

PUBLIC = "CASES/"


def judged(ctx: Context, source: str, bundle: str = "", foreign: bool = False) -> Judgement:
    """The verdict on a source. `bundle`: its build; without one nothing is known of the kernels that it launches."""
    kernels = launched(ctx.store.contents.manifest(bundle)) if bundle else []
    seconds = ctx.settings.interpreting
    return ctx.cpu.verdict("check", source=source, foreign=foreign, seconds=seconds, kernels=kernels)


def attach(ctx: Context) -> None:
    """Has a run tell how far the interpreter and the compiler are, while they work on something long."""

    def heard(stage: str) -> None:
        _, _, far = stage.partition("interpreter: ")
        if far:
            told(f"in Triton's interpreter: {far}")

    def told(said: str) -> None:
        ctx.emit("progress", said=said)

    ctx.cpu.on_stage = heard
    ctx.builder = replace(ctx.builder, told=told)


def launched(manifest: Mapping[str, Any]) -> list[str]:
    """Names of the kernels that the plans of the public cases launch."""
    plans = (p for case, labelled in manifest["plans"].items() if case.startswith(PUBLIC) for p in labelled.values())
    keys = dict.fromkeys(s["kernel"] for plan in plans for s in plan["steps"] if "kernel" in s)
    return list(dict.fromkeys(str(manifest["kernels"][k]["name"]) for k in keys))
