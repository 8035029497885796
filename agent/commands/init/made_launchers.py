"""Makes a launcher of launches that stand in a program's own lines: `kernel[grid](x, out, n)` in a test or a script.

The launcher is the program's own text, cut out of its function: how results are allocated, how the grid and arguments
are computed, the launches. What the program had as numbers becomes sizes of the tensors that it gives. Relies on
`program_text.py` to cut, and on the values that were seen at the launches (`seen.Bare`). It runs nothing.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pgo_agent.agent import free_names
from pgo_agent.agent.commands.init import launch_text, program_text
from pgo_agent.agent.commands.init.cases import LARGE
from pgo_agent.agent.commands.init.launch_text import LaunchText
from pgo_agent.agent.commands.init.program_text import Made
from pgo_agent.agent.commands.init.seen import Bare, Call, Site, Tensor, tensor, tensors
from pgo_agent.agent.commands.init.substitution import Renamed
from pgo_agent.sandbox import parsing

TOP = "<module>"  # what Python calls the code of a module


@dataclass(frozen=True)
class Launcher:
    """A launcher that was made: its text with what it needs of the module, and its calls."""

    name: str
    text: str
    calls: tuple[Call, ...]


def made(bare: Sequence[Bare], texts: Mapping[str, str]) -> tuple[list[Launcher], list[str]]:
    """Return a launcher for each place that launches, and why there is none for others. `texts`: of files."""
    by_place: dict[tuple[object, ...], list[Bare]] = {}
    for one in bare:
        place = (one.site.file, one.site.function, *(launch["line"] for launch in one.launches))
        by_place.setdefault(place, []).append(one)
    result, notes = list[Launcher](), list[str]()
    for listed in by_place.values():
        site = listed[0].site
        where = f"line {site.line} of {site.file.rpartition('/')[2]}"
        maker = _Maker(listed, texts[site.file]) if site.file in texts else None
        launcher = maker.launcher() if maker and maker.readable else None
        if launcher is None and site.function == "<lambda>" and len(by_place) > 1:
            continue  # a benchmark of what was launched already
        if launcher is None:
            notes.append(f"no launcher could be made of the launch in {where}: write a function that launches")
        else:
            result.append(launcher)
    return result, notes


class _Maker:
    """Makes the launcher of launches of one place, from all its turns."""

    def __init__(self, turns: Sequence[Bare], text: str) -> None:
        self.turns, self.text, self.first = turns, text, turns[0]
        self.site: Site = self.first.site
        self.lines = [int(launch["line"]) for launch in self.first.launches]
        self.tree = parsing.module(text)
        top = self.site.function == TOP
        self.function = None if top else program_text.function_at(self.tree, self.site.function, self.site.line)
        self.readable = top or self.function is not None
        self.stored = {t.storage for launch in self.first.launches for t in _stored(launch)}

    def launcher(self) -> Launcher | None:
        """Return it; None where the text does not say how a name comes about."""
        sizes, plain, results = self._sizes, self._plain, self._results
        given = [n for n in self.tensors if n not in self._made_inside]
        renamed = {n: _flat(n) for n in (*given, *sizes, *plain)}
        numbers = {s: e for s, e in self._places.items() if s >= LARGE}
        text = LaunchText(renamed | self._dtypes(given), numbers, launch_text.constants(self.first.launches))
        values: list[ast.expr] = [ast.Name(n, ast.Load()) for n in results]
        free = tuple(renamed.values())
        made = program_text.cut(self.text, self.function, max(self.lines), values, text, free, kept=self.lines)
        if made is None:
            return None
        used = free_names.used((*made.body, *made.values))
        head = {n: e for n, e in sizes.items() if n in used}
        used |= {e.partition(".")[0] for e in head.values()}
        arguments = [n for n in (*given, *plain) if _flat(n) in used]
        lines = [f"{n} = {e}" for n, e in head.items()] + [line for part in made.lines for line in part.split("\n")]
        lines += [f"return {', '.join(results)}"] if results else []
        name = "launch_" + str(self.first.launches[0]["kernel"]).strip("_")
        body = "\n".join(f"    {line}" for line in lines)
        whole = f"{made.module.strip()}\n\n\ndef {name}({', '.join(map(_flat, arguments))}):\n{body}\n"
        line = next(n.lineno for n in parsing.module(whole).body if isinstance(n, ast.FunctionDef) and n.name == name)
        return Launcher(name, whole, tuple(self._call(turn, name, line, arguments, results) for turn in self.turns))

    def _call(self, turn: Bare, name: str, line: int, arguments: Sequence[str], results: Sequence[str]) -> Call:
        args = {_flat(n): turn.site.names[n] for n in arguments}
        values = [turn.after.get(n, {"plain": None}) for n in results]
        result = values[0] if len(values) == 1 else {"list": values, "tuple": True} if values else {"plain": None}
        return Call(self.site.file, name, line, args, result, None, turn.launches, turn.site)

    # tensors ----------------------------------------------------------------------------------------------------------

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The program's tensors at the launch that something else is not a view of, and those that are stored to."""
        known = {n: t for n, v in self.site.names.items() if (t := tensor(v)) is not None}
        first = {t.storage: n for n, t in reversed(known.items()) if t.contiguous}
        views = {n for n, t in known.items() if first.get(t.storage, n) != n and "." not in n}
        views = {n for n in views if known[n].elements <= known[first[known[n].storage]].elements}
        derived = {n for n in views if self._made(n, {m: m for m in known if m not in views}) is not None}
        return {n: t for n, t in known.items() if n not in derived}

    def _made(self, name: str, given: Mapping[str, str]) -> Made | None:
        value: list[ast.expr] = [ast.Name(name, ast.Load())]
        return program_text.cut(self.text, self.function, self.site.line, value, Renamed(given, {}), given)

    @cached_property
    def _made_inside(self) -> set[str]:
        """Tensors that the kernels write into and that the launcher allocates itself: no random numbers are in them."""
        others = {n: n for n, t in self.tensors.items() if t.storage not in self.stored}
        written = [n for n, t in self.tensors.items() if t.storage in self.stored and "." not in n]
        made = {n: self._made(n, others | {m: m for m in self._variables}) for n in written}
        return {n for n, m in made.items() if m is not None and not m.random}

    @property
    def _results(self) -> list[str]:
        """A name for each tensor that the kernels write into and that the launcher was not given."""
        after = {n: t for n, v in self.first.after.items() if (t := tensor(v)) is not None and t.storage in self.stored}
        kept = {t.storage for n, t in self.tensors.items() if n not in self._made_inside}
        by_storage: dict[int, list[str]] = {}
        for n, t in after.items():
            if t.storage not in kept and "." not in n:
                by_storage.setdefault(t.storage, []).append(n)
        return [max(names, key=lambda n: (after[n].contiguous, after[n].elements)) for names in by_storage.values()]

    # numbers ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> dict[int, str]:
        """Size -> the axis of a tensor that has it in every turn."""
        found: dict[int, str] = {}
        for n, t in self.tensors.items():
            if n in self._made_inside:
                continue
            for i, size in enumerate(t.shape):
                found.setdefault(size, f"{_flat(n)}.shape[{i}]")
        return found

    @cached_property
    def _sizes(self) -> dict[str, str]:
        """Name of a number that made the tensors -> the axis that it is in every turn."""
        names = [n for n in self.tensors if "." not in n and n not in self._made_inside]
        making = [self._made(n, {m: m for m in self._variables}) for n in names]
        used = {m for one in making if one is not None for m in free_names.used(one.body)}
        return {n: place for n in self.site.names if n in used and (place := self._place(n))}

    def _place(self, name: str) -> str:
        """Return the axis of a tensor that a number is in every turn; empty for none."""
        for n in self.tensors:
            shapes = [t.shape for turn in self.turns if (t := tensor(turn.site.names.get(n))) is not None]
            numbers = [turn.site.names.get(name, {}).get("plain") for turn in self.turns]
            if n in self._made_inside or len(shapes) != len(numbers) or any(type(v) is not int for v in numbers):
                continue
            for i in range(min(map(len, shapes), default=0)):
                if all(s[i] == v for s, v in zip(shapes, numbers, strict=True)):
                    return f"{_flat(n)}.shape[{i}]"
        return ""

    @property
    def _plain(self) -> list[str]:
        return [n for n in self._variables if n not in self._sizes and "plain" in self.site.names[n]]

    @cached_property
    def _variables(self) -> list[str]:
        """Values that the program's function was given, or that a loop around the launch runs through."""
        arguments = [a.arg for a in (*self.function.args.args, *self.function.args.kwonlyargs)] if self.function else []
        loops = (n for n in ast.walk(self.function or self.tree) if isinstance(n, ast.For))
        around = [n for n in loops if n.lineno < self.site.line <= (n.end_lineno or 0)]
        names = [*arguments, *(m.id for n in around for m in ast.walk(n.target) if isinstance(m, ast.Name))]
        values = self.site.names
        return [n for n in names if n in values and ("plain" in values[n] or "dtype_" in values[n])]

    def _dtypes(self, given: Sequence[str]) -> dict[str, str]:
        """Return name of a type -> the tensor that has it."""
        named = {n: v["dtype_"] for n, v in self.site.names.items() if isinstance(v, dict) and "dtype_" in v}
        of = {t.dtype: f"{_flat(n)}.dtype" for n, t in reversed(self.tensors.items()) if n in given}
        return {n: of.get(d, f"torch.{d}") for n, d in named.items()}


def _flat(name: str) -> str:
    """Return the parameter for a name of the program, which may be of a module's weight: `layer.weight`."""
    return name.replace(".", "__")


def _stored(launch: Mapping[str, object]) -> Iterator[Tensor]:
    args, stored = launch["args"], launch["stored"]
    for name in stored if isinstance(stored, list) else ():
        yield from tensors(args.get(name)) if isinstance(args, dict) else ()
