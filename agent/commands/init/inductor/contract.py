"""The contract of a target that comes of Inductor's code: inputs(), cases, and the work that they need.

Relies on `sizes.py` for what a case is, and on `ranges.py` for what whole numbers may be.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from pgo_agent.agent.commands.init.inductor import drawn, ranges
from pgo_agent.agent.commands.init.inductor.calls import Arg
from pgo_agent.agent.commands.init.inductor.derived import Derived
from pgo_agent.agent.commands.init.inductor.draft import Draft, named
from pgo_agent.agent.commands.init.inductor.fragment import Layout, Node
from pgo_agent.agent.commands.init.inductor.fx_text import VIEWS
from pgo_agent.agent.commands.init.inductor.sizes import ROWS, Sizes, contiguous, in_case, product, value
from pgo_agent.agent.commands.init.render import GUESSED

BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}  # others have 1
_FREE = VIEWS | {"convert_element_type", "_to_copy", "embedding", "gather", "index", "full", "scalar_tensor"}
_DOTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # operation -> argument whose last axis is summed over
_REDUCING = frozenset({
    "sum", "mean", "var", "var_mean", "std", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "logsumexp",
    "prepare_softmax_online", "any", "all",
})  # fmt: skip


def inputs(made: Draft, computed: Derived) -> Iterator[tuple[str, str]]:
    """Yield the arguments with the expressions that make them, marks included."""
    read = {n for line in computed.lines for n in re.findall(r"\w+", line.partition("=")[2])}
    for name, arg in made.group.inputs.items():
        assert arg.layout is not None
        here = named(name) in read or name in computed.names
        yield named(name), f"{named(name)}," if here else "{},{}".format(*_made(made, name, arg.layout))
    for symbol in made.symbols:
        yield symbol, f'case["{symbol}"],'


def before(made: Draft, computed: Derived) -> list[str]:
    """Return the statements of inputs() before the arguments: what is computed of others, and those."""
    if not computed.names:
        return []
    text = "\n".join(computed.lines)
    read = {n for line in computed.lines for n in re.findall(r"\w+", line.partition("=")[2])}
    listed = {n: a.layout for n, a in made.group.inputs.items() if n not in computed.names and named(n) in read}
    lines = [f'{ROWS} = case["{ROWS}"]'] if re.search(rf"\b{ROWS}\b", text) else []
    for name, layout in {**listed, **(computed.leaves or {})}.items():
        if layout is not None:
            expression, mark = _made(made, name, layout)
            lines.append(f"{named(name)} = {expression}{mark}")
    return [*lines, *computed.lines]


def _made(made: Draft, name: str, layout: Layout) -> tuple[str, str]:
    """Return what makes a tensor, and a mark where that is a guess."""
    sizes = made.sizes
    size = _tuple(in_case(s, made.symbols) for s in _leading(made, name, layout))
    dense = contiguous(layout.size, layout.stride, sizes.case()) and not _free_inside(made, name, layout)
    stride = "" if dense else ", " + _tuple(in_case(s, made.symbols) for s in layout.stride)
    dtype = f"torch.{layout.dtype}"
    if "float" in layout.dtype:
        return f"normal({size}, {dtype}{stride})", ""
    if layout.dtype == "bool":
        return f"integers(2, {size}, {dtype}{stride})", ""
    if drawn.is_seed(made.group, name):
        return f"integers(1 << 62, {size}, {dtype}{stride})", ""
    below = ranges.high(made.group, name)
    mark = "" if below else f"  {GUESSED}: which are valid"
    return f"integers({in_case(below, made.symbols) or '2'}, {size}, {dtype}{stride})", mark


def _free_inside(made: Draft, name: str, layout: Layout) -> bool:
    """Whether the free size is no outermost one: then strides, which stand in the kernel, do not follow it."""
    axis = made.sizes.rows.tensors.get(name) if made.sizes.rows is not None else None
    return axis is not None and any(size != "1" for size in layout.size[: axis.axis])


def _leading(made: Draft, name: str, layout: Layout) -> list[str]:
    """Return the sizes of an input; of what inputs are computed of, as of values in between."""
    return made.sizes.size(name, layout) if name in made.group.inputs else made.sizes.inner(layout.size)


def _tuple(parts: Iterator[str]) -> str:
    listed = list(parts)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


# cases ----------------------------------------------------------------------------------------------------------------


def cases(drafts: Sequence[Draft]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return the public cases of launches that one target serves, and how often each was launched."""
    counts = Counter(tuple(d.sizes.case().items()) for d in drafts)
    if len(counts) == 1:
        return {"as_called": dict(next(iter(counts)))}, {}
    named_ = {"-".join(f"{n}{size}" for n, size in case): case for case in counts}
    return {n: dict(case) for n, case in named_.items()}, {n: counts[case] for n, case in named_.items()}


