"""Puts what a launcher needs of several files into one text: functions of other modules in place of their imports.

A module is taken in where a launched kernel is reached through it, so that the kernel can be changed, and where the
sandbox could not import it, because it lies in the user's own repository. Relies on `agent/kernel_part.py` to cut files
into blocks. It reads text and imports nothing.
"""

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.commands.init import command, operators, render, through_modules
from pgo_agent.agent.commands.init.through_modules import Import
from pgo_agent.agent.kernel_part import Block, block, blocks, used_by
from pgo_agent.sandbox import parsing, target
from pgo_agent.sandbox.packages_folder import packages_folder

DEEP = 16  # imports of imports that are followed


class _Clash(Exception):
    """Two files define one name, or nothing of a file is wanted."""


@dataclass(frozen=True)
class Modules:
    """Which modules may be taken in."""

    kernels: frozenset[Path]  # files of launched kernels
    between: frozenset[Path]  # files through which they were launched
    repository: Path  # of the user

    def wanted(self, file: Path) -> bool:
        return file in self.kernels or file in self.between or self.own(file)

    def own(self, file: Path) -> bool:
        """Whether only the user has it."""
        return file.is_relative_to(self.repository) and packages_folder(file) is None


def needed(path: Path, text: str, names: set[str], modules: Modules, imports: Sequence[str] = ()) -> list[Block]:
    """Return the blocks that names of a file need, in order, with those of other files. `imports`: further ones that
    the file would have.

    Where two files define one name, the import of the second stays.
    """
    inliner = _Inliner(modules)
    inliner.take(path.resolve(), text, names)
    for line in imports:
        inliner.bring(path.resolve(), _block(f"{line}\n"))
    return [_block(operators.replaced(b.text, inliner.operators)) for b in inliner.result if not inliner.idle(b)]


def own(path: Path, text: str, modules: Modules) -> list[Block]:
    """Return imports of a file as blocks, with what they bring from modules that only the user has."""
    inliner = _Inliner(Modules(frozenset(), frozenset(), modules.repository))
    inliner.bring(path.resolve(), _block(text))
    return inliner.result


