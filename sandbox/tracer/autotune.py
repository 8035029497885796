"""Replaces the choosing inside `triton.autotune`: one config per launch site, chosen by us, every site's list reported.

The plan must hold the steady state: Triton then calls only a config's own pre_hook, and neither reset_to_zero nor
restore_value, which serve its benchmark. Heuristics run as always. A library's own kind of autotuner is one, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources, PTXASError

SKIPPED = (OutOfResources, PTXASError, CompileTimeAssertionFailure)  # what Triton's own autotuner passes over


def describe(config: Config) -> dict[str, object]:
    """Return a config as plain values, without what equals the default of None."""
    fixed = {n: getattr(config, n) for n in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
    return dict(config.kwargs) | {n: v for n, v in fixed.items() if v is not None and not (n == "num_ctas" and v == 1)}


def _is(known: Mapping[str, object], config: Config) -> bool:
    described = describe(config)
    return all(described.get(name) == value for name, value in known.items())


def _kernel(site: str) -> str:
    return site.partition("(")[0]


def label(config: dict[str, object]) -> str:
    return " ".join(f"{k}={v}" for k, v in config.items())


def replace(run: Callable[..., Any]) -> None:
    """Let autotuners run so, also those of libraries, which would time: their lists are taken as any."""

    def subclassed(cls: type[Autotuner], /, **_named: Any) -> None:
        if "run" in vars(cls):
            cls.run = run

    Autotuner.run = run
    Autotuner.__init_subclass__ = classmethod(subclassed)


Known = Mapping[str, Sequence[Mapping[str, object]]]  # kernel -> its best configurations, the best first


@dataclass
class Sites:
    """The autotuned launches that a launcher makes, in order of first use."""

    steps: list[Any]  # the recorder's steps: a failed config's are undone
    choice: dict[str, int] = field(default_factory=dict)  # site -> index of the config to use
    base: dict[str, int] = field(default_factory=dict)  # site -> first config that compiled
    configs: dict[str, list[Config]] = field(default_factory=dict)
    known: Known = field(default_factory=dict)
    varied: Sequence[str] | None = None  # kernels whose launches are; None: all

    def forget(self) -> None:
        self.choice, self.base, self.configs = {}, {}, {}

    def install(self) -> None:
        sites = self

        def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            try:
                return sites._launch(self, args, kwargs)
            finally:
                self.nargs = None

        replace(run)

    def _launch(self, tuner: Autotuner, args: tuple[Any, ...], kwargs: dict[str, object]) -> Any:
        site = self._site(tuner, kwargs)
        configs = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
        self.configs.setdefault(site, list(configs))
        if site in self.choice:
            return self._try(tuner, configs[self.choice[site]], args, kwargs)
        order = self._best_first(site, configs)
        for i in order:
            mark = len(self.steps)
            try:
                kernel = self._try(tuner, configs[i], args, kwargs)
            except SKIPPED:
                del self.steps[mark:]  # what its pre_hook did
                if i == order[-1]:
                    raise
            else:
                self.base.setdefault(site, i)
                return kernel
        raise RuntimeError(f"{site}: no configuration is left after pruning")

    def _best_first(self, site: str, configs: Sequence[Config]) -> list[int]:
        """The order in which configs are tried until one compiles: from the one that did, those known to be best, all
        others as they are listed."""
        known = [i for k in self._known(site) for i, c in enumerate(configs) if _is(k, c)]
        order = list(dict.fromkeys([*known, *range(len(configs))]))
        return order[order.index(self.base[site]) :] if site in self.base else order

    def is_known(self, site: str, index: int) -> bool:
        return any(_is(k, self.configs[site][index]) for k in self._known(site))

    def is_varied(self, site: str) -> bool:
        """Whether to try other configurations: not where the best is known, and nothing changed since."""
        kernel = _kernel(site)
        alike = sum(_kernel(s) == kernel for s in self.configs)  # sites of one kernel, of which one is told
        return self.varied is None or kernel in self.varied or not self._known(site) or alike > 1

    def _known(self, site: str) -> Sequence[Mapping[str, object]]:
        return self.known.get(_kernel(site), ())

    @staticmethod
    def _try(tuner: Autotuner, config: Config, args: tuple[Any, ...], kwargs: dict[str, object]) -> Any:
        tuner.best_config = config
        clash = kwargs.keys() & config.kwargs.keys()
        if clash:
            raise ValueError(f"Conflicting meta-parameters: {', '.join(sorted(clash))}")
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())

    @staticmethod
    def _site(tuner: Autotuner, kwargs: dict[str, object]) -> str:
        arguments = {k: v for k, v in {**tuner.nargs, **kwargs}.items() if k in tuner.arg_names}
        key = [arguments[k] for k in tuner.keys if k in arguments]
        key += [str(v.dtype) for v in arguments.values() if hasattr(v, "dtype")]
        return f"{tuner.base_fn.__name__}{tuple(key)}"
