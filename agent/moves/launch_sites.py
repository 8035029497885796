"""Finds the launch parameters in a kernel file and writes other values in their place.

There are two kinds of sites. A kernel under `triton.autotune`, which decorates it or which host code puts around it,
has its list of configs replaced as a whole; a library's own tuner that is given none is replaced by `triton.autotune`
with one. A kernel that is launched with its parameters, `kernel[grid](...,
BLOCK=128, num_warps=8)`, in one place or in several, has them replaced one by one: an integer literal where it stands
(in the call, or where the name that the call passes is bound), an expression for one of Triton's own options where it
is passed. An option that nothing gives is added. What cannot be set is listed with the reason. Relies on `ast`
positions and on `analysis/launched.py`; all other text stays as it is.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from pgo_agent.agent.moves.analysis import DoesNotApply, tile_use, tuned
from pgo_agent.agent.moves.analysis.config_maker import ConfigMaker
from pgo_agent.agent.moves.analysis.launched import (
    LAUNCH_OPTIONS,
    KernelLaunch,
    constexprs,
    heuristics_of,
    in_gluon,
    is_closed,
    launched,
    parameters,
    strange,
    tuned_by_host,
)
from pgo_agent.agent.moves.analysis.offsets import KEPT, Offsets, Span, replaced
from pgo_agent.agent.moves.analysis.scopes import Function, Scopes
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.bundle import documents

Config = dict[str, int]


def numbers(config: documents.Config) -> Config:
    """Return a built configuration as moves take it: they count with numbers, and pass on what is none."""
    return cast(Config, config)


@dataclass(frozen=True)
class ParameterSlot:
    """Where a parameter of a launch stands, and how a value is written there."""

    span: Span
    form: str = "{}"


@dataclass(frozen=True)
class ArgumentSlot:
    """Where a launch takes one more argument."""

    end: Span  # just before its ")"
    comma: str  # what goes before the argument
    spread: Span | None = None  # a dict that is spread into it, and may hold the argument already
    dicts: int = 0  # how many of those


@dataclass(frozen=True)
class LaunchSite:
    """The launches of one kernel whose parameters can be varied."""

    kernel: str  # name of the jit function
    autotuned: bool
    span: Span = (0, 0)  # autotuned: of the configs expression, or of the call of the tuner
    values: dict[str, int] = field(default_factory=dict)  # plain launches: the literals that stand there now
    edits: dict[str, tuple[ParameterSlot, ...]] = field(
        default_factory=dict
    )  # plain launches: where a parameter can be set
    calls: tuple[ArgumentSlot, ...] = ()  # plain launches
    pre_hook: str = ""  # autotuned: text of the configs' pre_hook, kept
    config_class: str = "triton.Config"
    parameters: frozenset[str] = frozenset()  # of the jit function
    tied: dict[str, int] = field(default_factory=dict)  # plain launches: numbers that their grids hold, too
    fixed: dict[str, str] = field(default_factory=dict)  # what cannot be set -> why
    by_hand: bool = False  # in Gluon: its layouts are of so many warps, and its pipeline is its text's
    refused: str = ""  # autotuned: why its list cannot be replaced
    tuner: str = ""  # autotuned: what is called in place of a library's own tuner, which is given no configs
    whole: frozenset[str] = frozenset()  # plain launches: sizes that neither a grid nor a loop of the kernel follows
    counts: frozenset[str] = frozenset()  # plain launches: small numbers that the grid and a tile follow
    maker: ConfigMaker | None = None  # autotuned: the function of the file that makes its configurations

    @property
    def computed(self) -> frozenset[str]:
        """Return options that an expression gives now."""
        return frozenset(n for n in self.edits if n not in self.values)


@lru_cache(64)
def _read(source: str) -> tuple[tuple[LaunchSite, ...], dict[str, str]]:
    tree = parsing.module(source)
    offsets, scopes = Offsets(source), Scopes(tree)
    how = launched(tree, scopes)
    autotuned = {
        f: call for f in scopes.nodes if isinstance(f, Function) and (call := tuned.tuner(f, scopes)) is not None
    }
    autotuned = tuned_by_host(how.launches) | autotuned
    result = [_autotuned(tree, f, call, how.launches, offsets, scopes) for f, call in autotuned.items()]
    plain = dict[int, list[KernelLaunch]]()
    for one in how.launches:
        if one.kernel not in autotuned:
            plain.setdefault(id(one.kernel), []).append(one)
    result += [_plain(each, offsets, scopes) for each in plain.values()]
    return tuple(result), how.unfollowed


def sites(source: str) -> list[LaunchSite]:
    """Return the kernels whose launches can be varied: autotuned ones, then others, both in the order of the text.

    Raises SyntaxError when it is not Python.
    """
    return list(_read(source)[0])


def unfollowed(source: str) -> dict[str, str]:
    """Return the kernels of a file that it uses in a way that is not followed -> such a use. Raises as `sites`."""
    return dict(_read(source)[1])


def with_configs(source: str, site: LaunchSite, configs: Sequence[Config]) -> str:
    """Return the file with these configurations at the site. Launches that are not autotuned take exactly one.

    Raises DoesNotApply where one of them cannot be set there.
    """
    if site.autotuned:
        if site.refused:
            raise DoesNotApply(site.refused)
        return replaced(source, {site.span: _config_list(site, configs[:1] if site.tuner else configs)})
    (config,) = configs
    changed = {k: v for k, v in config.items() if k not in site.values or site.values[k] != v}
    for name in changed:
        if why := unsettable(site, name):
            raise DoesNotApply(why)
    edits, values = dict[Span, str](), site.values | config
    for name in changed:
        edits |= {e.span: e.form.format(repr(values[name])) for e in site.edits.get(name, ())}
    for name in values:
        if any(edits.get(e.span, text := e.form.format(repr(values[name]))) != text for e in site.edits.get(name, ())):
            raise DoesNotApply(f"{name} is one number of the file with another parameter of {site.kernel}")
    return replaced(source, edits | _added({k: v for k, v in changed.items() if k not in site.edits}, site))


def unsettable(site: LaunchSite, name: str) -> str:
    """Return why a parameter of a launch cannot be set; empty when it can."""
    if name in site.fixed:
        return f"{name} of {site.kernel} cannot be set: {site.fixed[name]}"
    if name in site.tied:
        return f"the grid of {site.kernel} is written with {site.tied[name]}, which {name} is, too"
    if name not in site.parameters and name not in LAUNCH_OPTIONS:
        return f"{site.kernel} takes no {name}"
    several = not site.autotuned and name not in site.edits and any(c.dicts > 1 for c in site.calls)
    return f"several dicts are spread into the launch of {site.kernel}: any may hold {name}" if several else ""


def _added(config: Mapping[str, int], site: LaunchSite) -> dict[Span, str]:
    """Arguments that no launch of the kernel gives yet; where a dict is spread into one, they take precedence of it."""
    if not config:
        return {}
    edits, plain = dict[Span, str](), ", ".join(f"{k}={v!r}" for k, v in config.items())
    for call in site.calls:
        if call.spread is not None:
            items = ", ".join(f'"{k}": {v!r}' for k, v in config.items())
            edits[call.spread] = f"{{**({KEPT}), {items}}}"
        else:
            edits[call.end] = call.comma + plain
    return edits


def in_place(source: str, site: LaunchSite, configs: Sequence[Config]) -> str:
    """Return the file with these configurations at an autotuned site, no line moved. Raises as `with_configs`."""
    if site.refused:
        raise DoesNotApply(site.refused)
    start, end = site.span
    listed = _config_list(site, configs).replace("\n", " ")
    ends = "\n" * len(source[start:end].splitlines()[1:])
    return replaced(source, {site.span: f"({listed}{ends})" if ends else listed})


def _config_list(site: LaunchSite, configs: Sequence[Config]) -> str:
    def one(c: Config) -> str:
        if site.maker:
            return site.maker.call(c)
        meta = ", ".join(f'"{k}": {v!r}' for k, v in c.items() if k not in LAUNCH_OPTIONS)
        options = [f"{k}={v}" for k, v in c.items() if k in LAUNCH_OPTIONS and v is not None]
        hook = [f"pre_hook={site.pre_hook}"] if site.pre_hook else []
        return f"{site.config_class}({', '.join(['{' + meta + '}', *options, *hook])})"

    if not configs:
        raise DoesNotApply(f"no configuration of {site.kernel} is known")
    lines = ",\n        ".join(one(c) for c in configs)
    listed = f"[\n        {lines},\n    ]"
    return f"{site.tuner}(configs={listed}, key=[])" if site.tuner else listed


# reading --------------------------------------------------------------------------------------------------------------


def _autotuned(
    tree: ast.Module,
    function: Function,
    call: ast.Call,
    launches: Sequence[KernelLaunch],
    offsets: Offsets,
    scopes: Scopes,
) -> LaunchSite:
    given, refused, hook, name, own, maker = tuned.configs(call), "", "", "triton.Config", "", None
    try:
        if given is None and not is_closed(call):
            raise DoesNotApply("its configurations do not stand where it is decorated")
        if tuned.shared(function, scopes):
            raise DoesNotApply("its list of configurations is that of another kernel, too")
        name = tuned.config_class(tree, call, scopes)
        hook, maker = tuned.written(tree, given, scopes) if given is not None else ("", None)
        own = tuned.autotune(name) if given is None else ""
    except DoesNotApply as e:
        refused = str(e)
    ours = [x for x in launches if x.kernel is function]
    passed = set[str]().union(*(_given(x)[0].keys() for x in ours))
    fixed = dict.fromkeys(passed, "its launch passes it, which no configuration may then set")
    fixed |= dict.fromkeys(heuristics_of(function, ours[0].layers if ours else (), scopes), "a heuristic sets it")
    span = offsets.of(given if given is not None else call)
    taken = frozenset(parameters(function))
    by_hand = in_gluon(function)
    return LaunchSite(function.name, True, span, pre_hook=hook, config_class=name, parameters=taken, fixed=fixed,
                maker=maker, tuner=own, by_hand=by_hand, refused=refused)  # fmt: skip


def _plain(launches: Sequence[KernelLaunch], offsets: Offsets, scopes: Scopes) -> LaunchSite:
    """One kernel that is not autotuned, by all its launches: what they have in common can be varied."""
    kernel = launches[0].kernel
    values, edits, tied, fixed = (
        dict[str, int](),
        dict[str, tuple[ParameterSlot, ...]](),
        dict[str, int](),
        dict[str, str](),
    )
    heuristics, given = heuristics_of(kernel, launches[0].layers, scopes), [_given(x, scopes) for x in launches]
    for name in dict.fromkeys(n for arguments, _ in given for n in arguments):
        passed = [arguments.get(name) for arguments, _ in given]
        if name in heuristics or not _varied(name, kernel):
            continue
        literals = [scopes.literal(v) if v is not None else None for v in passed]
        numbers = {int(ast.literal_eval(v)) for v in literals if v is not None}
        if None not in literals and len(numbers) == 1:
            (value,) = numbers
            if name not in LAUNCH_OPTIONS and any(value in tile_use.numbers(x.grid, scopes) for x in launches):
                tied[name] = value
                continue
            values[name] = value
        elif name not in LAUNCH_OPTIONS or None in passed:
            texts = dict.fromkeys(ast.unparse(v) if v is not None else "nothing" for v in passed)
            fixed[name] = f"its launch gives it as {' or '.join(texts)}"[:160]
            continue
        edits[name] = tuple(_edit(name, v, scopes, offsets, name in values) for v in passed if v is not None)
    for name, rule in heuristics.items():
        if rule is not None and name in LAUNCH_OPTIONS:
            edits[name] = (ParameterSlot(offsets.of(rule), "lambda args: {}"),)
        else:
            fixed[name] = "a heuristic sets it"
    if by := strange(kernel):
        unknown = [n for n in (*LAUNCH_OPTIONS, *parameters(kernel)) if n not in edits and n not in fixed]
        fixed |= {n: f"what @{by[:60]} makes of it is not known" for n in unknown if n not in tied}
    calls = tuple(_call(x, spread, offsets) for x, (_, spread) in zip(launches, given, strict=True))
    taken = frozenset(parameters(kernel))
    named = [n for n in values if n not in LAUNCH_OPTIONS]
    whole, counts = tile_use.followed(launches, [arguments for arguments, _ in given], named, scopes)
    return LaunchSite(kernel.name, False, (0, 0), values, edits, calls, "", "", taken, tied, fixed, in_gluon(kernel),
                      whole=whole, counts=counts)  # fmt: skip


Given = tuple[dict[str, ast.expr], list[ast.expr]]  # by the name of a parameter; and dicts that may hold others


def _given(launch: KernelLaunch, scopes: Scopes | None = None) -> Given:
    """What a launch gives to which parameter, as far as its text tells."""
    arguments, spread = dict[str, ast.expr](), list[ast.expr]()
    for name, value in zip(parameters(launch.kernel), launch.positional, strict=False):
        if isinstance(value, ast.Starred):
            break
        arguments[name] = value
    for keyword in launch.keywords:
        if keyword.arg is not None:
            arguments[keyword.arg] = keyword.value
        elif scopes is not None:
            items = scopes.items(keyword.value)
            arguments |= items.known
            spread += [] if items.closed else [keyword.value]
    return arguments, spread


def _edit(name: str, value: ast.expr, scopes: Scopes, offsets: Offsets, literal: bool) -> ParameterSlot:
    """Where a value is written anew: at the literal; an option where it is passed, unless the name serves it alone."""
    constant = scopes.literal(value) if literal else None
    shared = isinstance(value, ast.Name) and len(scopes.loads(value.id, value)) > 1
    return ParameterSlot(offsets.of(value if constant is None or (name in LAUNCH_OPTIONS and shared) else constant))


def _call(launch: KernelLaunch, spread: Sequence[ast.expr], offsets: Offsets) -> ArgumentSlot:
    end = offsets.of(launch.call)[1] - 1
    return ArgumentSlot((end, end), offsets.comma(launch.call), offsets.of(spread[0]) if spread else None, len(spread))


def _varied(name: str, kernel: Function) -> bool:
    """Whether a parameter is one that a launch may choose: an option, or a constant by its way of writing."""
    return name in LAUNCH_OPTIONS or name.isupper() or (name in constexprs(kernel) and "block" in name.lower())
