"""Collects the facts of a prompt from the record of a run: the incumbent, its profile and code, attempts and moves.

Profiles and builds are in the content store already, so nothing is computed twice. The same record gives the same
facts.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pgo_agent.agent import moves
from pgo_agent.agent import text as printable
from pgo_agent.agent.evaluation.known_time import rate
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.moves import launch_config
from pgo_agent.agent.moves.launch_sites import sites
from pgo_agent.agent.proposal import case_dispatch, lessons, ttgir_view
from pgo_agent.agent.proposal.predicates import Inputs
from pgo_agent.agent.proposal.prompt import applicable_moves, attempts, cards, hot_loop, profile_told
from pgo_agent.agent.proposal.prompt.inputs import Code, Facts
from pgo_agent.agent.proposal.prompt.layout import prompt
from pgo_agent.agent.proposal.prompt.sections import TooLong
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import shipped_results
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.gluon_api import api

_STATIC = ("registers", "shared", "spill_store_bytes", "spill_load_bytes", "notes", "pipeline_depth")
MOST_QUOTED = 8  # lines of the source


def check(source: str, device: Device, python: str, budget: int | None) -> None:
    """Raise UsageFault if no prompt about a file fits its budget, whatever is left out: checked before a run begins."""
    try:
        prompt(Facts(asdict(device), triton_version(python), kernel_part(source), budget=budget))
    except TooLong as e:
        raise UsageFault(str(e), f"give --prompt-tokens {e.needed} or more") from None


def gather(ctx: Context, remarks: Sequence[str] = ()) -> Facts:
    """Return the facts from the store. `remarks`: why recent replies were of no use."""
    base, which, inputs = ctx.baseline(), steering.start(ctx), case_dispatch.inputs(ctx)
    source, best = incumbent.python(ctx, which), incumbent.best_known(ctx, which)
    told = profile_told.told(ctx, which, best)
    tried, guidance = _attempts(ctx, base), steering.guidance(ctx)
    statics = [s for b in best.values() for s in (b.profiles.values() or [b.static])]
    apply, skipped = ([], []) if ctx.settings.controlled else applicable_moves.lines(ctx)
    gluon = cards.asks_for_gluon(told.by_case, statics, ctx.device.arch)
    return Facts(
        device=asdict(ctx.device),
        triton=triton_version(ctx.builder.box.python),
        kernel=kernel_part(source),
        cases=[_case(ctx, base, case) | {"arguments": _arguments(inputs[case])} for case in base.cases],
        statics=told.statics,
        tried=attempts.lines(tried, remarks),
        allowed_ops=base.allowed_ops,
        in_place=ctx.target.in_place,
        profile=told.lines,
        quoted=_quoted(source, told.named),
        code=_code(ctx, which),
        ttgir=bool(tried or remarks or guidance),  # of 180 first candidates one was TTGIR, which could not be read
        moves=apply,
        skipped=skipped,
        lessons=lessons.lines(ctx),
        guidance=guidance,
        cards=cards.chosen(told.defects, statics, kernel_part(source), ctx.device.arch),
        gluon=api(Workbench(ctx.builder)) if gluon else (),
        launch=_launch(source, best),
        budget=ctx.settings.prompt_tokens,
    )


# times and builds -----------------------------------------------------------------------------------------------------


def _case(ctx: Context, base: Baseline, case: str) -> JsonObject:
    best = {side: base.best(side)[case] for side in ("shipped", "tuned")}
    sides = dict[str, JsonObject]()
    for side, p in best.items():
        reached, unit = rate(ctx, base.work_of(case), p.time)
        sides[side] = {"ms": p.ms, "choice": p.choice, "how": str(p.how), "rate": reached, "unit": unit}
    return {"name": case.split("/", 1)[1], **sides}


def _arguments(inputs: Inputs) -> str:
    """The arguments of kernel() in a case: dtype and shape, strides unless contiguous, plain values."""
    return ", ".join(_argument(name, x) for name, x in inputs.items())


def _argument(name: str, x: object) -> str:
    if not isinstance(x, Mapping):
        return f"{name}={x}"
    return f"{name}={float.fromhex(x['f'])}" if "f" in x else f"{name} {_tensor(x)}"


def _tensor(x: Mapping[str, Any]) -> str:
    size, stride = list(x.get("size", ())), list(x.get("stride", ()))
    packed = [math.prod(size[i + 1 :]) for i in range(len(size))]
    other = f" strides {stride}" if any(s != p for s, p, n in zip(stride, packed, size, strict=False) if n != 1) else ""
    return f"{x.get('dtype', '')}{size}{other}"


def _launch(source: str, best: Mapping[str, moves.Best]) -> str:
    """The best known configuration of the first launch in the form of a reply; empty if nothing can be varied."""
    launches = sites(source)
    for site in launches:
        bases = launch_config.bases_of(site, launches, best.values())
        if bases and bases[0].config:
            configs = [dict(bases[0].config)]
            return json.dumps({site.kernel: configs} if len({s.kernel for s in launches}) > 1 else configs)
    return ""


def _quoted(source: str, named: Sequence[int]) -> list[tuple[int, str]]:
    """The lines of the kernel part that the profile names."""
    lines, part = source.splitlines(), set(map(str.strip, kernel_part(source).splitlines()))
    numbered = ((n, lines[n - 1].strip()) for n in named if 0 < n <= len(lines))
    return [(n, printable.line(text, 160)) for n, text in numbered if text and text in part][:MOST_QUOTED]


# code -----------------------------------------------------------------------------------------------------------------


def _code(ctx: Context, which: str) -> Code | None:
    """The hot loop of the kernel that edits of TTGIR are about."""
    shown = ttgir_view.shown(ctx, which)
    if shown is None:
        return None
    text, weights = profile_told.code(ctx, shown, which)
    labels = hot_loop.chosen(shown.module, shown.view, weights)
    whole = shown.text if len(shown.text) <= hot_loop.WHOLE else ""
    excerpt = "" if whole else hot_loop.excerpt(shown.module, shown.view, weights)
    case, choice = shown.case.split("/", 1)[1], launch_config.said(shown.config) or "its only configuration"
    return Code(shown.name, case, choice, hot_loop.rows(text, labels), excerpt, whole)


# what was tried -------------------------------------------------------------------------------------------------------


def _attempts(ctx: Context, base: Baseline) -> list[attempts.Attempt]:
    hidden = [c.split("/", 1)[1] for c in base.held_out]
    done = [c for c in ctx.store.candidates(ctx.run.id) if c.verdict is not None]
    gains = {c.id: incumbent.gains(ctx.store.evidence(ctx.run.id, c.id)) for c in done}
    return [attempts.attempt(c, hidden, gains[c.id], shipped_results.judged(c.source, ctx.device.name)) for c in done]
