"""Lines of ops that move data: loads, stores, shared buffers, copies by cp.async and by TMA, atomics."""

import itertools

from pgo_agent.sandbox.ttgir.pseudocode import layouts
from pgo_agent.sandbox.ttgir.pseudocode.graph import Node, Value
from pgo_agent.sandbox.ttgir.pseudocode.writing import CodeAndComment, Form, Writing


def _load(w: Writing, node: Node) -> CodeAndComment:
    text = f"load {w.operand(node, 0)}{w.condition(node.operand(1))}"
    if len(node.operands) > 2:
        text += f" else {w.operand(node, 2)}"
    return w.assign(node, text), w.type(node.results[0] if node.results else None)


def _store(w: Writing, node: Node) -> CodeAndComment:
    text = f"store {w.operand(node, 1)} -> {w.operand(node, 0)}{w.condition(node.operand(2))}"
    return text, w.type(node.operand(1))


def _copy(w: Writing, node: Node) -> CodeAndComment:
    """Operands: source, target, and as words say: mask, other."""
    more = node.operands[2:]
    text = f"copy {w.operand(node, 0)} -> {w.operand(node, 1)}"
    if more and "mask" in node.op.words:
        text += w.condition(more[0])
        more = more[1:]
    if more and "other" in node.op.words:
        text += f" else {w.text(more[0])}"
    return text, f"cp.async {w.type(node.operand(1))}"


def _alloc(w: Writing, node: Node) -> CodeAndComment:
    """k[3] : 128x64 f16 shared for a ring of three; = what it is filled with."""
    buffer = node.results[0] if node.results else None
    shape = buffer.shape if buffer is not None else None
    if buffer is None or shape is None:
        return w.assign(node, w.values.call(node.name, node)), ""
    ring = len(shape.shape) > 1 and (is_ring(buffer) or barrier(buffer))
    name = w.values.name(buffer) + (f"[{shape.shape[0]}]" if ring else "")
    if barrier(buffer):
        return f"{name} : mbarrier shared", ""
    sizes = "x".join(map(str, shape.shape[1:] if ring else shape.shape))
    memory = "shared" if node.name == "ttg.local_alloc" else "tensor memory"
    filled = f" = {w.operand(node, 0)}" if node.operands else ""
    kibibytes = f"{shape.bytes / 1024:g} KiB"
    return f"{name} : {sizes} {shape.element} {memory}{filled}", f"{kibibytes}, {layouts.short(w.layout(buffer))}"


def is_ring(buffer: Value) -> bool:
    """Return whether a buffer is used a slot at a time."""
    return any(u.name in ("ttg.memdesc_index", "ttg.memdesc_subview") for u in buffer.uses)


def barrier(value: Value | None) -> bool:
    """Return whether a buffer holds mbarriers: 64-bit words, one to a slot."""
    shape = value.shape if value is not None else None
    return shape is not None and shape.kind == "memdesc" and shape.element == "i64" and shape.shape[-1:] == (1,)


def _local_load(w: Writing, node: Node) -> CodeAndComment:
    return w.assign(node, f"shared load {w.operand(node, 0)}"), w.type(node.results[0] if node.results else None)


def _local_store(w: Writing, node: Node) -> CodeAndComment:
    return f"shared store {w.operand(node, 0)} -> {w.operand(node, 1)}", w.type(node.operand(0))


def _dealloc(w: Writing, node: Node) -> CodeAndComment:
    return f"free {w.listed(node.operands)}", ""


# TMA ------------------------------------------------------------------------------------------------------------------


def _tma_load(w: Writing, node: Node) -> CodeAndComment:
    """Operands: descriptor, coordinates, target, barrier, predicate."""
    at = next((i for i, v in enumerate(node.operands) if i and (s := v.shape) and s.kind == "memdesc"), None)
    target = next((v for v in node.operands[1:] if (s := v.shape) and s.kind == "memdesc" and not barrier(v)), None)
    signal = next((v for v in node.operands[1:] if barrier(v)), None)
    if at is None or target is None:
        return w.assign(node, w.values.call(node.name, node)), ""
    predicate = node.operands[-1] if node.operands[-1].type == "i1" else None
    text = f"tma copy {w.operand(node, 0)}[{w.listed(node.operands[1:at])}] -> {w.text(target)}"
    text += f", signals {w.text(signal)}" if signal is not None else ""
    shape = target.shape
    return text + w.condition(predicate), f"{shape.bytes if shape else '?'} bytes"


def _tma_store(w: Writing, node: Node) -> CodeAndComment:
    coordinates, source = node.operands[1:-1], node.operands[-1] if len(node.operands) > 1 else None
    operation = {"ttng.async_tma_reduce": "tma reduce " + " ".join(node.op.words[:1])}.get(node.name, "tma store")
    text = f"{operation} {w.text(source)} -> {w.operand(node, 0)}[{', '.join(w.text(v) for v in coordinates)}]"
    shape = source.shape if source is not None else None
    return text, f"{shape.bytes} bytes" if shape else ""


def _tensormap(w: Writing, node: Node) -> CodeAndComment:
    """Operands: where it is made, of what pointer, box, shape, strides but the last, element strides; r, r, r-1, r."""
    rank = (len(node.operands) - 1) // 4
    ends = [2, 2 + rank, 2 + 2 * rank, 1 + 3 * rank]
    box, shape, strides = (w.listed(node.operands[a:b]) for a, b in itertools.pairwise(ends))
    text = f"make tensormap {w.operand(node, 0)} of {w.operand(node, 1)}, shape [{shape}]"
    return f"{text}, strides [{strides}] bytes, box [{box}]", "fastest dimension first"


def _scratch(w: Writing, node: Node) -> CodeAndComment:
    return w.assign(node, f"global scratch, {node.op.integer('nbytes')} bytes"), ""


def _atomic(w: Writing, node: Node) -> CodeAndComment:
    """Words: operation, memory order, scope. Operands: pointer, value, mask."""
    kind, *rest = node.op.words or ("rmw",)
    text = f"atomic {kind} {w.operand(node, 0)}, {w.operand(node, 1)}{w.condition(node.operand(2))}"
    return w.assign(node, text), ", ".join([*rest, w.type(node.operand(1))]).strip(", ")


def _swap(w: Writing, node: Node) -> CodeAndComment:
    text = f"atomic cas {w.operand(node, 0)}, {w.operand(node, 1)} -> {w.operand(node, 2)}"
    return w.assign(node, text), ", ".join(node.op.words)


FORMS: dict[str, Form] = {
    "tt.load": _load,
    "tt.store": _store,
    "ttg.async_copy_global_to_local": _copy,
    "ttg.local_alloc": _alloc,
    "ttng.tmem_alloc": _alloc,
    "ttg.local_load": _local_load,
    "ttg.local_store": _local_store,
    "ttg.local_dealloc": _dealloc,
    "ttng.async_tma_copy_global_to_local": _tma_load,
    "ttng.tensormap_create": _tensormap,
    "ttg.global_scratch_alloc": _scratch,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _swap,
    "ttng.async_tma_copy_local_to_global": _tma_store,
    "ttng.async_tma_reduce": _tma_store,
}