def literal(case: dict[str, int]) -> str:
    return f"dict({', '.join(f'{n}={size}' for n, size in case.items())})"


# work -----------------------------------------------------------------------------------------------------------------


def flops(made: Draft) -> str:
    """Return the arithmetic of a case: operations of each element, and two for each step of a dot."""
    total, nodes = Counter[str](), made.found.nodes if made.found else ()
    for node in nodes:
        if node.op not in _FREE:
            total[_work(made, node)] += 1
    terms = [in_case(text if n == 1 else f"{n} * {text}", made.symbols) for text, n in total.items() if text != "0"]
    return " + ".join(terms) or "1"


def _work(made: Draft, node: Node) -> str:
    sizes = made.sizes
    if node.op in _DOTS and len(node.reads) > _DOTS[node.op]:
        of = _layout_size(made, node.reads[_DOTS[node.op]])
        return f"{sizes.elements(node)} * {2 * int(of[-1])}" if of and of[-1].isdigit() else sizes.elements(node)
    if node.op in _REDUCING and node.reads:
        return product(sizes.inner(_layout_size(made, node.reads[0]))) or "0"
    return sizes.elements(node)


def _layout_size(made: Draft, name: str) -> Sequence[str]:
    node, arg = made.group.nodes.get(name), made.group.inputs.get(name)
    layout = (arg.layout if arg else None) or (node.layout if node else None)
    return layout.size if layout else ()


def moved(made: Draft) -> list[str]:
    """Return the bytes of each tensor that is read or written, as expressions on a case."""
    terms = list[str]()
    for name, arg in made.group.inputs.items():
        terms.append(_bytes(made.sizes, name, arg, _gathered(made, name)))
    terms += [_bytes(made.sizes, n, a, "") for n, a in made.group.outputs.items()]
    return [in_case(t, made.symbols) for t in terms]


def _bytes(sizes: Sizes, name: str, arg: Arg, gathered: str) -> str:
    assert arg.layout is not None
    count, width = product(sizes.size(name, arg.layout)), BYTES.get(arg.layout.dtype, 1)
    count = f"min({count}, {gathered})" if gathered else count
    return f"{count} * {width}" if width > 1 else count


def _gathered(made: Draft, name: str) -> str:
    """Return how many elements are read of a tensor through indices; empty where it is read as a whole."""
    nodes = made.found.nodes if made.found else ()
    readers = [n for n in nodes if name in n.reads]
    if not readers or any(n.op not in ("embedding", "gather", "index") or n.reads[0] != name for n in readers):
        return ""
    return " + ".join(made.sizes.elements(n) for n in readers)


def bytes_seen(made: Draft) -> int:
    """Return the bytes that a launch moved as it was seen, about: for a share of all."""
    seen, total = made.sizes.case(), 0
    for arg in (*made.group.inputs.values(), *made.group.outputs.values()):
        assert arg.layout is not None
        count = value(product(arg.layout.size), seen) if arg.layout.size else 1
        total += (count or 0) * BYTES.get(arg.layout.dtype, 1)
    return total
