"""Lines of ops that wait or signal: mbarriers, groups of copies and dots, fences, barriers of a block."""

from pgo_agent.sandbox.ttgir.pseudocode.graph import Node
from pgo_agent.sandbox.ttgir.pseudocode.writing import CodeAndComment, Form, Writing


def _number(node: Node) -> str:
    """Return what stands in the text as a bare number: a count, or bytes."""
    return next((word for word in node.op.words if word.isdigit()), "?")


def _init(w: Writing, node: Node) -> CodeAndComment:
    return f"init {w.operand(node, 0)}, {_plural(_number(node), 'arrival')}", ""


def _inval(w: Writing, node: Node) -> CodeAndComment:
    return f"invalidate {w.operand(node, 0)}", ""


def _expect(w: Writing, node: Node) -> CodeAndComment:
    text = f"expect {_number(node)} bytes on {w.operand(node, 0)}, arrive"
    return text + w.condition(node.operand(1)), ""


def _arrive(w: Writing, node: Node) -> CodeAndComment:
    return f"arrive {w.operand(node, 0)}, {_number(node)}{w.condition(node.operand(1))}", ""


def _copies_arrive(w: Writing, node: Node) -> CodeAndComment:
    return f"arrive {w.operand(node, 0)} when this thread's copies are done", ""


def _wait(w: Writing, node: Node) -> CodeAndComment:
    """Operands: barrier, phase, predicate, and behind `deps` what must stay alive."""
    predicate = node.operand(2)
    guarded = w.condition(predicate) if predicate is not None and predicate.type == "i1" else ""
    phase = w.operand(node, 1)
    return f"wait {w.operand(node, 0)}, {'' if phase.startswith('phase') else 'phase '}{phase}{guarded}", ""


def _wait_dots(w: Writing, node: Node) -> CodeAndComment:
    ready = [v for v in node.operands if (s := v.shape) and s.kind == "tensor"]
    return f"wait dots, {_fly(node.op.integer('pendings'))}", f"ready: {w.listed(ready)}" if ready else ""


def _wait_copies(w: Writing, node: Node) -> CodeAndComment:
    return f"wait copies, {_fly(node.op.integer('num'), 'group')}", ""


def _wait_stores(w: Writing, node: Node) -> CodeAndComment:
    return f"wait tma stores, {_fly(node.op.integer('pendings'))}", ""


def _commit(w: Writing, node: Node) -> CodeAndComment:
    copies = len(node.operands)
    return "commit copies", f"a group of {copies}" if copies != 1 else ""


def _fly(count: int | None, noun: str = "") -> str:
    if count is None:
        return "? may fly"
    return f"{_plural(str(count), noun) if noun else count} may fly"


def _plural(count: str, noun: str) -> str:
    return f"{count} {noun}{'' if count == '1' else 's'}"


def _fence(w: Writing, node: Node) -> CodeAndComment:
    return "fence shared writes before async reads", ""


def _fence_map(w: Writing, node: Node) -> CodeAndComment:
    return f"fence tensormap {w.operand(node, 0)}", ""


def _sync(w: Writing, node: Node) -> CodeAndComment:
    return "sync warps", ""


FORMS: dict[str, Form] = {
    "ttng.init_barrier": _init,
    "ttng.inval_barrier": _inval,
    "ttng.barrier_expect": _expect,
    "ttng.arrive_barrier": _arrive,
    "ttng.async_copy_mbarrier_arrive": _copies_arrive,
    "ttng.wait_barrier": _wait,
    "ttng.warp_group_dot_wait": _wait_dots,
    "ttg.async_wait": _wait_copies,
    "ttg.async_commit_group": _commit,
    "ttng.async_tma_store_wait": _wait_stores,
    "ttng.fence_async_shared": _fence,
    "ttng.tensormap_fenceproxy_acquire": _fence_map,
    "gpu.barrier": _sync,
    "ttg.barrier": _sync,
}