class _Inliner:
    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.result: list[Block] = []
        self._taken = set[tuple[Path, int]]()
        self._owners = dict[str, tuple[Path, str]]()  # name -> its file, and the statement that defines it
        self._unneeded = set[str]()  # modules of which the text takes nothing any more
        self.operators = dict[str, str]()  # that the launcher calls by torch.ops -> the function of each

    def take(self, path: Path, text: str, names: set[str]) -> None:
        """Add what names of a file need. Raises _Clash."""
        parts = blocks(text)
        roots = {i for i, b in enumerate(parts) if b.names & names}
        used, imports = used_by(parts, roots), through_modules.imports([n for b in parts if b.imports for n in b.nodes])
        while more := self._operators(parts, used) - used:
            used |= used_by(parts, more)
        new = [i for i in sorted(used) if (path, i) not in self._taken]
        self._taken |= {(path, i) for i in new}
        taken = {i: self._own(path, parts[i]) for i in new if not parts[i].imports}  # before what imports bring
        for i in new:
            if parts[i].imports:
                self._import(path, parts[i])
            elif taken[i]:
                part = self._through_modules(path, parts[i], imports)
                self.result.append(_block(operators.plain(part)) if self._registered(part) else part)

    def _through_modules(self, path: Path, part: Block, imports: Sequence[Import]) -> Block:
        """Add what a part takes from wanted files by the names of modules, or imports itself; return it without those
        imports, and the others of it made absolute."""
        part = _block(part.text)  # so that places of nodes are those of its text
        inside = through_modules.imports(part.nodes)
        names, gone = dict[ast.Attribute, str](), list[Import]()
        for one in (*inside, *(o for o in imports if o.name not in {i.name for i in inside})):
            if one in inside and isinstance(one.node, ast.ImportFrom) and self._inlined(path, one.node, one.alias):
                gone.append(one)
            elif (attributes := self._attributes(path, part, one)) is not None:
                names |= attributes
                gone += [one] if one in inside else []
                self._unneeded |= {one.name}
        text = through_modules.rewritten(part.text, names, gone) if names or gone else part.text
        text = render.absolute(path, text) if inside else text
        return part if text == part.text else _block(text)

    def _attributes(self, path: Path, part: Block, module: Import) -> dict[ast.Attribute, str] | None:
        """Add all that a part takes of a module; return its names. None where something of it cannot be had."""
        taken = through_modules.taken(part.nodes, module.name)
        if taken is None or (file := _module(path, module.module)) is None or not self.modules.wanted(file):
            return None
        bound, before = through_modules.bound(part.nodes), self._state()
        names = {a: f"{module.name}_{a.attr}" if a.attr in bound else a.attr for a in taken}
        for attribute, name in names.items():
            alias = ast.alias(attribute.attr, name if name != attribute.attr else None)
            if not self._inlined(path, module.module, alias):
                self.result, self._taken, self._owners = before
                return None
        return names

    def _state(self) -> tuple[list[Block], set[tuple[Path, int]], dict[str, tuple[Path, str]]]:
        return list(self.result), set(self._taken), copy.copy(self._owners)

    def idle(self, part: Block) -> bool:
        """Whether a part only imports modules of which nothing is taken any more."""
        loaded = {n for b in self.result if not b.imports for n in b.loads}
        return part.imports and bool(part.names) and part.names <= self._unneeded - loaded

    def _operators(self, parts: Sequence[Block], used: set[int]) -> set[int]:
        """Return the blocks that define the operators which used ones call."""
        names = operators.called("".join(parts[i].text for i in used))
        found = {i: operator for i, b in enumerate(parts) if (operator := operators.registers(b, names))}
        self.operators |= {operator: min(parts[i].names) for i, operator in found.items()}
        return set(found)

    def _registered(self, block: Block) -> bool:
        return any(block.names == {function} for function in self.operators.values())

    def _own(self, path: Path, part: Block) -> bool:
        """Take the names of a part for a file; return whether it is to be added. Not where another file has the very
        statement, such as `logger = logging.getLogger(__name__)`. Raises _Clash where one has them by another."""
        owners = [self._owners.setdefault(n, (path, part.text)) for n in part.names]
        if any(owner != path and text.strip() != part.text.strip() for owner, text in owners):
            raise _Clash
        return all(owner == path for owner, _ in owners)

    def bring(self, path: Path, block: Block) -> None:
        """Add an import of names that the text does not have yet."""
        if not block.names <= {n for b in self.result for n in b.names}:
            self._import(path, block)

    def _import(self, path: Path, block: Block) -> None:
        """Add an import: what it brings from wanted files, and the rest of it as it is."""
        left = list[ast.stmt]()
        for node in block.nodes:
            aliases = node.names if isinstance(node, ast.ImportFrom) else []
            stay = [a for a in aliases if not (isinstance(node, ast.ImportFrom) and self._inlined(path, node, a))]
            if isinstance(node, ast.ImportFrom) and stay != aliases:
                left += [ast.ImportFrom(node.module, stay, node.level)] if stay else []
            else:
                left.append(node)
        if left != list(block.nodes):
            block = _block("".join(f"{ast.unparse(n)}\n" for n in left)) if left else _block("")
        text = render.absolute(path, block.text)
        if text.strip() and not any(b.text.strip() == text.strip() for b in self.result):
            self.result.append(Block(text, block.nodes, block.names, block.loads))

    def _inlined(self, path: Path, node: ast.ImportFrom, alias: ast.alias) -> bool:
        """Add what an import brings, if it comes from a wanted file; return whether it was added."""
        found = resolve(path, node, alias.name)
        if found is None or not self.modules.wanted(found[0]):
            return False
        file, name = found
        before = self._state()
        try:
            self.take(file, target.text(file), {name})
            added = {f for f, _ in self._taken - before[1]}
            if added and not (self.modules.own(file) or added & self.modules.kernels):
                raise _Clash  # a wrapper: no kernel is reached through it
            if (local := alias.asname or alias.name) != name:
                self._own(path, _block(f"{local} = {name}\n"))
                if not any(local in b.names for b in self.result):
                    self.result.append(_block(f"{local} = {name}\n"))
        except (_Clash, RecursionError):
            self.result, self._taken, self._owners = before
            return False
        return True


def _block(text: str) -> Block:
    return block(text, parsing.module(text).body)


def resolve(path: Path, node: ast.ImportFrom, name: str, deep: int = DEEP) -> tuple[Path, str] | None:
    """Return the file that defines an imported name, and its name there; None where it cannot be told from text."""
    file = _module(path, node)
    if file is None or not deep:
        return None
    for inner in parsing.module(target.text(file)).body:
        if isinstance(inner, ast.ImportFrom):
            alias = next((a for a in inner.names if (a.asname or a.name) == name), None)
            if alias is not None:
                return resolve(file, inner, alias.name, deep - 1)
        elif name in target.names_of(inner):
            return file, name
    return None


def _module(path: Path, node: ast.ImportFrom) -> Path | None:
    """Return the file of a module that a file imports from."""
    parts = node.module.split(".") if node.module else []
    if node.level:
        folders: Sequence[Path] = [path.parents[node.level - 1]] if node.level <= len(path.parents) else []
    else:
        installed = command.located(node.module or "")
        if installed.suffix == ".py" and installed.is_file():
            return installed.resolve()
        folders = path.parents
    for folder in folders:
        for file in (folder.joinpath(*parts, "__init__.py"), folder.joinpath(*parts).with_suffix(".py")):
            if parts and file.is_file():
                return file.resolve()
        if node.level and not parts and (folder / "__init__.py").is_file():
            return (folder / "__init__.py").resolve()
    return None
