"""What a run profiles: each public case of a candidate, at its best known configuration.

It runs the passes of one case; `record/profiles.py` stores the results.
"""

from collections.abc import Mapping
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
LAST = frozenset({PassName.STATIC, PassName.TIMELINE})  # what a report shows; it leads to no proposal
ENOUGH = "it could lead to nothing: all candidates of the budget were proposed"


def take(ctx: Context, w: Wanted, gpu: GpuBudget, at_once: int, choose: Choosing, last: bool = False) -> CaseProfile:
    """Profile one case, of `at_once` side by side. `last`: it leads to no proposal. Raises what the passes raise."""
    asked, builder = ctx.settings, replace(ctx.builder, cores=max(1, ctx.builder.cores // at_once))
    means = Means(builder, gpu, profile_visibility.passes(asked), choose)
    if last and asked.profile_visibility is ProfileVisibility.ALL and not asked.controlled:
        means = replace(means, passes=LAST, unwanted=ENOUGH)
    return profile_visibility.cut(case_profile(means, w), asked)


def wanted(ctx: Context, which: str) -> list[Wanted]:
    """Return what to profile of `shipped` or a candidate: each public case at its best known configuration."""
    builds, untrusted = _builds(ctx, which)
    configs = {c: b.config for c, b in incumbent.best_known(ctx, which).items()}
    times = incumbent.call_times(ctx, which)
    return [
        Wanted(text, *builds[case], WHY, untrusted, tuple(cases), times.get(case))
        for text, cases in texts(incumbent.python(ctx, which), configs).items()
        for case in cases
    ]


def _builds(ctx: Context, which: str) -> tuple[dict[str, tuple[str, str, str]], bool]:
    """Case -> bundle, case and label; and whether the code is untrusted."""
    if which == incumbent.SHIPPED:
        return {c: (p.bundle, c, p.choice) for c, p in ctx.baseline().tuned.items()}, False
    candidate = ctx.store.candidate(ctx.run.id, which)
    bundle, labels = candidate.build.bundle, incumbent.chosen(ctx.store, candidate)
    return {c: (bundle, c, labels[c]) for c in ctx.baseline().cases}, provenance.untrusted(ctx, candidate)


def texts(source: str, configs: Mapping[str, Config]) -> dict[str, list[str]]:
    """Return texts with few configurations beside the wanted ones, each with its cases: a trace runs all that a text
    has.

    Lines keep their numbers, as profiles refer to the source.
    """
    cases_by_text = dict[str, list[str]]()
    for case, config in configs.items():
        text = launch_config.placed(source, config)
        launches = sites(text)
        tuned = [s for s in launches if s.autotuned]
        if len(tuned) == 1 and not tuned[0].refused:
            fitting = (launch_config.config_of(tuned[0], launches, c) for c in configs.values())
            stated = launch_config.unique(c for c in fitting if c is not None)
            if stated:  # else another kernel is launched in its place
                text = in_place(text, tuned[0], stated)
        cases_by_text.setdefault(text, []).append(case)
    return cases_by_text
