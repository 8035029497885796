"""The rows of Inductor's matmul template, `triton_mm`: its text names them `M`, and masks what it stores by that.

Blocks of rows stay whole, for the template tells Triton so. Other templates are left as they are. Relies on `calls.py`.
"""

import ast
from collections.abc import Iterator

from pgo_agent.agent.commands.init.inductor.calls import Launch
from pgo_agent.agent.commands.init.inductor.turned import Turned

_LEFT, _RIGHT = "arg_A", "arg_B"


def rows_of(launch: Launch, function: ast.FunctionDef) -> Iterator[Turned]:
    """Yield the rows of a launch, if it is of that template."""
    stated = dict(_numbers(function))
    sizes = [stated.get(n) for n in ("M", "N", "K", "BLOCK_M", "BLOCK_N")]
    if None in sizes or not {_LEFT, _RIGHT} <= {a.parameter for a in launch.args}:
        return
    m, n, k, block_m, block_n = (s for s in sizes if s is not None)
    columns = -(-n // block_n)
    if launch.grid != (str(-(-m // block_m) * columns), "1", "1"):
        return
    axes = dict[str, tuple[int, int, int]]()
    for arg in launch.args:
        size = arg.layout.size if arg.layout is not None else ()
        if arg.parameter == _LEFT and size != (str(m), str(k)):
            return
        if len(size) == 1 and size[0] == str(m) and m == n:
            return  # of rows or of columns: nothing tells
        if size[:1] == (str(m),) and arg.parameter != _RIGHT:
            axes[arg.parameter] = (0, m, 1)
    grid = f"triton.cdiv(rows, {block_m})" + (f" * {columns}" if columns > 1 else "")
    yield Turned("", "M", m, True, axes, m, grid)


def _numbers(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(n))):
                yield name, n
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int(n))):
                yield name, n
