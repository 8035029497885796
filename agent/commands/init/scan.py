"""Reads a file of Triton kernels: its kernels, who launches them, and what the launches write.

Relies on `ast` for the host side and on `agent/moves/analysis/stored_pointers.py` for what a kernel stores to. Nothing
is executed: what only a run would show (decorators that make kernels, kernels in containers) is not seen.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pgo_agent.agent.kernel_part import Block, blocks, used_by
from pgo_agent.sandbox import parsing, target
from pgo_agent.sandbox.errors import UsageFault


@dataclass(frozen=True)
class LaunchCall:
    """`kernel[grid](...)`: parameter of the kernel -> what is passed, if it is passed by name or position."""

    kernel: str
    passed: Mapping[str, ast.expr]


@dataclass(frozen=True)
class ScannedFile:
    """A file, and the launcher in it that a target is made from."""

    path: Path
    text: str
    launcher: ast.FunctionDef

    @cached_property
    def blocks(self) -> list[Block]:
        return blocks(self.text)

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        return functions(parsing.module(self.text))

    @cached_property
    def needed(self) -> list[Block]:
        """Return the blocks that the launcher needs, in the file's order."""
        root = next(i for i, b in enumerate(self.blocks) if self.launcher.name in b.names)
        indices = used_by(self.blocks, {root})
        return [b for i, b in enumerate(self.blocks) if i in indices]

    @cached_property
    def launches(self) -> list[LaunchCall]:
        """Return the launches that the launcher reaches."""
        return [launch for f in self.host.values() for launch in launches(f, self.functions)]

    @property
    def kernels(self) -> list[str]:
        return list(dict.fromkeys(launch.kernel for launch in self.launches))

    @cached_property
    def host(self) -> dict[str, ast.FunctionDef]:
        """Return the launcher, and the functions of the file that it calls."""
        reached = [self.launcher.name]
        for name in reached:
            reached += [n for n in _called(self.functions[name], self.functions) if n not in reached]
        return {n: self.functions[n] for n in reached}


def read(path: Path, launcher: str | None) -> ScannedFile:
    """Read a file. Raises UsageFault when it has no kernel, no launcher, or several launchers and none is named."""
    text = target.text(path)
    by_name = functions(target.parse(text, str(path)))
    if not any(is_kernel(f) for f in by_name.values()):
        raise UsageFault(f"{path} defines no Triton kernel", "name the file that holds the @triton.jit functions")
    reaching = list(launchers(by_name))
    if not reaching:
        raise _unlaunched(path, text, by_name)
    roots = [n for n in reaching if not any(n in _called(by_name[o], by_name) for o in reaching if o != n)] or reaching
    if launcher is None and len(roots) > 1:
        raise UsageFault(f"{path} has {len(roots)} launchers: {', '.join(roots)}", "name one with --launcher")
    if launcher is not None and launcher not in reaching:
        raise UsageFault(f"{launcher} launches nothing in {path}", f"choose one of: {', '.join(reaching)}")
    return ScannedFile(path, text, by_name[launcher or roots[0]])


def _unlaunched(path: Path, text: str, by_name: Mapping[str, ast.FunctionDef]) -> UsageFault:
    methods = [
        f"{owner.name}.{method.name}"
        for owner in ast.walk(parsing.module(text))
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and launches(method, by_name)
    ]
    hint = "write a function that does: kernel[grid](...)"
    if not methods:
        return UsageFault(f"nothing in {path} launches its kernels", hint)
    problem = f"in {path} only methods launch kernels: {', '.join(methods)}"
    return UsageFault(problem, "write what one of them does as a function of the module that takes tensors")


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions at module level, also inside conditions and `try`s. Of several with one name it is the last
    that does not merely raise: such a fallback says that something is missing."""
    defined = (n for n in _statements(tree.body) if isinstance(n, ast.FunctionDef))
    return {n.name: n for n in sorted(defined, key=lambda n: not isinstance(n.body[-1], ast.Raise))}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            handled = [s for h in getattr(node, "handlers", []) for s in h.body]
            yield from _statements([*inner, *handled])


def is_kernel(function: ast.FunctionDef) -> bool:
    """Return whether a function is decorated with `triton.jit` or `gluon.jit`, under any name."""
    named = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(ast.unparse(n).rpartition(".")[2] == "jit" for n in named)


def launches(function: ast.FunctionDef, by_name: Mapping[str, ast.FunctionDef]) -> list[LaunchCall]:
    """Return the launches in a function itself. A name that is bound to one of several kernels stands for each."""
    calls = (n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript))
    return [
        LaunchCall(kernel, passed(c, by_name[kernel]))
        for c in calls
        if isinstance(c.func, ast.Subscript) and isinstance(c.func.value, ast.Name)
        for kernel in _meant(c.func.value.id, function, by_name)
    ]


def _meant(name: str, function: ast.FunctionDef, by_name: Mapping[str, ast.FunctionDef]) -> list[str]:
    """Return the kernels that a name stands for in a function."""
    if name in by_name:
        return [name] if is_kernel(by_name[name]) else []
    bound = [n.value for n in ast.walk(function) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name]
    names = (n.id for value in bound for n in ast.walk(value) if isinstance(n, ast.Name))
    return [n for n in dict.fromkeys(names) if n in by_name and is_kernel(by_name[n])]


def passed(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return parameter of the called function -> what is passed, if it is passed by name or position."""
    places = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    starred = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args))
    return dict(zip(places, call.args[:starred], strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}


def _called(function: ast.FunctionDef, by_name: Mapping[str, ast.FunctionDef]) -> list[str]:
    """Return the host functions of the file that a function calls."""
    names = (n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    return [n for n in dict.fromkeys(names) if n in by_name and not is_kernel(by_name[n])]


def launchers(by_name: Mapping[str, ast.FunctionDef]) -> Iterator[str]:
    """Return the host functions that launch, themselves or through others of the file."""
    reaching = {n for n, f in by_name.items() if not is_kernel(f) and launches(f, by_name)}
    while grown := {n for n, f in by_name.items() if n not in reaching and reaching & set(_called(f, by_name))}:
        reaching |= grown
    return (n for n in by_name if n in reaching and not is_kernel(by_name[n]))
