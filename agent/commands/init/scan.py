"""What a file of Triton kernels holds: its kernels, who launches them, and what the launches write.

Relies on `ast` for the host side and on `agent/moves/analysis/stored_pointers.py` for what a kernel stores to. Nothing
is executed: what only a run would tell (decorators that make kernels, kernels in containers) is not seen.
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
    """`kernel[grid](...)`: parameters of the kernel -> what is passed, as far as they are told by name or place."""

    kernel: str
    passed: Mapping[str, ast.expr]


@dataclass(frozen=True)
class Found:
    """A file, and the launcher in it that a target is made of."""

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
    def kept(self) -> list[Block]:
        """What the launcher needs of the file, in its order."""
        root = next(i for i, b in enumerate(self.blocks) if self.launcher.name in b.names)
        needed = used_by(self.blocks, {root})
        return [b for i, b in enumerate(self.blocks) if i in needed]

    @cached_property
    def launches(self) -> list[LaunchCall]:
        """Those that the launcher reaches."""
        return [launch for f in self.host.values() for launch in launches(f, self.functions)]

    @property
    def kernels(self) -> list[str]:
        return list(dict.fromkeys(launch.kernel for launch in self.launches))

    @cached_property
    def host(self) -> dict[str, ast.FunctionDef]:
        """The launcher, and what it calls of the file."""
        reached = [self.launcher.name]
        for name in reached:
            reached += [n for n in _called(self.functions[name], self.functions) if n not in reached]
        return {n: self.functions[n] for n in reached}


def read(path: Path, launcher: str | None) -> Found:
    """Raises UsageFault for a file without kernels, without a launcher, or with several and none named."""
    text = target.text(path)
    known = functions(target.parse(text, str(path)))
    if not any(is_kernel(f) for f in known.values()):
        raise UsageFault(f"{path} defines no Triton kernel", "name the file that holds the @triton.jit functions")
    reaching = list(launchers(known))
    if not reaching:
        raise _unlaunched(path, text, known)
    roots = [n for n in reaching if not any(n in _called(known[o], known) for o in reaching if o != n)] or reaching
    if launcher is None and len(roots) > 1:
        raise UsageFault(f"{path} has {len(roots)} launchers: {', '.join(roots)}", "name one with --launcher")
    if launcher is not None and launcher not in reaching:
        raise UsageFault(f"{launcher} launches nothing in {path}", f"choose one of: {', '.join(reaching)}")
    return Found(path, text, known[launcher or roots[0]])


def _unlaunched(path: Path, text: str, known: Mapping[str, ast.FunctionDef]) -> UsageFault:
    methods = [
        f"{owner.name}.{method.name}"
        for owner in ast.walk(parsing.module(text))
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and launches(method, known)
    ]
    hint = "write a function that does: kernel[grid](...)"
    if not methods:
        return UsageFault(f"nothing in {path} launches its kernels", hint)
    problem = f"in {path} only methods launch kernels: {', '.join(methods)}"
    return UsageFault(problem, "write what one of them does as a function of the module that takes tensors")


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Those of the module's own level, and in its conditions and `try`s; the last of a name, if it does not only raise
    what is missing elsewhere."""
    found = (n for n in _statements(tree.body) if isinstance(n, ast.FunctionDef))
    return {n.name: n for n in sorted(found, key=lambda n: not isinstance(n.body[-1], ast.Raise))}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            handled = [s for h in getattr(node, "handlers", []) for s in h.body]
            yield from _statements([*inner, *handled])


def is_kernel(function: ast.FunctionDef) -> bool:
    """Whether a function is decorated with `triton.jit` or `gluon.jit`, under whatever name."""
    named = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(ast.unparse(n).rpartition(".")[2] == "jit" for n in named)


def launches(function: ast.FunctionDef, known: Mapping[str, ast.FunctionDef]) -> list[LaunchCall]:
    """The launches that stand in a function itself. A name that is bound to one of several kernels stands for each."""
    calls = (n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript))
    return [
        LaunchCall(kernel, passed(c, known[kernel]))
        for c in calls
        if isinstance(c.func, ast.Subscript) and isinstance(c.func.value, ast.Name)
        for kernel in _meant(c.func.value.id, function, known)
    ]


def _meant(name: str, function: ast.FunctionDef, known: Mapping[str, ast.FunctionDef]) -> list[str]:
    """The kernels that a name stands for in a function."""
    if name in known:
        return [name] if is_kernel(known[name]) else []
    bound = [n.value for n in ast.walk(function) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name]
    names = (n.id for value in bound for n in ast.walk(value) if isinstance(n, ast.Name))
    return [n for n in dict.fromkeys(names) if n in known and is_kernel(known[n])]


def passed(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Parameters of what is called -> what is passed, as far as they are told by name or place."""
    places = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    starred = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args))
    return dict(zip(places, call.args[:starred], strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}


def _called(function: ast.FunctionDef, known: Mapping[str, ast.FunctionDef]) -> list[str]:
    """Host functions of the file that a function calls."""
    names = (n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    return [n for n in dict.fromkeys(names) if n in known and not is_kernel(known[n])]


def launchers(known: Mapping[str, ast.FunctionDef]) -> Iterator[str]:
    """Host functions that launch, themselves or through others of the file."""
    reaching = {n for n, f in known.items() if not is_kernel(f) and launches(f, known)}
    while grown := {n for n, f in known.items() if n not in reaching and reaching & set(_called(f, known))}:
        reaching |= grown
    return (n for n in known if n in reaching and not is_kernel(known[n]))
