"""A target for a group of launches, before its text: reference, names, launches and sizes, and why there is none.

Everything in it that comes of the file is a name, a number or an operation of torch; only kernels are text, and these
run in the box alone. Relies on `reference.py` and `sizes.py`.
"""

import builtins
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pgo_agent.agent.commands.init.inductor import drawn, fx_text, reference, rows
from pgo_agent.agent.commands.init.inductor.calls import Arg, Launch
from pgo_agent.agent.commands.init.inductor.fx_text import SHAPED, NoReference, Writer
from pgo_agent.agent.commands.init.inductor.groups import Group
from pgo_agent.agent.commands.init.inductor.reference import Reference
from pgo_agent.agent.commands.init.inductor.sizes import ROWS, Sizes
from pgo_agent.sandbox.target import CONTRACT

_TAKEN = CONTRACT | {"kernel", "torch", "triton", "tl", "cast", "kind", "case", "generator", "dtype", ROWS, "math"}
_TAKEN |= {"normal", "integers", "drawn", "libdevice", "tl_math", "triton_helpers", "prepare_softmax_online"}
_TAKEN |= {"values", "args"}


@dataclass(frozen=True)
class Draft:
    """What a target is written from."""

    group: Group
    sizes: Sizes
    found: Reference | None
    missing: str  # why there is no reference

    @cached_property
    def arguments(self) -> list[str]:
        """Names of what kernel() takes: tensors, and symbols."""
        return [*(named(n) for n in self.group.inputs), *self.symbols]

    @cached_property
    def symbols(self) -> list[str]:
        return self.sizes.symbols if self.sizes.rows is None else []

    def text_key(self) -> str:
        """Return what is the same for launches that one target can serve: the same text, in whatever names."""
        parts = [_kernel_key(launch, self.sizes, i) for i, launch in enumerate(self.group.launches)]
        parts += [f"{a.layout.dtype}{self.sizes.size(n, a.layout)}" for n, a in self.group.inputs.items() if a.layout]
        parts += list(self.found.lines) if self.found else [self.missing]
        order: dict[str, str] = {}
        names = {*map(named, self.group.inputs), *map(named, self.group.nodes), *self.group.inputs}
        text = "\n".join(parts)
        return re.sub(
            r"\b[A-Za-z_]\w*\b",
            lambda m: order.setdefault(m[0], f"v{len(order)}") if m[0] in names or "getitem" in m[0] else m[0],
            text,
        )


def draft(group: Group) -> Draft:
    """Return the draft of a group. Raises NoReference where no target can be written, with the reason."""
    _check(group)
    sizes = Sizes(group, rows.free(group))
    if sizes.rows is not None:
        sizes = replace(
            sizes, rows=rows.coarser(sizes.rows, [n.layout for n in group.nodes.values() if n.op in SHAPED])
        )
    try:
        return Draft(group, sizes, reference.write(group, writer(sizes)), "")
    except NoReference as e:
        if not group.outputs:
            raise
        return Draft(group, sizes, None, str(e))


def with_blocks(made: Draft, kernels: Mapping[str, str]) -> Draft:
    """Return a draft that knows the blocks of its kernels, whose configurations stand in these texts."""
    if made.sizes.rows is None:
        return made
    blocks = dict[str, int]()
    for launch, turned in zip(made.group.launches, made.sizes.rows.launches, strict=True):
        name = f"{turned.prefix.upper()}BLOCK" if turned.prefix else "BLOCK_M"
        listed = re.findall(rf"'{name}': (\d+)|\b{name}: tl.constexpr = (\d+)", kernels[launch.kernel.name])
        blocks[launch.kernel.name] = max((int(a or b) for a, b in listed), default=1)
    return replace(made, sizes=replace(made.sizes, blocks=blocks))


def fixed(made: Draft) -> Draft:
    """Return a draft with the sizes of the call alone."""
    sizes = made.sizes.fixed()
    return replace(made, sizes=sizes, found=reference.write(made.group, writer(sizes)) if made.found else None)


def everywhere(made: Draft) -> Draft:
    """Return a draft whose values all follow the rows where their sizes can, also those that are made of none with
    rows: a one that is expanded, say."""
    found = reference.write(made.group, writer(made.sizes, True)) if made.found else None
    return replace(made, found=found)


def writer(sizes: Sizes, everywhere: bool = False) -> Writer:
    """Return what writes the statements of a group's reference."""
    tensors = {n: a.layout for n, a in sizes.group.inputs.items() if a.layout is not None}
    floats = [named(n) for n, layout in tensors.items() if "float" in layout.dtype]
    symbols = {*sizes.symbols, *sizes.group.symbols.values()}
    first = named(next(iter(tensors)))
    aliases = sizes.group.symbols
    rows_, kind = sizes.rows.count if sizes.rows else 0, floats[0] if floats else ""
    following = set(sizes.rows.tensors) & set(tensors) if sizes.rows else set[str]()
    return Writer(
        lambda n: aliases.get(n) or named(n),
        symbols,
        f"{first}.device",
        kind,
        sizes.inner,
        rows_,
        following,
        everywhere,
        drawn.lanes(sizes.group),
    )


def named(name: str) -> str:
    """Return a name of the graph as one of the target's."""
    if name in _TAKEN or keyword.iskeyword(name) or hasattr(builtins, name):
        return f"{name}_"
    return name


