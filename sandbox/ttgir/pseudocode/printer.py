"""Walks a kernel and drafts its lines: headers of loops, branches and roles, and what each op between them says.

Every op ends up in the line that it is, the first that it is folded into, or the header of what it ends.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir.pseudocode import kinds, layouts, statements
from pgo_agent.sandbox.ttgir.pseudocode.expressions import Expressions
from pgo_agent.sandbox.ttgir.pseudocode.folding import Folding
from pgo_agent.sandbox.ttgir.pseudocode.graph import Body, Node, Value, inits
from pgo_agent.sandbox.ttgir.pseudocode.naming import Names
from pgo_agent.sandbox.ttgir.pseudocode.variables import Variables, carries, departures
from pgo_agent.sandbox.ttgir.pseudocode.writing import Writing


@dataclass
class Draft:
    """A line before it has a label."""

    text: str
    comment: str
    depth: int
    loops: int
    role: str
    nodes: list[Node]  # the one that it is of first


@dataclass
class Where:
    """Where a line stands."""

    depth: int = 0
    loops: int = 0
    role: str = ""

    def inside(self, loops: int = 0, role: str = "") -> "Where":
        return Where(self.depth + 1, self.loops + loops, role or self.role)


@dataclass
class Printer:
    aliases: Mapping[str, str]
    folding: Folding
    variables: Variables
    names: Names
    facts: Mapping[str, str] = field(default_factory=dict)  # attributes of the module
    lines: list[Draft] = field(default_factory=list)
    shown: set[Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.writing = Writing(Expressions(self.folding, self._name), self.folding, self.aliases)

    def _name(self, value: Value) -> str:
        variable = self.variables.get(value)
        return self.names.get(variable, "?") if variable is not None else "?"

    def module(self, root: Node) -> list[Draft]:
        """Return all lines, the kernel's first."""
        self.facts = root.op.attributes
        functions = [n for b in root.bodies for n in b.nodes]
        for node in sorted(functions, key=lambda n: "public" not in n.op.words):
            self.node(node, Where())
        if self.lines:
            self.lines[0].nodes.append(root)
        return self.lines

    def node(self, node: Node, at: Where) -> None:
        """Add the lines of an op."""
        if not self._shown(node):
            return
        form = _STRUCTURED.get(node.name)
        if form is not None and node.bodies:
            form(self, node, at)
            return
        line = self._emit(at, *statements.line(self.writing, node), node)
        if node.name in kinds.EXCHANGES:
            line.nodes += list(node.walk())[1:]
        else:
            self._bodies(node, at, line)

    def _emit(self, at: Where, text: str, comment: str, *owners: Node) -> Draft:
        """Add a line, with all that was folded into its text and stands nowhere else."""
        written = [m for n in owners for m in (n, *n.duplicates)]
        self.shown.update(written)
        used = dict.fromkeys(self.writing.values.used)
        folded = [m for n in used if n not in self.shown for m in (n, *n.duplicates)]
        self.writing.values.used.clear()
        self.shown.update(folded)
        self.lines.append(Draft(text, comment, at.depth, at.loops, at.role, written + folded))
        return self.lines[-1]

    def _body(self, body: Body, at: Where, header: Draft) -> None:
        """The lines of a body, and of what it hands over at its end."""
        for node in body.nodes:
            self.node(node, at)
        end = body.end
        if end is None or end.name not in kinds.TERMINATORS or _says(end):
            return
        assigned = self._assigned(departures(body))
        if assigned:
            word = "next " if body.owner.name in kinds.LOOPS else ""
            self._emit(at, word + ", ".join(assigned), "", end)
        else:
            header.nodes.append(end)

    def _assigned(self, pairs: list[tuple[Value, Value]]) -> list[str]:
        """`m = m_new` for each variable that must be set; all are set at once."""
        assignments = []
        for taker, source in pairs:
            name, text = self._name(taker), self.writing.text(source)
            if not taker.hidden and name != text and self._matters(taker):
                assignments.append(f"{name} = {text}")
        return assignments

    def _matters(self, value: Value) -> bool:
        """Return whether any line reads a value, in the loop that carries it or behind it."""
        owner = value.body.owner if value.body is not None and value.node is None else None
        behind = owner.results if owner is not None and owner.name == "scf.for" else []
        result = behind[value.index - 1 : value.index] if value.index else []
        return any(self.folding.sites.get(v) for v in (value, *result))

    def _bodies(self, node: Node, at: Where, line: Draft) -> None:
        """The regions of an op that is not known here."""
        for body in node.bodies:
            if len(node.bodies) > 1:
                self._block(body, at)
            self._body(body, at.inside(), line)

    def _block(self, body: Body, at: Where) -> None:
        label = body.block.head.split("(")[0].strip().rstrip(":") or body.region.name or f"region {body.number}"
        arguments = ", ".join(self._name(v) for v in body.arguments if not v.hidden)
        self._emit(at, f"{label}({arguments}):" if arguments else f"{label}:", "")

    # structures -------------------------------------------------------------------------------------------------------

    def _function(self, node: Node, at: Where) -> None:
        kind = "kernel" if "public" in node.op.words else "function"
        name = next((w for w in node.op.words if w.startswith("@")), "@?").removeprefix("@")
        comment = self._launch() if kind == "kernel" else ""
        line = self._emit(at, f"{kind} {name}({self._signature(node.bodies[0].arguments)}):", comment, node)
        for i, body in enumerate(node.bodies):
            if i:
                self._block(body, at)
            self._body(body, at.inside(), line)

    def _signature(self, arguments: list[Value]) -> str:
        """Q, K: *f16, S: i32; a run of arguments without names as arg6..arg19."""
        groups, at = [], 0
        while at < len(arguments):
            kind = layouts.of_type(arguments[at].type)
            end = next((i for i in range(at, len(arguments)) if layouts.of_type(arguments[i].type) != kind), None)
            run = [self._name(v) for v in arguments[at:end]]
            anonymous = len(run) > 2 and all(name.startswith("arg") for name in run)
            groups.append(f"{f'{run[0]}..{run[-1]}' if anonymous else ', '.join(run)}: {kind}")
            at += len(run)
        return ", ".join(groups)

    def _launch(self) -> str:
        warps, target = (self.facts.get(k, "").split(" ")[0] for k in ("ttg.num-warps", "ttg.target"))
        ctas = self.facts.get("ttg.num-ctas", "1").split(" ")[0]
        parts = [f"{warps} warps" if warps else "", f"{ctas} CTAs" if ctas != "1" else "", target.strip('"')]
        return ", ".join(p for p in parts if p)

    def _for(self, node: Node, at: Where) -> None:
        body = node.bodies[0]
        counter = self._name(body.arguments[0]) if body.arguments else "_"
        low, high, step = (self.writing.operand(node, i) for i in range(3))
        bounds = f"{low}, {high}, {step}" if step != "1" else f"{low}, {high}" if low != "0" else high
        carried = self._carried(node)
        text = f"for {counter} in range({bounds})" + (f" carrying {', '.join(carried)}" if carried else "") + ":"
        line = self._emit(at, text, self._types(node), node)
        self._body(body, at.inside(loops=1), line)

    def _carried(self, loop: Node) -> list[str]:
        """acc for what is set already, l = 0.0 for what is set here."""
        texts = []
        for value, start in zip(carries(loop), inits(loop) or (), strict=False):
            name, text = self._name(value), self.writing.text(start)
            if not value.hidden and self._matters(value):
                texts.append(name if name == text else f"{name} = {text}")
        return texts

    def _types(self, loop: Node) -> str:
        """acc, dq: 128x64 f32 for the tensors that a loop carries: they stay in registers."""
        names_by_type: dict[str, list[str]] = {}
        for value in carries(loop):
            if value.shape is not None and self._matters(value):
                names_by_type.setdefault(layouts.of_type(value.type), []).append(self._name(value))
        return "; ".join(f"{', '.join(names)}: {kind}" for kind, names in names_by_type.items())

    def _while(self, node: Node, at: Where) -> None:
        """The condition at the head where it is one expression, in a line of its own else."""
        before, *after = node.bodies
        end = before.end
        carried = self._carried(node)
        suffix = (f" carrying {', '.join(carried)}" if carried else "") + ":"
        plain = end is not None and all(n in self.folding.inlined for n in before.nodes[:-1])
        plain = plain and not self._assigned(departures(before))
        condition = self.writing.operand(end, 0) if end is not None else "?"
        line = self._emit(at, (f"while {condition}" if plain else "loop") + suffix, self._types(node), node)
        inside = at.inside(loops=1)
        if not plain:
            self._body(before, inside, line)
            self._emit(inside, f"leave unless {condition}", "")
        elif end is not None:
            line.nodes.append(end)
        for body in after:
            self._body(body, inside, line)

    def _if(self, node: Node, at: Where) -> None:
        line = self._emit(at, f"if {self.writing.operand(node, 0)}:", "", node)
        for i, body in enumerate(node.bodies):
            if i and (any(map(self._shown, body.nodes)) or self._assigned(departures(body))):
                self.writing.values.used.clear()
                line = self._emit(at, "else:", "")
            self._body(body, at.inside(), line)

    def _shown(self, node: Node) -> bool:
        """Return whether an op has a line of its own. MLIR leaves out a yield of nothing, so a body may end with
        one."""
        return node not in self.folding.inlined and (node.name not in kinds.TERMINATORS or _says(node))

    def _specialize(self, node: Node, at: Where) -> None:
        """A header for each role, with its warps and the registers that it asks for."""
        header = self._emit(at, "warp_specialize:", f"{len(node.bodies)} roles at a time", node)
        registers = [n.strip() for n in node.op.attributes.get("requestedRegisters", "").partition(":")[2].split(",")]
        for i, body in enumerate(node.bodies):
            name = body.region.name or "default"
            line = self._emit(at.inside(role=name), f"{name}:", self._role(body, "".join(registers[i - 1 : i])))
            self._body(body, at.inside().inside(role=name), header if not line.nodes else line)

    def _role(self, body: Body, registers: str) -> str:
        warps = _WARPS.search(body.region.opening)
        count = warps[1] if warps else self.facts.get("ttg.num-warps", "").split(" ")[0]
        inside = {n.name for node in body.nodes for n in node.walk()}
        does = ["copies"] * bool(inside & kinds.FILLS) + ["dots"] * bool(inside & kinds.DOTS)
        request = f"asks for {registers.rstrip('>')} registers" if registers.rstrip(">").isdigit() else ""
        return ", ".join(p for p in (f"{count} warps" if count != "1" else "1 warp", request, " and ".join(does)) if p)


def _says(terminator: Node) -> bool:
    """Return whether the end of a body has a line of its own: what a function returns, and where it leaves early."""
    body = terminator.body
    early = body is not None and body is not body.owner.bodies[0]
    return terminator.name == "tt.return" and (bool(terminator.operands) or early)


_WARPS = re.compile(r"num_warps\((\d+)\)")
_STRUCTURED: dict[str, Callable[[Printer, Node, Where], None]] = {
    "tt.func": Printer._function,
    "scf.for": Printer._for,
    "scf.while": Printer._while,
    "scf.if": Printer._if,
    "ttg.warp_specialize": Printer._specialize,
}
