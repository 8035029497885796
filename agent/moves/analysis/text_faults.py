"""Tells whether a text that was made of another one is Python that can run, as far as reading it tells.

Relies on `ast` alone. It looks for what an edit can break: syntax, the contract, names that nothing binds where they
are read, and calls of the file's own kernels and helpers that do not fit their parameters. A fault that the first text
had already does not count. It does not show that both compute the same.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.launched import KernelLaunch, kernels, launched, named, parameters
from pgo_agent.agent.moves.analysis.scopes import Function, Scopes, default_of
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import same_contract

# what `kernel[grid](...)` takes beside the kernel's own parameters: the options of Triton's backends, by 3.6 to 3.9
OPTIONS = frozenset(
    {"num_warps", "num_stages", "num_ctas", "maxnreg", "warp_size", "launch_cooperative_grid", "launch_pdl", "debug"}
    | {"enable_fp_fusion", "extern_libs", "ptx_version", "ptx_options", "ir_override", "sanitize_overflow", "arch"}
    | {"supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes", "default_dot_input_precision", "backend_name"}
    | {"allowed_dot_input_precisions", "max_num_imprecise_acc_default", "instrumentation_mode", "warmup", "grid"}
    | {"waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint", "allow_flush_denorm", "cluster_dims"}
)


def check(before: str, after: str) -> None:
    """Raise DoesNotApply with what is wrong with `after`, SyntaxError where it is no Python."""
    if after != before and (fault := _first(before, after)):
        raise DoesNotApply(fault)


@lru_cache(256)
def _first(before: str, after: str) -> str:
    """Return the first fault; empty for none. Steps from one incumbent are proposed again in every generation."""
    tree = parsing.compiled(after)
    if not same_contract(before, after):
        return "it would change the contract"
    earlier = _known(before)
    return next((fault for fault in _faults(tree) if fault not in earlier), "")


@lru_cache(16)
def _known(text: str) -> frozenset[str]:
    """What is wrong with a text already: many are made of one."""
    return frozenset(_faults(parsing.module(text)))


def _faults(tree: ast.Module) -> Iterator[str]:
    scopes = Scopes(tree)
    yield from _unbound(scopes)
    yield from _early(tree)
    own = kernels(scopes)
    tuned = {k: _set(k) for k in own}
    for launch in launched(tree, scopes).launches:
        yield from _misfits(launch, tuned.get(launch.kernel) or set())
    for call in (n for n in scopes.nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
        for function in _functions(call, scopes):
            yield from _unfit(call, function)
    for function in own:
        yield from _configured(function)


def _unbound(scopes: Scopes) -> Iterator[str]:
    if any(isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names) for n in scopes.nodes):
        return  # nobody knows what it binds
    for node in scopes.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not scopes.bound(node.id, node):
            yield f"it would read {node.id}, which nothing binds there"


def _early(tree: ast.Module) -> Iterator[str]:
    """Names that a file reads while it is imported, before they are bound."""
    bound, all_bound = set[str](), set[str]()
    for statement in tree.body:
        all_bound |= _binds(statement)
    for statement in tree.body:
        early = {n for n in _at_once(statement) if n in all_bound - bound}
        yield from (f"it would read {n} before it is bound" for n in sorted(early - _binds(statement)))
        bound |= _binds(statement)


def _binds(statement: ast.stmt) -> set[str]:
    bound, waiting = set[str](), list[ast.AST]([statement])
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.ClassDef):
            bound.add(node.name)
            continue
        if isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return bound


def _at_once(statement: ast.stmt) -> set[str]:
    """The names that a statement reads when it runs, not those in the bodies of its functions."""
    read, waiting = set[str](), list[ast.AST]([statement])
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                waiting += [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
            case ast.Lambda():
                waiting += node.args.defaults
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case _:
                waiting += ast.iter_child_nodes(node)
    return read


def _set(kernel: Function) -> set[str]:
    """The parameters that decorators of a kernel give it, as far as they stand there."""
    given = set[str]()
    for decorator in kernel.decorator_list:
        if named(decorator) != "jit":
            keys = (k for n in ast.walk(decorator) if isinstance(n, ast.Dict) for k in n.keys)
            given |= {str(k.value) for k in keys if isinstance(k, ast.Constant)}
    return given


def _misfits(launch: KernelLaunch, given: set[str]) -> Iterator[str]:
    """What a launch passes twice, what its kernel does not take, and what it lacks."""
    name, takes = launch.kernel.name, parameters(launch.kernel)
    spread = any(isinstance(a, ast.Starred) for a in launch.positional)
    named_ones = [k.arg for k in launch.keywords if k.arg is not None]
    places = [] if spread else takes[: len(launch.positional)]
    for again in [n for n, times in Counter([*places, *named_ones]).items() if times > 1]:
        yield f"the launch of {name} would pass {again} twice"
    if launch.kernel.args.kwarg is None:
        for strange in [n for n in named_ones if n not in takes and n not in OPTIONS]:
            yield f"the launch of {name} would pass {strange}, which it does not take"
    if not spread and len(launch.positional) > len(takes) and launch.kernel.args.vararg is None:
        yield f"the launch of {name} would pass {len(launch.positional)} arguments, it takes {len(takes)}"
    whole = not spread and all(k.arg is not None for k in launch.keywords)
    if whole and not launch.layers and not _opaque(launch.kernel):
        lacking = [n for n in takes if n not in {*places, *named_ones, *given} and not default_of(launch.kernel, n)]
        yield from (f"the launch of {name} would not pass {n}" for n in lacking)


def _opaque(kernel: Function) -> bool:
    """Whether decorators may give a kernel parameters that do not stand there."""
    return any(named(d) != "jit" and not _set(kernel) for d in kernel.decorator_list)


def _functions(call: ast.Call, scopes: Scopes) -> list[Function]:
    bindings = scopes.bindings(call.func.id, call.func) if isinstance(call.func, ast.Name) else []
    own = [n for n in bindings if isinstance(n, Function)]
    return (
        own
        if len(bindings) == 1 and not isinstance(scopes.above.get(id(own[0])) if own else None, ast.ClassDef)
        else []
    )


def _unfit(call: ast.Call, function: Function) -> Iterator[str]:
    """A call of a function of the file that its parameters do not allow."""
    a = function.args
    if a.vararg or a.kwarg or any(isinstance(x, ast.Starred) for x in call.args):
        return
    wrapped = any(named(d) != "jit" for d in function.decorator_list)
    if wrapped or any(k.arg is None for k in call.keywords):
        return
    plain = [x.arg for x in (*a.posonlyargs, *a.args)]
    given = [*plain[: len(call.args)], *(str(k.arg) for k in call.keywords)]
    takes, jitted = parameters(function), {"_semantic", "_generator"}
    if len(call.args) > len(plain):
        yield f"{function.name} would be called with {len(call.args)} arguments, it takes {len(plain)}"
    yield from (f"{function.name} would be passed {n} twice" for n, times in Counter(given).items() if times > 1)
    yield from (
        f"{function.name} would be passed {n}, which it does not take" for n in given if n not in [*takes, *jitted]
    )
    lacking = [n for n in takes if n not in given and default_of(function, n) is None]
    yield from (f"{function.name} would not be passed {n}" for n in lacking)


def _configured(kernel: Function) -> Iterator[str]:
    """Configurations that stand at a kernel and set what it does not take, or one thing twice."""
    takes = {*parameters(kernel), *OPTIONS}
    tuners = [d for d in kernel.decorator_list if isinstance(d, ast.Call) and named(d) == "autotune"]
    for made in (n for d in tuners for n in ast.walk(d) if isinstance(n, ast.Call) and named(n) == "Config"):
        meta = made.args[0] if made.args and isinstance(made.args[0], ast.Dict) else ast.Dict([], [])
        keys = [str(k.value) for k in meta.keys if isinstance(k, ast.Constant)]
        for name in dict.fromkeys(keys):
            if name not in takes and kernel.args.kwarg is None:
                yield f"a configuration would set {name}, which {kernel.name} does not take"
            if keys.count(name) > 1:
                yield f"a configuration would set {name} twice"
