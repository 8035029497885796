"""What a value is in its kernel, by the ops that make and use it: an accumulator, a slot of a ring, a barrier, a mask.

Names by habit of the field: acc, m, l and p as in flash attention, offs and ptrs as in Triton's tutorials. A name here
describes and proves nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from pgo_agent.sandbox.ttgir.pseudocode import kinds
from pgo_agent.sandbox.ttgir.pseudocode.graph import Node, Value
from pgo_agent.sandbox.ttgir.pseudocode.movement import barrier

NameOf = Callable[[Value], str]
THROUGH = kinds.WIDENING | {"tt.addptr", "tt.expand_dims", "ttg.convert_layout", "tt.bitcast", "arith.trunci"}
MANY = 1000  # views of a buffer, one of another or not; Triton's have a few
_ACCUMULATING = {"arith.addf": "sum", "arith.maxnumf": "max", "arith.maximumf": "max", "arith.minnumf": "min"}
_RESHAPED = ("arith.truncf", "arith.extf", "tt.fp_to_fp", "ttg.convert_layout", "tt.expand_dims", "tt.broadcast")
_STORED = {"arith.truncf", "arith.extf", "tt.fp_to_fp", "ttg.convert_layout", "ttg.local_alloc"}
_CASTS = ("arith.truncf", "arith.extf", "tt.fp_to_fp", "ttg.convert_layout")


def structural(values: Sequence[Value], name_of: NameOf) -> str:
    """Return the names that a source does not give, or gives to something else: slots, phases, barriers, guards,
    counters."""
    first = values[0]
    if barrier(first):
        return _barrier_name(first, name_of)
    if any(_counter(v) for v in values):
        return "i"
    if any(_scalar(v) and _feeds(v, "slot") for v in values):
        return "fill" if any(_feeds(v, "fill") for v in values) else "read"
    if any(_scalar(v) and _feeds(v, "phase") for v in values):
        return "phase"
    return "more" if any(v.type == "i1" and _feeds(v, "guard") for v in values) else ""


def _scalar(value: Value) -> bool:
    return value.type.startswith("i") and value.shape is None


def _counter(value: Value) -> bool:
    return value.node is None and value.index == 0 and value.body is not None and value.body.owner.name == "scf.for"


def _feeds(value: Value, what: str) -> bool:
    """Return whether a value indexes a buffer (one that is filled there), is the phase of a wait, or guards a copy."""
    return any(_takes(user, v, what) for v in _onwards(value, what) for user in dict.fromkeys(v.uses))


def _onwards(value: Value, what: str) -> Iterator[Value]:
    """Yield a value, and what up to three ops that only change its form make of it; each once."""
    through = THROUGH | {"arith.andi"} if what == "guard" else THROUGH
    seen = level = {value: None}
    for _ in range(4):
        yield from level
        users = dict.fromkeys(u for v in level for u in v.uses if u.name in through)
        level = {r: None for u in users for r in u.results if r not in seen}
        seen = seen | level


def _takes(user: Node, value: Value, what: str) -> bool:
    if user.name == "ttg.memdesc_index" and user.operand(0) is not value:
        return what == "slot" or (what == "fill" and any(_filled(v) for v in user.results))
    if what == "phase" and user.name == "ttng.wait_barrier":
        return user.operand(1) is value
    return what == "guard" and user.name in kinds.FILLS | {"ttng.barrier_expect"}


def _filled(view: Value) -> bool:
    """Return whether a copy goes there, or will complete on that barrier."""
    return any(u.name in kinds.FILLS and view in u.operands[1:] for u in view.uses) or any(
        u.name == "ttng.barrier_expect" for u in view.uses
    )


# buffers and barriers -------------------------------------------------------------------------------------------------


def views(value: Value) -> Iterator[Value]:
    """Yield a buffer and all views of it, in partitions, too; of very many the first."""
    left = [value]
    for _ in range(MANY):
        if not left:
            return
        at = left.pop()
        yield at
        users = (u for u in dict.fromkeys(at.uses) if u.name in kinds.VIEWS and u.operand(0) is at)
        left += [result for user in users for result in user.results]


def root_of(value: Value) -> Value:
    """Return the buffer that a view is of, or the pointer or descriptor that an address starts from."""
    for _ in range(MANY):
        node = value.node
        if node is None:
            start = _entering(value)
            if start is None:
                return value
            value = start
        elif node.name in kinds.VIEWS | THROUGH and node.operands:
            value = node.operands[0]
        elif node.name == "ttng.reinterpret_tensor_descriptor" and (pointer := _described_from(node)) is not None:
            value = pointer
        else:
            return value
    return value


def _entering(value: Value) -> Value | None:
    """Return what a loop's argument starts with."""
    body = value.body
    if body is None or body.owner.name != "scf.for" or value.index == 0:
        return None
    return body.owner.operand(2 + value.index)


