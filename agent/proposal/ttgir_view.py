"""Chooses the TTGIR text whose readable view a model is shown; its edit scripts refer to labels of that view.

It is the hottest kernel of the first public case of an incumbent, or of another built candidate, at the best known
configuration. Prompts and replies both get it from here, so that labels mean the same lines. It reads builds in the
content store, asks no model and judges nothing.
"""

from pgo_agent.agent.llm.replies.ttgir import Shown
from pgo_agent.agent.moves import workload
from pgo_agent.agent.moves.launch_sites import Config, numbers
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.build import ttgir_override
from pgo_agent.sandbox.bundle.documents import Manifest, PlanDocument
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.pseudocode.view import readable
from pgo_agent.sandbox.ttgir.tokens import Unreadable


def shown(ctx: Context, which: str) -> Shown | None:
    """Return what models are shown of `shipped` or a built candidate; None for a text that the reader refuses, and
    where torch operators alone run."""
    case = ctx.baseline().cases[0]
    bundle, label, config = _plan(ctx, which, case)
    manifest = ctx.store.contents.manifest(bundle)
    plan = manifest["plans"][case][label]
    if not any("kernel" in s for s in plan["steps"]):
        return None
    build = _hot(ctx, which, manifest, plan)
    text = ctx.store.contents.get(manifest["kernels"][build]["files"]["ttgir"], "ttgir").decode()
    try:
        module = reader.parse(text)
        view = readable(module)
    except Unreadable:
        return None
    return Shown(case, manifest["kernels"][build]["name"], build, _own(ctx, which, build), config, text, module, view)


def _plan(ctx: Context, which: str, case: str) -> tuple[str, str, Config]:
    """The bundle, label and configuration of the best known plan of a case."""
    if which == incumbent.SHIPPED:
        tuned = ctx.baseline().tuned[case]
        return tuned.bundle, tuned.choice, numbers(tuned.config)
    candidate = ctx.store.candidate(ctx.run.id, which)
    label, built = incumbent.chosen(ctx.store, candidate)[case], candidate.build
    return built.bundle, label, numbers(built.choice(case, label).config)


def _hot(ctx: Context, which: str, manifest: Manifest, plan: PlanDocument) -> str:
    """The hottest kernel; or the one that was replaced already, for a candidate replaces at most one."""
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
    keys = ctx.store.contents.manifest(replaced["bundle"])["kernels"].keys() if replaced["bundle"] else ()
    mine = ctx.store.contents.manifest(ctx.store.candidate(ctx.run.id, which).build.bundle)["kernels"]
    return next((k for k in keys if k not in mine), written)


def _replaced(ctx: Context, which: str) -> dict[str, str]:
    if which == incumbent.SHIPPED:
        return {}
    return ctx.store.candidate(ctx.run.id, which).build.replaced
