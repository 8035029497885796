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
    """Return case -> kernel -> its known configurations: the best of `parent` first, then that of the file's own list,
    then what the baseline measured, the fastest first. In a held-out case the best of all public ones come first.

    Nothing is known in a case that launches one autotuned kernel, whose configuration does not say whose it is.
    """
    base = ctx.baseline()
    timed = sorted((p for p in base.points if not p.problem and p.ms is not None), key=lambda p: p.rank)
    measured: dict[str, list[Config]] = {}
    for point in (*timed, *base.points):
        for kernel, config in _by_kernel(numbers(point.config)).items():
            measured.setdefault(kernel, []).append(config)
    if not measured:
        return {}
    best: dict[str, dict[str, Config]] = {}
    for which in reversed([*_ancestors(ctx, parent)]):  # an earlier one may have launched more kernels
        for case, known in incumbent.best_known(ctx, which).items():
            best.setdefault(case, {}).update(_by_kernel(known.config))
    own = {case: _by_kernel(numbers(point.config)) for case, point in base.shipped.items()}
    public = {case: best_first([known, own.get(case, {})], measured) if known else {} for case, known in best.items()}
    return public | dict.fromkeys(base.held_out, best_first([*best.values()], measured))


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
    """Kernel -> the best ones, and after them what was measured, each once."""
    return {k: launch_config.unique([*(b[k] for b in best if k in b), *configs]) for k, configs in measured.items()}