def _described_from(node: Node) -> Value | None:
    """Return the pointer that a descriptor made on the device is of."""
    scratch = node.operand(0)
    makers = [u for u in scratch.uses if u.name == "ttng.tensormap_create"] if scratch else []
    return makers[0].operand(1) if makers else None


def _fillers(buffer: Value) -> list[Node]:
    return [u for v in views(buffer) for u in v.uses if u.name in kinds.FILLS and v in u.operands[1:]]


def _signalled(barrier: Value) -> list[Value]:
    """Return the buffers whose copies complete on a barrier."""
    copies = [u for v in views(barrier) for u in v.uses if u.name in kinds.TMA_LOADS]
    targets = [_target(c) for c in copies]
    return list(dict.fromkeys(root_of(t) for t in targets if t is not None))


def _target(copy: Node) -> Value | None:
    return next((v for v in copy.operands[1:] if (s := v.shape) and s.kind == "memdesc" and not barrier(v)), None)


def _barrier_name(barrier: Value, name_of: NameOf) -> str:
    """full: copies complete on it; empty: its waits stand before copies."""
    filled = _signalled(barrier)
    if filled:
        return _beside(filled[0], name_of, "_full") if len(filled) == 1 else "full"
    waits = [u for v in views(barrier) for u in v.uses if u.name == "ttng.wait_barrier"]
    copied = next((c for w in waits if (c := _next_copied(w)) is not None), None)
    return _beside(copied, name_of, "_empty") if copied is not None else "bar"


def _beside(buffer: Value, name_of: NameOf, suffix: str) -> str:
    """k_full2 for k_smem2, k_full for k."""
    return re.sub(r"_s?mem(?=\d*$)|(?=\d*$)", suffix, name_of(buffer) or "buf", count=1)


def _next_copied(wait: Node) -> Value | None:
    """Return the buffer that the first copy behind a wait fills."""
    nodes = wait.body.nodes if wait.body else []
    copy = next((n for n in nodes if n.place > wait.place and n.name in kinds.TMA_LOADS), None)
    target = _target(copy) if copy is not None else None
    return root_of(target) if target is not None else None


def tile(buffer: Value, name_of: NameOf) -> str:
    """Return a buffer after the kernel's argument whose data it holds: k for K or k_ptr."""
    fillers = _fillers(buffer)
    return _of_argument(fillers[0].operands[0], name_of) if fillers else "buf"


def _of_argument(address: Value, name_of: NameOf) -> str:
    name = re.sub(r"_(?:ptrs?|desc|smem)\d*$", "", name_of(root_of(address)).lower())
    return name or "tile"


# everything else ------------------------------------------------------------------------------------------------------


def described(values: Sequence[Value], name_of: NameOf) -> str:
    """Return a name for values that share a variable."""
    if len(values) > 1 and any(v.node is not None and v.node.name in kinds.DOTS for v in values):
        return "acc"
    for value in [*filter(None, map(_following, values)), *(v for v in values if v.node is not None)]:
        name = _described(value, values, name_of)
        if name:
            return name
    return _plain(values[0])


def _following(value: Value) -> Value | None:
    """Return what a loop's argument goes on with."""
    body = value.body
    end = body.end if body is not None and body.owner.name == "scf.for" and value.node is None else None
    return end.operand(value.index - 1) if end is not None and value.index else None


