"""The kernel text whose readable view models are shown, and which their edit scripts name the labels of.

Of a run's incumbent (or any candidate that was built): its first public case, in the best known configuration, the
kernel that does the work. Prompts show the view of it and replies are applied to it, both by way of here: else labels
would mean other lines. It reads builds in the content store, asks nobody and judges nothing.
"""

from typing import Any

from pgo_agent.agent.llm.replies.ttgir import Shown
from pgo_agent.agent.moves import workload
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.build import ttgir_override
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.pseudocode.view import readable
from pgo_agent.sandbox.ttgir.tokens import Unreadable


def shown(ctx: Context, which: str) -> Shown | None:
    """What models are shown of `shipped` or a candidate that was built; None for a text that our reader refuses."""
    case = ctx.baseline().cases[0]
    bundle, label, config = _plan(ctx, which, case)
    manifest = ctx.store.contents.manifest(bundle)
    build = _hot(ctx, which, manifest, manifest["plans"][case][label])
    text = ctx.store.contents.get(manifest["kernels"][build]["files"]["ttgir"], "ttgir").decode()
    try:
        module = reader.parse(text)
        view = readable(module)
    except Unreadable:
        return None
    return Shown(case, manifest["kernels"][build]["name"], build, _own(ctx, which, build), config, text, module, view)


def _plan(ctx: Context, which: str, case: str) -> tuple[str, str, Config]:
    """Bundle, label and configuration of the best known plan of a case."""
    if which == incumbent.SHIPPED:
        tuned = ctx.baseline().tuned[case]
        return tuned.bundle, tuned.choice, tuned.config
    candidate = ctx.store.candidate(ctx.run.id, which)
    label, built = incumbent.chosen(ctx.store, candidate)[case], candidate.build
    return built.bundle, label, built.choice(case, label).config


def _hot(ctx: Context, which: str, manifest: dict[str, Any], plan: dict[str, Any]) -> str:
    """The kernel that does the work; the one that was replaced already, for a candidate replaces no two."""
    replaced = _replaced(ctx, which).get("by", "")
    launched: list[str] = [s["kernel"] for s in plan["steps"] if "kernel" in s]
    if replaced in launched:
        return replaced
    statics = {k: (ctx.store.contents.build(k) or {})["static"] for k in launched}
    hot = workload.hardest([plan], manifest["kernels"], statics)[0]
    return next(k for k in launched if manifest["kernels"][k]["name"] == hot)


def _own(ctx: Context, which: str, build: str) -> str:
    """The key of the launcher's own build of a kernel."""
    replaced = _replaced(ctx, which)
    if replaced.get("by") != build:
        return build
    written = ttgir_override.named(ctx.store.candidate(ctx.run.id, which).source)
    own = ctx.store.contents.manifest(replaced["bundle"])["kernels"].keys() if replaced["bundle"] else ()
    mine = ctx.store.contents.manifest(ctx.store.candidate(ctx.run.id, which).build.bundle)["kernels"]
    return next((k for k in own if k not in mine), written)


def _replaced(ctx: Context, which: str) -> dict[str, str]:
    if which == incumbent.SHIPPED:
        return {}
    return ctx.store.candidate(ctx.run.id, which).build.replaced
