"""Which assignments of a kernel must agree: those that one read may see, and a helper's results with their readers.

A group is inside of a domain or outside of it, as a whole. Relies on `facts.py` and `reach.py`; what a domain is, the
caller says.
"""

from collections.abc import Iterable

import libcst as cst
from pgo_agent.agent.moves.analysis.facts import Program
from pgo_agent.agent.moves.analysis.reach import Definition


class Groups:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.inside = set[Definition]()  # one definition of every group that is
        self._slots: dict[tuple[str, int | None], Definition] = {}
        self._above: dict[Definition, Definition] = {}
        self._group()

    def add(self, definitions: Iterable[Definition]) -> None:
        self.inside |= {self._root(d) for d in definitions}

    def has(self, d: Definition) -> bool:
        return self._root(d) in self.inside

    def has_name(self, name: cst.CSTNode) -> bool:
        return isinstance(name, cst.Name) and any(self.has(d) for d in self.program.definitions(name))

    def slot(self, helper: str, part: int | None) -> Definition:
        """Stands for what a helper returns, or for one element of it."""
        return self._slots.setdefault((helper, part), Definition(f"what {helper} returns", helper))

    def parts(self, helper: str) -> set[int]:
        """The elements of what a helper returns that are inside."""
        return {p for (f, p), d in self._slots.items() if f == helper and p is not None and self.has(d)}

    @property
    def interfaces(self) -> set[str]:
        """Helpers that take or give what is inside."""
        given = {f for (f, _), d in self._slots.items() if self.has(d)}
        return given | {d.function for d in list(self._above) if isinstance(d.statement, cst.Param) and self.has(d)}

    def _root(self, d: Definition) -> Definition:
        while self._above.setdefault(d, d) is not d:
            d = self._above[d]
        return d

    def _unite(self, group: Iterable[Definition]) -> None:
        roots = [self._root(d) for d in group]
        for other in roots[1:]:
            self._above[self._root(other)] = self._root(roots[0])

    def _group(self) -> None:
        for reach in self.program.reaches.values():
            for seen in reach.reads.values():
                self._unite(seen)
            same: dict[int, list[Definition]] = {}
            for d in reach.definitions:
                if d.part is not None and isinstance(d.value, cst.Call) and self.program.helper(d.value):
                    self._unite([d, self.slot(self.program.helper(d.value), d.part)])
                elif isinstance(d.statement, cst.Assign) and d.part is None:
                    same.setdefault(id(d.value), []).append(d)  # a = b = value
            for group in same.values():
                self._unite(group)
