"""The captured calls of one launcher: what it is in its file, what its kernels write, and what a target returns.

Relies on `seen.py` for the calls and on `agent/moves/analysis/stored_pointers.py` for what a kernel writes through.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import libcst as cst
from pgo_agent.agent.commands.init import cases as sizing
from pgo_agent.agent.commands.init import inlined, references
from pgo_agent.agent.commands.init.inlined import Modules
from pgo_agent.agent.commands.init.references import Expected
from pgo_agent.agent.commands.init.seen import Call, Check, Made, Tensor, behind, made, tensors
from pgo_agent.agent.kernel_part import Block
from pgo_agent.agent.moves.analysis import cst_util
from pgo_agent.agent.moves.analysis.stored_pointers import written
from pgo_agent.sandbox import parsing, target
from pgo_agent.sandbox.errors import UsageFault

TRITON = "tl"  # as which a text has the types of Triton


@dataclass(frozen=True)
class Captured:
    """The calls of one launcher, all given the same kinds of arguments."""

    path: Path  # of the launcher
    text: str  # of that file
    calls: tuple[Call, ...]
    backward: Call | None  # of the same autograd Function, if it was seen
    checks: tuple[tuple[Check, str], ...]  # the program's comparisons, with the text of their file
    program: str  # text of the file from which the first call was made; empty: not known
    modules: Modules  # that may be taken into the target
    original: str = ""  # text with the launcher and all that it needs, which reference() launches; empty: no need of it
    tiles: tuple[str, ...] = ()  # block sizes that the original may halve: see `sandbox/interpreter/original.py`
    weights: tuple[int, ...] = ()  # of the calls, by how often they were made; empty: all count alike
    whose: str = "a program that uses it"  # calls

    @property
    def name(self) -> str:
        return self.calls[0].owner or self.calls[0].function

    @property
    def pair(self) -> list[Call]:
        """The first call, and the backward that belongs to it."""
        return [self.calls[0], *([self.backward] if self.backward else [])]

    @cached_property
    def function(self) -> ast.FunctionDef | None:
        """The launcher's definition."""
        line, last = self.calls[0].line, self.calls[0].function.rpartition(".")[2]
        found = (n for n in ast.walk(parsing.module(self.text)) if isinstance(n, ast.FunctionDef) and n.name == last)
        return next((f for f in found if line in (f.lineno, *(d.lineno for d in f.decorator_list))), None)

    @cached_property
    def needed(self) -> list[Block]:
        """The blocks that the launcher needs of its file and of those that launch for it, in order."""
        made = {n: place for m in self.fixed.values() for n, place in m.names.items()}
        own = {n for n, (_, file) in made.items() if file == self.calls[0].file}
        imports = [f"from {module} import {n}" for n, (module, _) in made.items() if n not in own and n != TRITON]
        imports += ["import triton.language as tl"] if TRITON in made else []
        return inlined.needed(self.path, self.text, {self.name, *own}, self.modules, imports)

    @cached_property
    def fixed(self) -> dict[str, Made]:
        """Arguments that kernel() gives as they were, for a plan holds nothing of their kind: enums, dataclasses."""
        found = ((n, made(v)) for n, v in self.calls[0].given.items())
        return {n: m for n, m in found if m and all(self._known(*place) for place in m.names.values())}

    def _known(self, module: str, file: str) -> bool:
        return module != "__main__" or file == self.calls[0].file

    @property
    def part(self) -> str:
        """Their text."""
        return "".join(b.text for b in self.needed).strip("\n")

    @cached_property
    def changed(self) -> list[str]:
        """Arguments of forward and backward that a kernel, or a torch operator, writes into."""
        calls = self.pair
        stored = {
            t.storage
            for launch in (launch for c in calls for launch in c.launches)
            for n in self._stored(launch)
            for t in tensors(launch["args"].get(n))
        }
        stored |= {s for c in calls for s in c.written} | self._stored_behind
        given = (pair for c in calls for pair in c.given.items())
        return [n for n, v in given if any(t.storage in stored for t in tensors(v))]

    @property
    def _stored_behind(self) -> set[int]:
        """Storages that kernels may write into by addresses that they are given as numbers. Which of them they do, no
        text says: those that the program returns or checks."""
        launches = [launch for c in self.pair for launch in c.launches if launch.get("behind")]
        looked_at = [t for c in self.pair for t in tensors(c.result)]
        looked_at += [t for check, _ in self.checks for side in check.sides for t in tensors(side)]
        return {s for k in launches for v in k["args"].values() for s in behind(v)} & {t.storage for t in looked_at}

    @cached_property
    def read(self) -> set[int]:
        """Storages that kernels surely read."""
        launches = [launch for c in self.pair for launch in c.launches]
        return {t.storage for k in launches for n in k.get("loaded", ()) for t in tensors(k["args"].get(str(n)))}

    @property
    def unordered(self) -> bool:
        """Whether a kernel adds floats to memory in any order, so that launches differ in the last bits."""
        return any(launch.get("unordered") for c in self.pair for launch in c.launches)

    def _stored(self, launch: Mapping[str, Any]) -> Iterable[str]:
        """Return the arguments of a launch that its kernel writes through: by its TTGIR, else by its text."""
        if launch["stored"] is not None:
            return [str(n) for n in launch["stored"]]
        module = cst.parse_module(self.part)
        kernel = cst_util.functions(module).get(launch["kernel"])
        return written(module, kernel) if kernel else ()

    @cached_property
    def arguments(self) -> list[str]:
        """Arguments that were not left at their defaults."""
        usual = _defaults(self.function) if self.function else {}
        given = self.calls[0].given
        same = {
            n
            for n, v in usual.items()
            if n in given and all("plain" in c.given[n] and c.given[n]["plain"] == v for c in self.calls)
        }
        return [n for n in given if n not in same and n not in self.fixed]

    def given_back(self, call: Call) -> list[Tensor]:
        """What a call returned, and what of its arguments it wrote into beside."""
        result = tensors(call.result)
        returned = {t.storage for t in result}
        return [*result, *(t for n in self.changed for t in tensors(call.given.get(n)) if t.storage not in returned)]

    @cached_property
    def expected(self) -> dict[int, Expected]:
        """The references of the program's own checks, by the place of the output in what `given_back` gives."""
        seen, found = Counter[tuple[str, int]](), dict[int, Expected]()
        for check, text in self.checks:
            nth = seen[check.file, check.line]
            seen[check.file, check.line] += 1
            for one in self.calls:
                taken = references.expected(check, nth, one, self.arguments, self.given_back(one), text, self.fixed)
                if taken:
                    found.setdefault(*taken)
        return found

    @cached_property
    def unchecked(self) -> list[int]:
        """Results that the program compares with nothing, by their place, where it does compare others. A candidate may
        not leave them out. What is returned as it was given is no result."""
        call = self.calls[0]
        given = {t.storage for n, v in call.given.items() if n not in self.changed for t in tensors(v)}
        places = (i for i, t in enumerate(tensors(call.result)) if t.storage not in given and t.elements)
        return [i for i in places if i not in self.expected] if self.expected else []

    @property
    def inputs(self) -> list[str]:
        """Arguments that are tensors, or hold some."""
        return [n for n in self.arguments if tensors(self.calls[0].given[n])]

    @property
    def gradients(self) -> list[str]:
        return list(self.backward.given) if self.backward else []

    @property
    def outputs(self) -> list[Tensor]:
        """What kernel() returns, in order."""
        call = self.calls[0]
        if call.context is not None:
            return tensors(call.result) + (tensors(self.backward.result) if self.backward else [])
        return self.given_back(call)


