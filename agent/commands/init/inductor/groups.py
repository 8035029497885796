"""Which launches a target has: one, or several where one hands to the next what has no name in the model's graph.

Inductor splits a long reduction: the first kernel stores shares of it, the next one adds them up. No operation of the
model says what a share is, so both belong into one target. Relies on `calls.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pgo_agent.agent.commands.init.inductor.calls import Arg, Followed, Launch
from pgo_agent.agent.commands.init.inductor.fragment import Node
from pgo_agent.agent.commands.init.inductor.output_code import Module


@dataclass(frozen=True)
class Group:
    """Launches that are optimized together, of one module."""

    module: Module
    launches: tuple[Launch, ...]
    nodes: Mapping[str, Node]  # of all fragments of the module
    symbols: Mapping[str, str]  # an argument of the graph -> the size that it is
    every: "Sequence[Group]" = field(repr=False)  # of the module, this one too

    @property
    def name(self) -> str:
        return self.launches[0].kernel.name

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(launch.kernel.name for launch in self.launches))

    @property
    def atens(self) -> list[str]:
        return list(dict.fromkeys(n for launch in self.launches for n in launch.kernel.atens))

    @cached_property
    def inputs(self) -> dict[str, Arg]:
        """What it is given, by its name in the graph."""
        made, found = set[str](), dict[str, Arg]()
        for launch in self.launches:
            for arg in launch.reads:
                if arg.held not in made:
                    found.setdefault(arg.held, arg)
            made |= {a.result for a in launch.writes}
        return found

    @cached_property
    def outputs(self) -> dict[str, Arg]:
        """What it gives, by its name in the graph, but for shares; all that it stores where nothing has one."""
        stored = [a for launch in self.launches for a in launch.writes]
        named = [a for a in stored if not a.result_partial]
        return {a.result: a for a in named or stored}

    @property
    def changed(self) -> list[str]:
        """The inputs that it writes into."""
        return [a.held for launch in self.launches for a in launch.writes if a.held in self.inputs]


def groups(module: Module, followed: Followed) -> list[Group]:
    """Return the groups of a module's launches, in the order of their first ones."""
    nodes = {n: node for launch in followed.launches for n, node in launch.fragment.nodes.items()}
    root, makers = list(range(len(followed.launches))), dict[str, int]()
    for i, launch in enumerate(followed.launches):
        for arg in launch.reads:
            if arg.partial and arg.held in makers:
                old = root[makers[arg.held]]
                root = [root[i] if r == old else r for r in root]
        makers |= {a.result: i for a in launch.writes if a.result_partial}
    listed: dict[int, list[Launch]] = {}
    for r, launch in zip(root, followed.launches, strict=True):
        listed.setdefault(r, []).append(launch)
    every = list[Group]()
    every += [Group(module, tuple(of), nodes, followed.symbols, every) for of in listed.values()]
    return every
