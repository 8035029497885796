"""Traces a target's reference on fake tensors of symbolic sizes, and gives the text that Inductor writes for it.

Relies on `fake_gpu.py` for fake CUDA tensors, on torch's `make_fx` and on `torch._inductor` (2.11 to 2.13). Sizes and
strides are symbols, so one text serves all sizes; where tracing had to know more of them, that is a condition. What is
no tensor is taken as it is, and is a condition, too. Nothing is compiled by Triton here, and nothing runs.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pgo_agent.sandbox.bundle.torch_ops import alike
from pgo_agent.sandbox.in_place import tensors as tensors_in
from pgo_agent.sandbox.tracer import fake_gpu
from pgo_agent.sandbox.tracer.inductor.graph_edits import drop_unread, on_device, on_host
from torch.utils._python_dispatch import TorchDispatchMode

# Settings of Inductor, where it has them: one process, no answers of earlier runs, a text that runs in Triton alone.
SETTINGS = {
    "compile_threads": 1,
    "fx_graph_cache": False,
    "force_disable_caches": True,
    "size_asserts": False,
    "alignment_asserts": False,
    "assert_indirect_indexing": False,
    "graph_partition": False,
    "max_autotune_pointwise": True,
    "triton.cooperative_reductions": False,
    "triton.mix_order_reduction": False,
    "layout_optimization": False,  # of convolutions, by the GPU that is there
}
MOST_OPERATIONS = 500  # of a reference: a loop over tokens becomes an operation for each
# What PyTorch gives to cuBLAS, cuDNN and others, and Inductor to no Triton kernel that needs no measurement.
LIBRARIES = frozenset(
    f"aten::{n}"
    for n in (
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "_scaled_mm",
        "_int_mm",
        "_grouped_mm",
        "convolution",
        "mv",
        "dot",
        "sort",
    )
) | {
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_fft_r2c",
    "aten::_fft_c2c",
    "aten::_fft_c2r",
}


class NoText(Exception):
    """Inductor writes no text for this reference that a launcher can use; the message says why."""


class _Written(BaseException):
    """Carries Inductor's text out of its compilation, before it would be loaded."""


@dataclass(frozen=True)
class Symbols:
    """The sizes and strides of input tensors that tracing left open."""

    texts: Mapping[str, str]  # name of a symbol -> what it is: `x.size(0)`
    conditions: Sequence[str]  # Python on the launcher's arguments, and on these names


@dataclass(frozen=True)
class Written:
    """What Inductor wrote for a reference."""

    module: str  # its text
    tensors: Sequence[str]  # the inputs in the order in which that takes them
    symbols: Symbols
    in_place: Mapping[int, str]  # result -> the input that holds it

    @property
    def device(self) -> str:
        """Python for the device that results are made on: that of the first tensor."""
        first = next((t for t in self.tensors if f"{t}.dtype" in " ".join(self.symbols.conditions)), "")
        return f"{first}.device" if first else "'cuda'"


@dataclass(frozen=True)
class _Open:
    """What tracing leaves open."""

    numbers: bool
    rows: bool  # the last dimension of tensors that have several


def write(
    reference: Callable[..., Any],
    given: Mapping[str, Any],
    in_place: Mapping[int, str],
    rows: bool = False,
    allowed: Collection[str] = (),
) -> Written:
    """Return what Inductor writes for `reference(**given)`, on tensors that FakeMode made.

    `in_place`: results, by their number, that an input gets. `rows`: for rows as long as they are. `allowed`: operators
    of libraries that may stay as they are. Numbers are left open like sizes, where that works. Raises NoText, and what
    torch raises.
    """
    if nested := [n for n, v in given.items() if not isinstance(v, torch.Tensor) and list(tensors_in(v))]:
        raise NoText(f"{nested[0]} is a list of tensors")
    try:
        return _write(reference, given, in_place, _Open(True, not rows), allowed)
    except (NoText, RecursionError):
        raise
    except Exception:  # not all that a reference computes of a number can be left open
        return _write(reference, given, in_place, _Open(False, not rows), allowed)


def _write(
    reference: Callable[..., Any],
    given: Mapping[str, Any],
    in_place: Mapping[int, str],
    what: _Open,
    allowed: Collection[str],
) -> Written:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    env = ShapeEnv(duck_shape=False)
    mode = fake_gpu.FakeMode(allow_non_fake_inputs=True, shape_env=env)
    opened = {n: _opened(mode, n, v, what) for n, v in given.items()}
    left = {n: v for n, v in opened.items() if isinstance(v, torch.Tensor | torch.SymInt | torch.SymFloat)}
    fixed = {n: v for n, v in opened.items() if n not in left}
    module = _compiled(_graph(reference, left, fixed, in_place, allowed), mode)
    if env.deferred_runtime_asserts:
        raise NoText("its sizes depend on what its inputs hold")
    return Written(module, list(left), _symbols(left, fixed, [g.expr for g in env.guards]), in_place)


