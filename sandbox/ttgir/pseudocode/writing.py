"""What the forms of all lines share: operands as text, conditions, assignments, types."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir.pseudocode import layouts
from pgo_agent.sandbox.ttgir.pseudocode.expressions import BINARY, Expressions
from pgo_agent.sandbox.ttgir.pseudocode.folding import Folding
from pgo_agent.sandbox.ttgir.pseudocode.graph import Node, Value

CodeAndComment = tuple[str, str]  # code and comment of a line


@dataclass
class Writing:
    values: Expressions
    folding: Folding
    aliases: Mapping[str, str]

    def text(self, value: Value | None, tight: int = 0) -> str:
        return self.values.text(value, tight)

    def operand(self, node: Node, i: int) -> str:
        return self.values.text(node.operand(i))

    def listed(self, values: Sequence[Value]) -> str:
        return ", ".join(self.values.text(v) for v in values)

    def condition(self, value: Value | None) -> str:
        """Return ` if more`; nothing for what is always true."""
        text = self.values.text(value) if value is not None else "True"
        return "" if text == "True" else f" if {text}"

    def read(self, value: Value) -> bool:
        """Return whether any line reads a value."""
        return bool(self.folding.sites.get(value)) and not value.hidden

    def results(self, node: Node) -> list[str]:
        """Return the names of an op's results, without tokens and what nobody reads."""
        return [self.values.name(v) for v in node.results if self.read(v)]

    def assign(self, node: Node, text: str) -> str:
        """Return x = text for an op whose results are read, the text alone for another."""
        names = self.results(node)
        return f"{', '.join(names)} = {text}" if names else text

    def assigned(self, node: Node) -> str:
        """Return x = a + b for a pure op, or x += b where it is one."""
        name = self.values.name(node.results[0]) if node.results else ""
        sign = BINARY.get(node.name.rpartition(".")[2], ("", 0))[0]
        left = node.operand(0)
        if sign in ("+", "-", "*", "/") and left is not None and left.shape and self.text(left) == name:
            return f"{name} {sign}= {self.operand(node, 1)}"
        text = self.values.op(node)[0]
        return f"{name} = {text}" if name else text

    def type(self, value: Value | None) -> str:
        """Return 128x64 f16; empty for a scalar."""
        return layouts.of_type(value.type) if value is not None and value.shape else ""

    def layout(self, value: Value | None) -> str:
        return layouts.encoding(value.type, self.aliases) if value is not None else ""


Form = Callable[[Writing, Node], CodeAndComment]
