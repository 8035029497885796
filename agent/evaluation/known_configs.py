"""What is known of the launches of a file with several autotuned kernels, so that a candidate that changes one of them
runs the others at their best: a build varies one launch at a time, and takes few configurations in all.

Relies on the baseline and on what earlier candidates were judged with. A file with one autotuned kernel needs none.
"""

from collections.abc import Iterator, Mapping, Sequence

from pgo_agent.agent.moves import launch_config
from pgo_agent.agent.moves.launch_sites import Config, numbers
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.build.trace_and_compile import KnownConfigs


def of(ctx: Context, parent: str) -> KnownConfigs:
    """Return case -> kernel -> its known configurations: the best of `parent` first, then what the baseline measured.
    In a held-out case the best of all public ones come first."""
    measured: dict[str, list[Config]] = {}
    for point in ctx.baseline().points:
        for kernel, config in _by_kernel(numbers(point.config)).items():
            measured.setdefault(kernel, []).append(config)
    if not measured:
        return {}
    best: dict[str, dict[str, Config]] = {}
    for which in reversed([*_ancestors(ctx, parent)]):  # a candidate's configuration names the kernels that it varied
        for case, known in incumbent.best_known(ctx, which).items():
            best.setdefault(case, {}).update(_by_kernel(known.config))
    own = {case: best_first([known], measured) for case, known in best.items()}
    return own | dict.fromkeys(ctx.baseline().held_out, best_first([*best.values()], measured))


def _ancestors(ctx: Context, which: str) -> Iterator[str]:
    while which != incumbent.SHIPPED:
        yield which
        which = ctx.store.candidate(ctx.run.id, which).parent
    yield which


def _by_kernel(config: Config) -> dict[str, Config]:
    return {kernel: own for kernel, own in launch_config.by_kernel(config).items() if kernel}


def best_first(
    best: Sequence[Mapping[str, Config]], measured: Mapping[str, Sequence[Config]]
) -> dict[str, list[Config]]:
    """Kernel -> the best ones, and after them what was measured: a point names the kernels that it varies, and has the
    first measured one of each other."""
    return {k: launch_config.unique([*(b[k] for b in best if k in b), *configs]) for k, configs in measured.items()}
