"""TTGIR ops of an edit -> ops in the edited tree: labels in them become values, new names are not those of others.

`%$L31` is the result of the op that line L31 is of, `%$L31#1` its second. All other values are named as the text names
them. A result whose name is taken gets another one, which only its own block sees.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest

from pgo_agent.sandbox.ttgir.edits import dominance, mutable_tree, script
from pgo_agent.sandbox.ttgir.edits.errors import BadEdit
from pgo_agent.sandbox.ttgir.edits.mutable_tree import MutableOperation
from pgo_agent.sandbox.ttgir.edits.places import Lines
from pgo_agent.sandbox.ttgir.edits.script import Edit
from pgo_agent.sandbox.ttgir.tokens import Unreadable, tokens
from pgo_agent.sandbox.ttgir.tree import Argument, Op, Region

_RESULT = re.compile(r"%\$([A-Za-z][0-9]+)(?:#([0-9]+))?")


def operations(edit: Edit, block: str, lines: Lines, free: frozenset[str] = frozenset()) -> list[MutableOperation]:
    """Return the ops of a block, not yet in their place. `free`: names that may be given anew, for their ops go."""
    read(edit, block)
    text = _RESULT.sub(lambda m: _result(edit, lines, m), _indented(block))
    names, scope = _Names(lines.operations[0], text, free), dict[str, str]()
    renamed = "".join("".join(names.op(op, scope)) for op in read(edit, text))
    ops = read(edit, renamed.strip("\n"))
    _aliases(edit, text, lines)
    return [mutable_tree.operation(op, None, None) for op in ops]


def read(edit: Edit, block: str) -> tuple[Op, ...]:
    """Return the ops of a block as they are written. Raises BadEdit when there are none."""
    try:
        ops = script.ops(block)
    except Unreadable as e:
        raise BadEdit(edit, f"its block cannot be read: {e}") from None
    if not ops:
        raise BadEdit(edit, "its block holds no op; delete lines to take them away")
    return ops


def _indented(block: str) -> str:
    """Return a block without empty lines, each line as deep as the braces around it."""
    indented, depth = list[str](), 1
    for line in filter(None, map(str.strip, block.splitlines())):
        at = depth - line.startswith(("}", "^"))
        indented.append(mutable_tree.STEP * max(at, 1) + line)
        depth += line.endswith("{") - line.startswith("}")
    return "\n".join(indented)


def _result(edit: Edit, lines: Lines, match: re.Match[str]) -> str:
    """Return the name of a line's result as it is now."""
    label = match[1].upper()
    operation = lines.present(edit, lines.index(edit, label))
    values = operation.results if operation is not None else []
    if not values:
        raise BadEdit(edit, f"{match[0]} is nothing: the op of {label} gives no result")
    if len(values) > 1 and match[2] is None:
        raise BadEdit(edit, f"{label} gives {len(values)} results; write %${label}#0 to %${label}#{len(values) - 1}")
    if int(match[2] or 0) >= len(values):
        raise BadEdit(edit, f"{match[0]} is nothing: {label} gives {len(values)} results, the first is #0")
    return values[int(match[2] or 0)].reference


def _aliases(edit: Edit, text: str, lines: Lines) -> None:
    """Raise BadEdit for a layout or location that the text does not define."""
    used = {t.text for t in tokens(text) if t.kind == "alias" and "." not in t.text}
    unknown = sorted(used - lines.aliases.keys())
    if unknown:
        available = ", ".join(sorted(a for a in lines.aliases if not a.startswith("#loc")))
        raise BadEdit(
            edit, f"there is no {unknown[0]}; there are {available}; write another layout out: #ttg.blocked<{{...}}>"
        )


class _Names:
    """Gives values of a block names that nothing else in the text has."""

    def __init__(self, root: MutableOperation, text: str, free: frozenset[str]) -> None:
        self.root, self.text = root, text
        names = {v.name for operation in root.walk() for v in operation.results if not operation.gone}
        names |= {v.name for operation in root.walk() for room in operation.rooms for v in room.arguments}
        self.taken = names - free

    def op(self, op: Op, scope: dict[str, str]) -> Iterator[str]:
        """Yield the text of an op under its new names. Adds its results to `scope`."""
        results = self._fresh(r.partition("#")[0] for r in op.results)
        new_names = scope | self._renamed(op.defined)
        for i, (part, following) in enumerate(zip_longest(op.parts, op.parts[1:])):
            if isinstance(part, Region):
                yield from self._region(part, dict(new_names))
            else:
                entering = following.blocks[0].arguments if isinstance(following, Region) and following.blocks else ()
                new_names |= self._renamed(entering if not op.defined else ())
                left, rest = _at_equals(part) if results and i == 0 else ("", part)
                yield mutable_tree.renamed(left, results) + mutable_tree.renamed(rest, new_names)
        scope |= results

    def _region(self, region: Region, new_names: dict[str, str]) -> Iterator[str]:
        for block in region.blocks:
            new_names |= {k: v for k, v in self._renamed(block.arguments).items() if k not in new_names}
            yield mutable_tree.renamed(block.head, new_names)
            for op in block.ops:
                yield from self.op(op, new_names)

    def _renamed(self, arguments: tuple[Argument, ...]) -> dict[str, str]:
        return self._fresh(a.name for a in arguments)

    def _fresh(self, names: Iterator[str]) -> dict[str, str]:
        new = {name: self._free(name) for name in names if name in self.taken}
        self.taken |= set(new.values())
        return new

    def _free(self, name: str) -> str:
        return dominance.fresh(self.root, name, f"{self.text}\n{' '.join(sorted(self.taken))}")


def _at_equals(text: str) -> tuple[str, str]:
    """Return what stands before the equals sign behind an op's results, and the rest: both may name one value."""
    at = 0
    for token in tokens(text):
        if token.text == "=":
            break
        at += len(token.text)
    return text[:at], text[at:]
