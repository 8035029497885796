"""What a model is shown: the kernel part of the incumbent and the facts of a run, rendered from `prompts/optimizer.j2`.

Relies on the store for the facts, and on `templates.py`. Reference, held-out cases and
tolerances stay out: `parts.py` hides them in the source, and the bounds and held-out cases that a verdict's reason may
name are cut (`hiding.py`). It asks no model and reads no reply.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pgo_agent.agent import hiding, incumbent, moves, profile_record, static_rank, templates
from pgo_agent.agent.baseline import rate
from pgo_agent.agent.context import Context
from pgo_agent.agent.parts import kernel_part
from pgo_agent.agent.store import Candidate
from pgo_agent.sandbox.build import triton_version

TEMPLATE = "optimizer"
MOST_TRIED = 20  # lines on what was tried


@dataclass(frozen=True)
class Facts:
    """Everything that the template may use: plain values."""

    device: Mapping[str, Any]  # fields of sandbox.devices.Device
    triton: str  # version
    kernel: str  # the kernel part
    cases: Sequence[Mapping[str, Any]]  # name; shipped and tuned: ms, rate, unit, choice, how
    statics: Sequence[Mapping[str, Any]]  # of the incumbent, by case: static profile and occupancy
    tried: Sequence[str]  # a line each, newest last
    allowed_ops: Sequence[str] = ()  # torch ops that the launcher may use
    profile: Sequence[str] = ()  # the summaries of the incumbent's profile, a line each
    most_configs: int = moves.CARRIED


def render(facts: Facts) -> str:
    """The prompt."""
    values = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    return templates.render(TEMPLATE, mark=templates.fenced("kernel", facts.kernel), **values)


def prompt_hash() -> str:
    """SHA-256 of the template: which prompt a candidate came from."""
    return templates.digest(TEMPLATE)


# the facts of a run ---------------------------------------------------------------------------------------------------


def gather(ctx: Context, remarks: Sequence[str] = ()) -> Facts:
    """The facts as the store holds them. `remarks`: why replies of late were of no use."""
    base = ctx.baseline()
    hidden = [c.split("/", 1)[1] for c in base["held_out"]]
    tried = [_tried(c, hidden) for c in ctx.store.candidates(ctx.run.id) if c.verdict is not None]
    return Facts(
        device=asdict(ctx.device),
        triton=triton_version(ctx.builder.box.python),
        kernel=kernel_part(incumbent.source(ctx)),
        cases=[_case(ctx, base, case) for case in base["cases"]],
        statics=[_static(ctx, case, best) for case, best in incumbent.best_known(ctx, incumbent.name(ctx)).items()],
        tried=[*tried, *map(hiding.line, remarks)][-MOST_TRIED:],
        allowed_ops=base["allowed_ops"],
        profile=_profile(ctx),
    )


def _case(ctx: Context, base: Mapping[str, Any], case: str) -> dict[str, Any]:
    kind, name = case.split("/", 1)
    sides = {
        side: {k: base[side][case][k] for k in ("ms", "choice", "how")}
        | rate(ctx, base["work"][kind][name], base[side][case]["ms"])
        for side in ("shipped", "tuned")
    }
    return {"name": name, **sides}


def _static(ctx: Context, case: str, best: moves.Best) -> dict[str, Any]:
    kept = ("registers", "shared", "spill_store_bytes", "spill_load_bytes", "notes", "pipeline_depth")
    fits = static_rank.occupancy(best.static, best.config.get("num_warps", 4), ctx.device)
    choice = " ".join(f"{k}={v}" for k, v in best.config.items())
    return {k: best.static[k] for k in kept} | asdict(fits) | {"case": case.split("/", 1)[1], "choice": choice}


def _profile(ctx: Context) -> list[str]:
    """Every public case in short: words of passes, and names that stand in the kernel."""
    kept = profile_record.of(ctx.store, ctx.run.id, incumbent.name(ctx))
    said = (f"{k.case.split('/', 1)[1]}: {k.summary.text}" for k in kept if k.summary is not None)
    return [hiding.line(line) for text in said for line in text.splitlines() if line.strip()]


def _tried(c: Candidate, hidden: Collection[str]) -> str:
    """What came of a candidate. Of a failure on a held-out case no more than the stage is told."""
    reason = hiding.reason(c.reason or "", c.stage, hidden)
    return hiding.line(f"{c.move} ({hiding.line(c.rationale, 160)}): {c.verdict} in stage {c.stage}: {reason}")