def _described(value: Value, values: Sequence[Value], name_of: NameOf) -> str:
    node = value.node
    if node is None:
        return ""
    if node.name in kinds.DOTS:
        return "s"
    if node.name == "ttg.local_alloc":
        return _buffer(node, value, name_of)
    if node.name in ("tt.load", "ttg.local_load", "tt.descriptor_load") and node.operands:
        return f"{_of_argument(node.operands[0], name_of)}_tile"
    if node.name in _CASTS:
        return _cast(node, value, name_of)
    if node.name == "ttg.global_scratch_alloc":
        return _map(value, name_of)
    if node.name in ("tt.addptr", "ttng.reinterpret_tensor_descriptor"):
        return _of_argument(value, name_of) + ("_ptrs" if node.name == "tt.addptr" else "_desc")
    return _computed(node, value, values)


def _buffer(node: Node, value: Value, name_of: NameOf) -> str:
    if not node.operands:
        return f"{tile(value, name_of)}_smem"
    return f"{name_of(_uncast(node.operands[0], name_of)) or 'tile'}_smem"


def _map(scratch: Value, name_of: NameOf) -> str:
    maker = next((u for u in scratch.uses if u.name == "ttng.tensormap_create" and len(u.operands) > 1), None)
    return f"{_of_argument(maker.operands[1], name_of)}_map" if maker is not None else "scratch"


def _cast(node: Node, value: Value, name_of: NameOf) -> str:
    """p_f16 for p; a conversion of the layout keeps what it can of the name."""
    inner = _uncast(node.operands[0], name_of) if node.operands else value
    base = name_of(inner)
    kinds_of = [s.element if (s := v.shape) else v.type for v in (value, inner)]
    return f"{base}_{kinds_of[0] if kinds_of[0] != kinds_of[-1] else 'conv'}" if base else ""


def _uncast(value: Value, name_of: NameOf) -> Value:
    """Return what a value is but for its type and shape, back to what has a name."""
    while not name_of(value) and value.node is not None and value.node.name in _RESHAPED and value.node.operands:
        value = value.node.operands[0]
    return value


def _computed(node: Node, value: Value, values: Sequence[Value]) -> str:
    shape = value.shape
    if node.name == "tt.reduce":
        combined = [_ACCUMULATING[n.name] for b in node.bodies for n in b.nodes if n.name in _ACCUMULATING]
        return ("row_" if node.op.integer("axis") == 1 else "col_") + (combined[0] if combined else "red")
    if node.name in ("math.exp2", "math.exp"):
        return "p" if shape and len(shape.shape) > 1 else "alpha"
    if node.name in ("arith.maxnumf", "arith.maximumf") and shape and len(shape.shape) == 1:
        return "m"
    if len(values) > 1 and shape and len(shape.shape) == 1 and shape.element.startswith("f"):
        return "l" if node.name == "arith.addf" else ""
    if len(values) == 1 and shape and len(shape.shape) > 1 and _stored(value):
        return "out"
    if node.name.startswith("arith.cmp") or (shape and shape.element == "i1") or value.type == "i1":
        return "mask" if shape else "cond"
    return ""


def _stored(value: Value) -> bool:
    """Return whether a value goes nowhere but to memory, by a few conversions."""
    level = [value]
    for _ in range(5):
        users = dict.fromkeys(u for v in level for u in v.uses if u.name != "tt.store")
        if not all(v.uses for v in level) or any(u.name not in _STORED for u in users):
            return False
        level = [r for u in users for r in u.results]
    return not level


def _plain(value: Value) -> str:
    """By the type alone."""
    shape = value.shape
    if shape is None:
        return "n" if value.type.startswith(("i", "index")) else "scale" if value.type.startswith("f") else "ptr"
    if shape.kind != "tensor":
        return "view" if shape.kind == "memdesc" else "desc"
    if shape.element.startswith("!tt.ptr"):
        return "ptrs"
    return "offs" if shape.element.startswith("i") else "x"