def _opened(mode: fake_gpu.FakeMode, name: str, value: Any, what: _Open) -> Any:
    """Return an input with symbols for its sizes and strides, or for its value; what is neither, as it is."""
    from torch._dynamo.source import LocalSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    source, env = LocalSource(name), mode.shape_env
    if isinstance(value, torch.Tensor):
        if value.device.type != "cuda":
            raise NoText(f"{name} is a tensor of the host")
        sizes = [DimDynamic.DYNAMIC] * value.dim()
        if value.dim() > 1 and not what.rows:
            sizes[-1] = DimDynamic.STATIC
        context = StatelessSymbolicContext(dynamic_sizes=sizes)
        return mode.from_tensor(value.detach(), source=source, symbolic_context=context)
    if what.numbers and env is not None and type(value) in (int, float) and math.isfinite(value):
        symbol = env.create_symbol(value, source, DimDynamic.DYNAMIC)
        made = env.create_symintnode if type(value) is int else env.create_symfloatnode
        return made(symbol, hint=value, source=source)
    return value


class _Bounded(TorchDispatchMode):
    """Ends the tracing of a reference that Inductor would write no Triton for, or far too much."""

    def __init__(self, allowed: Collection[str]) -> None:
        super().__init__()
        self.count = 0
        self.refused = LIBRARIES - {f"aten::{name.split('.')[1]}" for name in alike(allowed)}

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if op.name().split(".")[0] in self.refused:
            raise NoText(f"it calls {op}, which is no kernel of Triton but a library")
        if self.count > MOST_OPERATIONS:
            raise NoText(f"it takes more than {MOST_OPERATIONS} operations")
        return op(*args, **(kwargs or {}))


def _graph(
    reference: Callable[..., Any],
    left: Mapping[str, Any],
    fixed: Mapping[str, Any],
    in_place: Mapping[int, str],
    allowed: Collection[str],
) -> Any:
    """Return the operations of the reference as a graph that returns those of its results that no input gets.

    It is traced twice: gradients that a reference asks for are there after the first time, and what changes a tensor is
    gone after the second.
    """
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    def traced(*values: Any) -> tuple[Any, ...]:
        given = dict(zip(left, values, strict=True))
        with _Bounded(allowed):
            results = reference(**given, **fixed)
        listed = list(results) if isinstance(results, list | tuple) else [results]
        with torch.no_grad():
            for i, name in in_place.items():
                given[name].copy_(listed[i])
        return tuple(r.detach() for i, r in enumerate(listed) if i not in in_place)

    record = make_fx(traced, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    try:
        first = record(*left.values())
    except RuntimeError as e:
        if "accelerator" not in str(e):
            raise
        first = on_device(record(*(on_host(v) for v in left.values())))  # gradients of a GPU need a GPU
    drop_unread(first)
    with torch.no_grad():
        return make_fx(
            torch.func.functionalize(first, remove="mutations"),
            decomposition_table=select_decomp_table(),
            tracing_mode="symbolic",
            _allow_non_fake_inputs=True,
        )(*left.values())


def _compiled(graph: Any, mode: fake_gpu.FakeMode) -> str:
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering

    def taken(lowered: Any) -> None:
        code = lowered.codegen()[0]
        raise _Written(getattr(code, "value", code))

    torch.cuda.get_rng_state = lambda *_a: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda *_a: None
    GraphLowering.compile_to_module = taken
    known = {name: value for name, value in SETTINGS.items() if name in config._config}
    values = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    try:
        with mode, config.patch(known):
            compile_fx_inner(graph, values)
    except _Written as written:
        return str(written)
    raise NoText("there is nothing in it to compile")


# conditions -----------------------------------------------------------------------------------------------------------


def _symbols(left: Mapping[str, Any], fixed: Mapping[str, Any], guards: Sequence[Any]) -> Symbols:
    texts, conditions = dict[str, str](), list[str]()
    for name, tensor in left.items():
        if not isinstance(tensor, torch.Tensor):
            _look(name, tensor, texts, conditions)
            continue
        conditions.append(f"{name}.dtype == {tensor.dtype}")
        conditions.append(f"{name}.dim() == {tensor.dim()}")
        for kind, values in (("size", tensor.size()), ("stride", tensor.stride())):
            for i, value in enumerate(values):
                _look(f"{name}.{kind}({i})", value, texts, conditions)
    conditions += [f"{n} is {v!r}" if v is None or isinstance(v, bool) else f"{n} == {v!r}" for n, v in fixed.items()]
    conditions += [_python(g) for g in guards]
    return Symbols(texts, [c for i, c in enumerate(conditions) if c not in conditions[:i]])


def _look(text: str, value: Any, texts: dict[str, str], conditions: list[str]) -> None:
    """Take a size or a stride as the meaning of a symbol, or as a condition."""
    expression = value.node._expr if isinstance(value, torch.SymInt | torch.SymFloat) else value
    if getattr(expression, "is_Symbol", False) and str(expression) not in texts:
        texts[str(expression)] = text
        if isinstance(value, torch.SymInt) and ".stride(" not in text:
            conditions.append(f"{text} > 1")  # tracing took it for a size that is not broadcast
    else:
        conditions.append(f"{text} == {_python(expression)}")


def _python(expression: Any) -> str:
    from torch.utils._sympy.printers import PythonPrinter

    if isinstance(expression, int):
        return str(expression)
    return str(PythonPrinter().doprint(expression))


def elements(given: Mapping[str, Any]) -> int:
    """Return how many elements the tensors of an input have."""
    return sum(math.prod(v.shape) for v in given.values() if isinstance(v, torch.Tensor))
