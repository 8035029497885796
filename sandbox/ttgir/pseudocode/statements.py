"""The line of an op: its code and its comment. What has no form of its own shows itself, with its operands."""

import re

from pgo_agent.sandbox.ttgir.pseudocode import kinds, layouts, movement, sync
from pgo_agent.sandbox.ttgir.pseudocode.graph import Node, Value
from pgo_agent.sandbox.ttgir.pseudocode.writing import CodeAndComment, Form, Writing

_HIDDEN = re.compile(r"async_task_id|tt\.\w+|loop\.\w+|operandSegmentSizes|ttg\.partition\w*|ws_.*")
_COMBINED = {"addf": "sum", "addi": "sum", "mulf": "prod", "muli": "prod", "ori": "or", "andi": "and", "xori": "xor"}
_COMBINED |= dict.fromkeys(("maxnumf", "maximumf", "maxsi", "maxui"), "max")
_COMBINED |= dict.fromkeys(("minnumf", "minimumf", "minsi", "minui"), "min")


def line(w: Writing, node: Node) -> CodeAndComment:
    """Return what the line of an op says."""
    form = _FORMS.get(node.name)
    if form is not None:
        return form(w, node)
    if kinds.pure(node.op) and len(node.results) == 1 and node.name not in kinds.EXCHANGES:
        return w.assigned(node), w.type(node.results[0])
    return strange(w, node), ""


def strange(w: Writing, node: Node) -> str:
    """Return an op as itself: its name, operands, words and attributes."""
    inner = w.listed([v for v in node.operands if not v.hidden])
    words = "".join(f" {word}" for word in node.op.words)
    attributes = {k: v for k, v in node.op.attributes.items() if not _HIDDEN.fullmatch(k)}
    listed = ", ".join(f"{k} = {_plain(w, v)}" if v else k for k, v in attributes.items())
    blocks = "".join(f" {label}" for label in re.findall(r"\^\w+", str(node.op.parts[0])))
    return w.assign(node, f"{node.name}({inner}){words}{blocks}" + (f" {{{listed}}}" if listed else ""))


def _plain(w: Writing, text: str) -> str:
    return layouts.short(layouts.opened(text, w.aliases)) if text.startswith("#") else text.split(" : ")[0]


# tensor cores ---------------------------------------------------------------------------------------------------------


def _dot(w: Writing, node: Node) -> CodeAndComment:
    """Operands: a, b, what is added to, and whether it is."""
    result = node.results[0] if node.results else None
    product = f"dot({w.operand(node, 0)}, {w.operand(node, 1)})"
    name = w.values.name(result) if result is not None else ""
    return _accumulated(w, node, product, name), ", ".join(_facts(w, node, result))


def _accumulated(w: Writing, node: Node, product: str, name: str) -> str:
    added, flag = w.operand(node, 2), node.operand(3)
    use = w.text(flag) if flag is not None and flag.type in ("i1", "") else "True"
    if use == "False" or added == "0.0":
        return f"{name} = {product}"
    if use != "True":
        return f"{name} = {product} + ({added} if {use} else 0)"
    return f"{name} += {product}" if added == name else f"{name} = {added} + {product}"


def _facts(w: Writing, node: Node, result: Value | None) -> list[str]:
    a, b = (v.shape if (v := node.operand(i)) is not None else None for i in (0, 1))
    facts = [f"{a.shape[-2]}x{b.shape[-1]}x{a.shape[-1]}"] if a and b and len(a.shape) > 1 and b.shape else []
    instruction = layouts.instruction(w.layout(result))
    facts += [instruction] if instruction else []
    if a and instruction.startswith("wgmma"):
        facts.append("a in registers" if a.kind == "tensor" else "a in shared")
    if a and a.element == "f32" and ("tf32" in node.op.words or node.op.integer("inputPrecision") == 0):
        facts.append("tf32")
    return [*facts, *(["async"] if node.op.integer("isAsync") else [])]


# between threads ------------------------------------------------------------------------------------------------------


def _reduce(w: Writing, node: Node) -> CodeAndComment:
    inner = [n.name.rpartition(".")[2] for b in node.bodies for n in b.nodes if n.name not in kinds.TERMINATORS]
    combined = _COMBINED.get(inner[0]) if len(inner) == 1 else None
    scan = "scan_" if node.name == "tt.scan" else ""
    arguments = f"{w.listed(node.operands)}, axis={node.op.integer('axis')}"
    call = f"{scan}{combined}({arguments})" if combined else f"{scan or 'reduce_'}by({arguments}; {' '.join(inner)})"
    return w.assign(node, call), f"of {w.type(node.operand(0))}"


def _convert(w: Writing, node: Node) -> CodeAndComment:
    before, after = node.operand(0), node.results[0] if node.results else None
    comment = f"{w.type(after)}: {layouts.conversion(w.layout(before), w.layout(after))}"
    return w.assign(node, f"convert({w.operand(node, 0)})"), comment


# what is left ---------------------------------------------------------------------------------------------------------


def _assert(w: Writing, node: Node) -> CodeAndComment:
    return f"assert {w.operand(node, 0)}, {' '.join(node.op.words)}", ""


def _print(w: Writing, node: Node) -> CodeAndComment:
    return f"print {' '.join(node.op.words)}, {w.listed(node.operands)}", ""


def _call(w: Writing, node: Node) -> CodeAndComment:
    callee = next((word for word in node.op.words if word.startswith("@")), "?")
    return w.assign(node, f"call {callee.removeprefix('@')}({w.listed(node.operands)})"), ""


def _assembly(w: Writing, node: Node) -> CodeAndComment:
    code = next(iter(node.op.words), '""')
    return w.assign(node, f"asm {code}({w.listed(node.operands)})"), w.type(node.results[0] if node.results else None)


def _return(w: Writing, node: Node) -> CodeAndComment:
    return f"return {w.listed(node.operands)}".rstrip(), ""


_FORMS: dict[str, Form] = {
    **movement.FORMS,
    **sync.FORMS,
    "ttng.warp_group_dot": _dot,
    "tt.dot": _dot,
    "tt.reduce": _reduce,
    "tt.scan": _reduce,
    "ttg.convert_layout": _convert,
    "tt.assert": _assert,
    "tt.print": _print,
    "tt.call": _call,
    "tt.elementwise_inline_asm": _assembly,
    "tt.return": _return,
}