def groups(
    path: Path,
    calls: Sequence[Call],
    checks: Sequence[tuple[Check, str]],
    texts: Mapping[str, str],
    files: Mapping[str, Path],
    repository: Path,
    launcher: str | None,
    made: Mapping[str, str],
) -> list[Captured]:
    """Return what a target is made from, for each launcher or the one that is named. Raises UsageFault for another.

    `texts`: of the program's files. `files`: those that kernels were launched through, by what they were called there.
    `made`: launchers that stand in no file, with their text.
    """
    by_name: dict[str, list[Call]] = {}
    for call in calls:
        if not call.function.endswith(".backward"):
            by_name.setdefault(call.owner or call.function, []).append(call)
    if launcher is not None and launcher not in by_name:
        raise UsageFault(f"the program calls no launcher {launcher}", f"choose one of: {', '.join(by_name)}")
    backwards = {c.context: c for c in calls if c.function.endswith(".backward")}
    result = []
    for name, listed in by_name.items():
        alike = _alike(listed)
        site = alike[0].site
        program = texts.get(site.file, "") if site else ""
        if launcher in (None, name):
            backward = backwards.get(alike[0].context)
            launches = (launch for c in (alike[0], backward) if c for launch in c.launches)
            pairs = [(launch["file"], launch["via"]) for launch in launches]
            kernels = frozenset(files[f].resolve() for f, _ in pairs if f in files)
            between = frozenset(files[f].resolve() for _, via in pairs for f in via if f in files)
            modules = Modules(kernels, between, repository)
            of = files.get(alike[0].file, path)
            text = made.get(name) or target.text(of)
            result.append(Captured(of, text, alike, backward, tuple(checks), program, modules))
    return result


def _alike(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Return the calls with arguments like those of the first, largest first; of equal ones only one."""

    def kind(call: Call) -> object:
        return [(n, [(a, len(t.shape)) for a, t in sizing.leaves(n, v)], made(v)) for n, v in call.given.items()]

    def key(call: Call) -> str:
        return str([[(t.shape, t.dtype) for t in tensors(v)] or v for v in call.given.values()])

    alike = {key(c): c for c in reversed(calls) if kind(c) == kind(calls[0])}
    by_size = sorted(alike.values(), key=lambda c: -sum(t.elements for v in c.given.values() for t in tensors(v)))
    return tuple(by_size[: sizing.MOST])


def _defaults(function: ast.FunctionDef) -> dict[str, object]:
    """Return parameter -> default, for those that are literals."""
    a = function.args
    places = [p.arg for p in (*a.posonlyargs, *a.args)]
    pairs = [
        *zip(places[len(places) - len(a.defaults) :], a.defaults, strict=True),
        *((k.arg, d) for k, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d),
    ]
    return {n: d.value for n, d in pairs if isinstance(d, ast.Constant)}
