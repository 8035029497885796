"""What is profiled of a run: each public case of a candidate, at its best known configuration.

It takes the passes of one; `record/profiles.py` keeps what they say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pgo_agent.agent.moves import launch_config
from pgo_agent.agent.moves.launch_sites import Config, in_place, sites
from pgo_agent.agent.profile.case_profile import CaseProfile, Choosing, Means, Wanted, case_profile
from pgo_agent.agent.profile.pass_runner import GpuBudget
from pgo_agent.agent.run import incumbent, profile_visibility, provenance
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.sandbox.profile.kernel_profile import PassName

WHY = "the best known of this run"
LAST = frozenset({PassName.STATIC, PassName.TIMELINE})  # what a report shows: nothing is proposed by it
ENOUGH = "it could lead to nothing: all candidates of the budget were proposed"


def take(ctx: Context, w: Wanted, gpu: GpuBudget, at_once: int, choose: Choosing, last: bool = False) -> CaseProfile:
    """What the passes say, `at_once` cases side by side. `last`: nothing will be proposed by it. Raises what passes
    raise.
    """
    which, builder = ctx.settings.profile_visibility, replace(ctx.builder, cores=max(1, ctx.builder.cores // at_once))
    means = Means(builder, gpu, profile_visibility.passes(which), choose)
    if last and which is ProfileVisibility.ALL:
        means = replace(means, passes=LAST, unwanted=ENOUGH)
    return profile_visibility.cut(case_profile(means, w), which)


def wanted(ctx: Context, which: str) -> list[Wanted]:
    """What to profile of `shipped` or a candidate: each public case at its best known configuration."""
    builds, foreign = _builds(ctx, which)
    configs = {c: b.config for c, b in incumbent.best_known(ctx, which).items()}
    return [
        Wanted(text, *builds[case], WHY, foreign, tuple(cases))
        for text, cases in texts(incumbent.python(ctx, which), configs).items()
        for case in cases
    ]


def _builds(ctx: Context, which: str) -> tuple[dict[str, tuple[str, str, str]], bool]:
    """Case -> bundle, case and label; and whether somebody else wrote it."""
    if which == incumbent.SHIPPED:
        return {c: (p.bundle, c, p.choice) for c, p in ctx.baseline().tuned.items()}, False
    candidate = ctx.store.candidate(ctx.run.id, which)
    bundle, labels = candidate.build.bundle, incumbent.chosen(ctx.store, candidate)
    return {c: (bundle, c, labels[c]) for c in ctx.baseline().cases}, provenance.foreign(ctx, candidate)


def texts(source: str, configs: Mapping[str, Config]) -> dict[str, list[str]]:
    """Texts that hold few configurations beside the wanted ones, each with its cases: a trace takes all that they hold.

    Lines stay where they were: they are told of the source.
    """
    made = dict[str, list[str]]()
    for case, config in configs.items():
        text = launch_config.placed(source, config)
        found = sites(text)
        tuned = [s for s in found if s.autotuned]
        if len(tuned) == 1 and not tuned[0].refused:
            own = (launch_config.config_of(tuned[0], found, c) for c in configs.values())
            text = in_place(text, tuned[0], _unique(c for c in own if c is not None))
        made.setdefault(text, []).append(case)
    return made


def _unique(configs: Iterable[Config]) -> list[Config]:
    listed = list(configs)
    return [c for i, c in enumerate(listed) if c not in listed[:i]]
