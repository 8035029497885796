"""The launches of a kernel that one target can be made of: they differ in sizes and numbers, and not in what they do.

Launches that were given other ranks, other flags (compile-time constants that are no block sizes) or None in other
places are another form. Of several the one that moved most bytes is taken.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pgo_agent.agent.commands.traces import symbolic
from pgo_agent.agent.commands.traces.events import Argument, Other, Plain, TracedTensor
from pgo_agent.agent.commands.traces.sources import Source
from pgo_agent.agent.commands.traces.summary import Kernel, Signature
from pgo_agent.agent.commands.traces.symbolic import Term, Vector
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.ttgir.argument_uses import Uses

FEW = 2  # values of a number that each make a case
MOST = 8  # signatures that become cases
_SETTING = re.compile(r"BLOCK|TILE|GROUP|STAGE|SPLIT|UNROLL|WARP|NUM_")  # names of constants that choose how to launch


@dataclass(frozen=True)
class Form:
    """Launches of one form, the most launched first, each kind of sizes once."""

    source: Source
    signatures: tuple[Signature, ...]
    uses: Uses | None
    left_out: int  # launches of other forms
    counting: frozenset[str] = frozenset()  # numbers that took many values for the same tensors

    @cached_property
    def given(self) -> list[Mapping[str, Argument]]:
        """What each was given for the kernel's parameters."""
        listed = self.source.parameters
        return [{n: s.first.arguments[n] for n in listed if n in s.first.arguments} for s in self.signatures]

    @cached_property
    def tensors(self) -> dict[str, list[TracedTensor]]:
        """Tensor arguments, one for each signature; of those that are the same memory the first."""
        same = set.intersection(*(set(s.aliases.items()) for s in self.signatures))
        listed = {n: [g[n] for g in self.given] for n in self.given[0] if n not in dict(same)}
        return {n: [t for t in v if isinstance(t, TracedTensor)] for n, v in listed.items() if _all_tensors(v)}

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Arguments that are the same memory as another one in every launch."""
        return dict(set.intersection(*(set(s.aliases.items()) for s in self.signatures)))

    def _of(self, names: Sequence[str]) -> set[str]:
        return {self.aliases.get(n, n) for n in names}

    @cached_property
    def stored(self) -> set[str]:
        """Tensors that the kernel may write into; all where its code could not be read."""
        if self.uses is None or self.uses.stored is None:
            return set(self.tensors)
        return self._of(self.uses.stored)

    @cached_property
    def outputs(self) -> list[str]:
        """Tensors that it writes into and surely does not read."""
        if self.uses is None or self.uses.stored is None:
            return []
        read = self._of(self.uses.maybe_loaded)
        return [n for n in self.tensors if n in self.stored and n not in read]

    def integers(self, name: str) -> Vector | None:
        """Return the whole numbers that an argument was; None where it was something else."""
        values = [v.value if isinstance(v := g[name], Plain) else None for g in self.given]
        return tuple(v for v in values if type(v) is int) if all(type(v) is int for v in values) else None

    def sizes(self, names: Sequence[str]) -> list[Term]:
        return symbolic.sizes({n: self.tensors[n] for n in names})


def _all_tensors(values: Sequence[Argument]) -> bool:
    return all(isinstance(v, TracedTensor) for v in values)


def chosen(kernel: Kernel, source: Source, uses: Uses | None) -> Form:
    """Return the form of a kernel that moved most bytes. Raises UsageFault where its launches hold no arguments, or
    some of a kind that no launcher can be written for."""
    if not kernel.signatures:
        why = next(iter(kernel.without), "" if kernel.launches else "only its autotuner launched it")
        raise UsageFault(
            f"the trace holds no arguments of {kernel.name}: {why}", "record its launches outside of CUDA graphs"
        )
    groups = dict[object, list[Signature]]()
    for one in kernel.most:
        groups.setdefault(_kind(one, source), []).append(one)
    parts = [p for g in groups.values() for p in _split(g, source)]
    best = max(parts, key=lambda g: sum(s.bytes * s.launches for s in g))
    _refuse(best[0], source)
    launched = sum(s.launches for s in best)
    counting = {
        n for g in _by_tensors(best) if len(g) > FEW for n in g[0].first.arguments if _numbers(g, n, source) > FEW
    }
    return Form(source, tuple(_distinct(best, source)[:MOST]), uses, kernel.launches - launched, frozenset(counting))


def _refuse(one: Signature, source: Source) -> None:
    missing = [p for p in source.parameters if p not in one.first.arguments]
    if missing:
        raise UsageFault(
            f"the trace holds no argument {', '.join(missing)} of {source.function}", "name another --kernel"
        )
    odd = {n: v.kind for n, v in one.first.arguments.items() if isinstance(v, Other) and not literal(v)}
    if odd:
        listed = ", ".join(f"{n} ({kind})" for n, kind in odd.items())
        hint = "where you have a test that launches it: pgo-agent init FILE -- pytest test.py"
        raise UsageFault(f"{source.function} was given what a trace does not keep: {listed}", hint)


def literal(value: Plain | Other) -> str:
    """Return an argument as it is written down; empty for one that cannot be."""
    if isinstance(value, Plain):
        text = repr(value.value)
        return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text
    if value.kind in ("dtype", "constexpr") and re.fullmatch(
        r"(triton\.language\.)?(b?fp?\d+\w*|u?int\d+)", value.text
    ):
        return f"tl.{_TYPES.get(value.text, value.text)}"
    return value.text if re.fullmatch(r"torch\.\w+", value.text) else ""


_TYPES = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8e4nv", "fp8e5": "float8e5",
}  # fmt: skip


def setting(name: str, source: Source) -> bool:
    """Whether a compile-time constant chooses how to launch, and not what is computed."""
    return name in source.tuned or bool(_SETTING.search(name.upper()))


def _kind(one: Signature, source: Source) -> object:
    floats = [v.dtype for v in one.first.arguments.values() if isinstance(v, TracedTensor) and "int" not in v.dtype]

    def told(name: str, value: Argument) -> object:
        if isinstance(value, TracedTensor):
            return len(value.shape), "one" if len(set(floats)) == 1 and value.dtype in floats else value.dtype
        if isinstance(value, Plain):
            fixed = name in source.constants and type(value.value) is not int
            return (value.value,) if fixed or value.value is None else type(value.value).__name__
        return value.text

    return tuple((n, told(n, v)) for n, v in one.first.arguments.items()), tuple(one.aliases.items())


def _split(group: Sequence[Signature], source: Source) -> list[list[Signature]]:
    """Part signatures by the whole numbers that kernels were compiled for, where these are neither block sizes nor
    sizes of tensors."""
    form = Form(source, tuple(group), None, 0)
    terms = form.sizes(list(form.tensors))
    names = list[str]()
    for name in sorted(source.constants):
        values = form.integers(name) if name in form.given[0] else None
        if values is None or setting(name, source) or len(set(values)) == 1:
            continue
        if not (symbolic.find(values, terms, 0) or symbolic.power(values, terms)):
            names.append(name)
    parts = dict[object, list[Signature]]()
    for one in group:
        parts.setdefault(tuple(str(one.first.arguments[n]) for n in names), []).append(one)
    return list(parts.values())


def _distinct(group: Sequence[Signature], source: Source) -> list[Signature]:
    """Return signatures that differ in more than grid and settings, with the launches of those that do not.

    A number that takes many values for the same tensors, such as the number of a step, makes no case of its own.
    """
    kinds, found = Counter(_tensors(one) for one in group), dict[str, Signature]()
    for one in group:
        given = {n: v for n, v in one.first.arguments.items() if not _set(n, source)}
        counting = kinds[_tensors(one)] > FEW
        key = str([(n, _told(v)) for n, v in given.items() if isinstance(v, TracedTensor) or not counting])
        if key in found:
            found[key].launches += one.launches
        else:
            found[key] = replace(one)
    return list(found.values())


def _by_tensors(group: Sequence[Signature]) -> list[list[Signature]]:
    found = dict[str, list[Signature]]()
    for one in group:
        found.setdefault(_tensors(one), []).append(one)
    return list(found.values())


def _numbers(group: Sequence[Signature], name: str, source: Source) -> int:
    """Return how many values a number takes at run time."""
    values = {v.value for one in group if isinstance(v := one.first.arguments[name], Plain)}
    return len(values) if name not in source.constants else 0


def _tensors(one: Signature) -> str:
    return str([(n, _told(v)) for n, v in one.first.arguments.items() if isinstance(v, TracedTensor)])


def _set(name: str, source: Source) -> bool:
    return name in source.constants and setting(name, source)


def _told(value: Argument) -> object:
    if isinstance(value, TracedTensor):
        return value.shape, value.stride, value.dtype
    return "float" if isinstance(value, Plain) and type(value.value) is float else value
