"""What whole numbers an input of a kernel may hold: indices lie in the tensor that they are for.

Inductor's kernels assert it (`tl.device_assert(0 <= tmp0 < 32000)`), and the graph's operations say it, too. Reads
text and runs nothing.
"""

import ast
import re
from collections.abc import Mapping

from pgo_agent.agent.commands.init.inductor.fragment import Layout, Node
from pgo_agent.agent.commands.init.inductor.groups import Group
from pgo_agent.agent.commands.init.inductor.output_code import Kernel

_SAME = frozenset({"convert_element_type", "view", "reshape", "unsqueeze", "squeeze", "expand", "where", "permute"})


def high(group: Group, name: str) -> str:
    """Return the number below which an input's values lie, as a size of the graph; empty where nothing tells."""
    asserted = [
        n
        for launch in group.launches
        for a in launch.args
        if a.held == name
        for n in _asserted(launch.kernel, a.parameter)
    ]
    if asserted:
        return str(min(asserted))
    sizes = {n: a.layout for n, a in group.inputs.items()} | {n: v.layout for n, v in group.nodes.items()}
    return next(iter(_indexed(group.nodes, sizes, {name})), "")


def _asserted(kernel: Kernel, parameter: str) -> list[int]:
    """Return the bounds that a kernel asserts of what it loads from a parameter."""
    assert kernel.function is not None
    made = dict[str, set[str]]()
    found = list[int]()
    for node in ast.walk(kernel.function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made.setdefault(name, set()).update(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
            case ast.Call(func=ast.Attribute(attr="device_assert"), args=[condition, *_]):
                bounds = re.findall(r"\b(\w+) < (\d+)", ast.unparse(condition))
                found += [int(n) for of, n in bounds if parameter in _from(of, made)]
    return found


def _from(name: str, made: Mapping[str, set[str]]) -> set[str]:
    """Return the names that a value is computed of, through whatever."""
    seen, waiting = set[str](), [name]
    while waiting:
        if (one := waiting.pop()) not in seen:
            seen.add(one)
            waiting += made.get(one, ())
    return seen


def _indexed(nodes: Mapping[str, Node], sizes: Mapping[str, Layout | None], names: set[str]) -> list[str]:
    """Return the sizes of what the values with these names are indices of."""
    found = list[str]()
    for node in nodes.values():
        read = node.reads
        if not names & set(read):
            continue
        if node.op in _SAME:
            names = names | {node.name}
        along = node.args[1] if len(node.args) > 1 else ""
        axis = {"embedding": "0", "gather": along, "index_select": along}.get(node.op)
        of = sizes.get(read[0]) if read else None
        if axis is None or of is None or read[0] in names or not re.fullmatch(r"-?\d+", axis):
            continue
        if -len(of.size) <= int(axis) < len(of.size):
            found.append(of.size[int(axis)])
    return found