def _check(group: Group) -> None:
    """Raise NoReference for a group that no target can be written for."""
    for launch in group.launches:
        if launch.kernel.kind != "triton":
            raise NoReference(f"it is no Triton kernel (async_compile.{launch.kernel.kind})")
        if launch.kernel.function is None:
            raise NoReference("its text has no function of that name")
        if launch.kernel.heuristic == "user_autotune":
            raise NoReference("it is a kernel of your own: `init FILE -- PROGRAM` sees how it is launched")
    if not group.inputs:
        raise NoReference("it reads no tensor: there is nothing to compare it on")
    for name, arg in [*group.inputs.items(), *group.outputs.items()]:
        if arg.layout is None or not arg.layout.dtype:
            raise NoReference(f"the file does not say of which size and type {name} is")
    _check_sizes(group)


def _check_sizes(group: Group) -> None:
    """Raise NoReference for a size that is more than arithmetic: nothing else of the file comes into kernel()."""
    symbols = set(group.symbols.values()) | set(Sizes(group, None).symbols)
    for text in _sizes(group):
        if not fx_text.arithmetic(text, symbols):
            raise NoReference(
                f"{text[:60]!r} is no size that the file tells: perhaps it is computed from a tensor's values"
            )
    for name in (*group.inputs, *group.outputs, *group.nodes):
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise NoReference(f"{name[:40]!r} is no name")


def _sizes(group: Group) -> Iterator[str]:
    for launch in group.launches:
        yield from launch.grid
        for arg in launch.args:
            yield from (*arg.layout.size, *arg.layout.stride) if arg.layout is not None else (arg.text,)


def _kernel_key(launch: Launch, sizes: Sizes, number: int) -> str:
    text = launch.kernel.text
    if sizes.rows is not None:
        text = rows.opened(text, launch.kernel.name, sizes.rows.launches[number])
    function = text[text.index(f"def {launch.kernel.name}") :]
    numbers = [a.text for a in launch.args if not a.tensor] if sizes.rows is None else []
    return "\n".join([function.replace(launch.kernel.name, "kernel"), *numbers])


# the launcher ---------------------------------------------------------------------------------------------------------


def launcher(made: Draft, statements: Mapping[int, str]) -> list[str]:
    """Return the body of kernel(). `statements`: the launches, with arguments called as `argument` calls them."""
    sizes, lines = made.sizes, list[str]()
    if where := sizes.where():
        lines.append(f"{ROWS} = {where.replace(where.partition('.')[0], named(where.partition('.')[0]), 1)}")
    allocated = set[str]()
    for i, launch in enumerate(made.group.launches):
        for arg in launch.args:
            if arg.tensor and not arg.held and local(arg) not in allocated:
                allocated.add(local(arg))
                lines.append(_allocation(made, arg))
        lines.append(statements[i].removesuffix(")") + _told(sizes, i) + ")")
    known = variables(made)
    return [*lines, f"return {', '.join(_shown(made, n, known[n]) for n in made.group.outputs)}"]


def _told(sizes: Sizes, number: int) -> str:
    """Return the argument of a launch that tells Triton how many rows there are."""
    if sizes.rows is None:
        return ""
    turned = sizes.rows.launches[number]
    return f", {turned.constant}={_times(turned.numel // sizes.rows.count)}"


def _times(per_row: int) -> str:
    return f"{ROWS} * {per_row}" if per_row > 1 else ROWS


def _shown(made: Draft, name: str, variable: str) -> str:
    """Return a result in the sizes that the graph has for it; memory that is used again may have others."""
    node, arg = made.group.nodes.get(name), made.group.outputs[name]
    wanted = node.layout if node is not None and node.layout is not None else arg.after
    if wanted is None or arg.layout is None or wanted.size == arg.layout.size:
        return variable
    return f"{variable}.view({', '.join(made.sizes.inner(wanted.size))})"


def local(arg: Arg) -> str:
    """Return the name of memory that kernel() allocates."""
    return f"out_{arg.text}" if arg.text.isidentifier() else "out"


def variables(made: Draft, until: int | None = None) -> dict[str, str]:
    """Return value -> the variable of kernel() that holds it, before a launch or at the end."""
    result = {n: named(n) for n in made.group.inputs}
    for launch in made.group.launches[:until]:
        result |= {a.result: result.get(a.held) or local(a) for a in launch.args if a.result}
    return result


def arguments(made: Draft, number: int) -> list[str]:
    """Return the arguments of a launch as Python in kernel()."""
    launch, known = made.group.launches[number], variables(made, number)
    texts = list[str]()
    for arg in launch.args:
        if arg.tensor:
            texts.append(known.get(arg.held) or local(arg))
        else:
            texts.append(_number(made.sizes, number, arg))
    turned = made.sizes.rows.launches[number] if made.sizes.rows is not None else None
    return [*texts, turned.grid, *launch.grid[1:]] if turned is not None and turned.grid else [*texts, *launch.grid]


def _number(sizes: Sizes, number: int, arg: Arg) -> str:
    if sizes.rows is None:
        return arg.text
    turned = sizes.rows.launches[number]
    per_row = turned.numel // sizes.rows.count
    if arg.parameter != turned.parameter:
        return arg.text
    return _times(per_row)


def _allocation(made: Draft, arg: Arg) -> str:
    assert arg.layout is not None
    size = made.sizes.size(arg.result, arg.layout)
    shapes = [f"({', '.join(x)}{',' if len(x) == 1 else ''})" for x in (size, arg.layout.stride)]
    device = f"{named(next(iter(made.group.inputs)))}.device"
    return f"{local(arg)} = torch.empty_strided({', '.join(shapes)}, dtype=torch.{arg.layout.dtype}, device={device})"
