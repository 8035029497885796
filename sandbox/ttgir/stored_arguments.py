"""Through which of its arguments a kernel writes, by its TTGIR.

Pointers and descriptors are followed from the arguments through address arithmetic, loops and branches. What a text
leaves unclear counts as written through everything that it could be.
"""

from collections.abc import Sequence

from pgo_agent.sandbox.ttgir.tree import Argument, Block, Module, Op

_FROM_FIRST = ("tt.addptr", "tt.advance", "tt.make_tensor_descriptor", "tt.make_tensor_ptr")
_VALUES = ("load", "atomic", "dot", "reduce", "scan", "gather", "local_alloc", "wait")  # give what lies in memory
_DESCRIPTORS = ("descriptor_store", "descriptor_scatter", "descriptor_reduce", "local_to_global", "tma_scatter")
Sources = dict[str, frozenset[int]]  # value -> the arguments that it may point into
_NONE = frozenset[int]()


def pointers(module: Module) -> list[Argument]:
    """Return the kernel's arguments that are pointers or descriptors, in order."""
    return [a for a in module.kernel.defined if "tt.ptr" in a.type or "tensordesc" in a.type]


def stored(module: Module) -> frozenset[int]:
    """Return the places among `pointers` of those that the kernel may write through."""
    sources: Sources = {a.name: frozenset({n}) for n, a in enumerate(pointers(module))}
    before: Sources = {}
    while before != sources:
        before = dict(sources)
        for region in module.kernel.regions:
            for block in region.blocks:
                _block(block, sources, None)
    found = _NONE
    for op in module.walk():
        if _writes(op):
            found |= sources.get(op.operands[0], _NONE)
    return found


def _writes(op: Op) -> bool:
    if not op.operands:
        return False
    name = op.name.rpartition(".")[2]
    plain = op.name == "tt.store" or name.startswith("atomic") or name == "async_store"
    return plain or any(word in name for word in _DESCRIPTORS)


def _block(block: Block, sources: Sources, above: Op | None) -> None:
    for op in block.ops:
        if op.name.endswith((".yield", ".condition")) and above is not None:
            values = op.operands if op.name.endswith(".yield") else op.operands[1:]
            _join(sources, above.results, values)
            _join(sources, [a.name for a in above.defined[1 if above.name == "scf.for" else 0 :]], values)
            continue
        inits = op.operands[3:] if op.name == "scf.for" else op.operands
        if op.regions:
            _join(sources, [a.name for a in op.defined[1 if op.name == "scf.for" else 0 :]], inits)
            for region in op.regions:
                for inner in region.blocks:
                    if inner.arguments != op.defined:
                        _join(sources, [a.name for a in inner.arguments], inits)
                    _block(inner, sources, op)
            if op.name in ("scf.for", "scf.while"):
                _join(sources, op.results, inits)
            continue
        if any(word in op.name for word in _VALUES):
            continue
        operands = op.operands[:1] if op.name in _FROM_FIRST else op.operands
        together = _NONE.union(*(sources.get(o, _NONE) for o in operands))
        for result in op.results if together else ():
            sources[result] = sources.get(result, _NONE) | together


def _join(sources: Sources, names: Sequence[str], values: Sequence[str]) -> None:
    """Let names point where values do, place by place; each where all do, where their numbers differ."""
    if len(names) != len(values):
        all_of = _NONE.union(*(sources.get(v, _NONE) for v in values))
        pairs = [(n, all_of) for n in names]
    else:
        pairs = [(n, sources.get(v, _NONE)) for n, v in zip(names, values, strict=True)]
    for name, more in pairs:
        if more:
            sources[name] = sources.get(name, _NONE) | more
