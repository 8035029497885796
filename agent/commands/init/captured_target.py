"""Writes a target from captured calls of a launcher: kernel() and reference(), and the rest by `captured_inputs.py`.

Relies on `references.py` for the reference. A method of an autograd Function is called with a stand-in context, forward
and, where it was seen, backward: what forward saves is then checked by the gradients.
"""

import ast
import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgo_agent.agent.commands import origins
from pgo_agent.agent.commands.init import cases as sizes
from pgo_agent.agent.commands.init import inlined, original_reference, program_text, references, render
from pgo_agent.agent.commands.init.captured_calls import Captured
from pgo_agent.agent.commands.init.captured_inputs import Inputs, flops, moved
from pgo_agent.agent.commands.init.cases import Guess
from pgo_agent.agent.commands.init.seen import tensor, tensors
from pgo_agent.agent.kernel_part import Block, blocks
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.target import AS_IT_STOOD, CONTRACT

if TYPE_CHECKING:
    import jinja2

RAGGED = (sizes.LESS, 8, 16, 32)  # by how much guessed sizes differ from even ones: the least that the launcher takes


EVEN, HIDDEN = "even", "odd"  # a small and the held-out case


@dataclass(frozen=True)
class Sizing:
    """How the sizes of a target are guessed."""

    less: int = RAGGED[0]  # by how much they are no power of two
    own: bool = True  # with the program's own inputs, where random numbers alone would not do
    how: Guess = Guess.RAGGED
    follow: bool = True  # numbers among the arguments that are sizes follow them
    part: int = 1  # what part of the usual size small cases have


def write(captured: Captured, sizing: Sizing, origins: Sequence[str]) -> str:
    """Return the text of a target. Raises UsageFault when the kernel needs names that a target defines."""
    taken = CONTRACT | ({"kernel"} if captured.name != "kernel" else set())
    clashes = sorted(taken & {n for b in captured.needed for n in b.names})
    if clashes:
        hint = "rename them in a copy, and give that"
        raise UsageFault(f"{captured.path} has names of its own for what a target defines: {', '.join(clashes)}", hint)
    return str(_template().render(**_values(captured, sizing), origins=origins))


@cache
def _template() -> "jinja2.Template":
    """Return the text of all targets: one is written for every try of sizes."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = resources.files("pgo_agent.agent.commands.init").joinpath("captured.py.j2").read_text(encoding="utf-8")
    return environment.from_string(template)


def origins_of(captured: Captured, to: Path) -> list[str]:
    """Return what the target at `to` says of the files that it is taken from."""
    modules = captured.modules
    files = {f for f in (captured.path, *modules.kernels, *modules.between) if f.is_file()}
    return origins.lines(captured.part, files, to, modules.repository)


def _values(captured: Captured, sizing: Sizing) -> dict[str, Any]:
    known = sizes.sizes(captured.calls, captured.function, sizing.follow)
    writer = Inputs(captured, known, sizing.own)
    inputs = list(writer.lines())
    lines, module, bounds = _reference(captured)
    count = len(captured.calls)
    bytes_moved = moved(captured, known, writer.dtype[0] if writer.dtype else "", lines)
    return {
        "path": captured.path.name,
        "launcher": captured.name,
        "calls": f"{count} calls" if count > 1 else "one call",
        "whose": captured.whose,
        "original": original_reference.escaped(captured.original),
        "original_words": AS_IT_STOOD.capitalize(),
        "weights": list(zip(map(writer.label, range(count)), captured.weights, strict=False)),
        "part": captured.part,
        "torch": any("torch" in b.names for b in captured.needed),
        "function": captured.calls[0].context is not None,
        "wrapped": captured.name != "kernel",
        "arguments": captured.arguments,
        "gradients": captured.gradients,
        "body": _body(captured),
        "reference": lines,
        "reference_module": _together([module, _without(writer.module, captured)], "\n".join(lines)),
        "own_lines": [line for part in writer.own_lines for line in part.split("\n")],
        "in_place": render.in_place(captured.changed),
        "unordered": captured.unordered,
        "bounds": ", ".join(f"{n}={b:g}" for n, b in bounds.items()),
        "dtype": writer.dtype is not None,
        "normal": any("normal(" in text for _, text in inputs),
        "within": any("within(" in text for _, text in inputs),
        "integers": any("integers(" in text for _, text in inputs),
        "labels": any("labels(" in text for _, text in inputs),
        "inputs": inputs,
        "cases": [(writer.label(i), writer.case(i)) for i in range(count)],
        "small": [
            (name, writer.with_sizes(sizes.smaller(known, captured.calls, m, guess, sizing.part)))
            for name, m, guess in _small(sizing.less, sizing.how)
        ],
        "hidden": HIDDEN,
        "held_out": writer.with_sizes(sizes.held_out(known, captured.calls, sizing.less, sizing.how)),
        "flops": flops(captured, known),
        "moved": bytes_moved,
        "guessed": render.GUESSED,
        "to_write": render.TO_WRITE,
    }


def _small(less: int, how: Guess) -> list[tuple[str, int, Guess]]:
    """Return the names of small cases, with how their sizes are guessed."""
    if how == Guess.SAME:
        return [("seen", 0, how)]
    if how == Guess.MULTIPLES:
        return [(str(how), 0, how)]
    if how == Guess.ROWS:
        return [(f"{EVEN} {how}", 0, how), (str(how), less, how)]
    return [(EVEN, 0, Guess.RAGGED), (str(how), less, how)]


def checked(captured: Captured) -> bool:
    """Whether the program's own check tells what the launcher must give."""
    return render.TO_WRITE not in _reference(captured)[0][0]


# kernel() -------------------------------------------------------------------------------------------------------------


def _body(captured: Captured) -> list[str]:
    call = captured.calls[0]
    if call.context is None:
        return _plain_body(captured)
    lines = ["ctx = Context()", f"out = {captured.name}.forward(ctx, {_passed(captured)})"]
    several = "list" in call.result
    results = ["*(t for t in out if isinstance(t, torch.Tensor))" if several else "out"]
    if several and captured.backward is None and (compared := captured.expected):
        places = [i for i, v in enumerate(call.result["list"]) if tensor(v) is not None]
        results = [f"out[{places[i]}]" for i in sorted({*compared, *captured.unchecked}) if i < len(places)]
    if captured.backward:
        lines += [f"gradients = {captured.name}.backward(ctx, {', '.join(captured.gradients)})"]
        of = [n if n in captured.arguments and tensor(v) else "None" for n, v in call.given.items()]
        if tensor(captured.backward.result) is not None:
            results.append(f"gradients.to({of[0]}.dtype)" if of[0] != "None" else "gradients")
        else:  # autograd casts them, too
            results.append(f"*(g.to(t.dtype) for g, t in zip(gradients, ({', '.join(of)})) if g is not None)")
    return [*lines, f"return {', '.join(results)}{',' if len(results) == 1 and several else ''}"]


def _plain_body(captured: Captured) -> list[str]:
    """Return the call, its results, and what is compared of what it changes: all, where nothing is compared."""
    call, text = captured.calls[0], f"{captured.name}({_passed(captured)})"
    results, outputs = tensors(call.result), captured.given_back(captured.calls[0])
    compared = {*captured.expected, *captured.unchecked} or set(range(len(outputs)))
    returned = {t.storage for t in results}
    written = [n for n in captured.changed if n in call.given]
    names = [n for n in written if not {t.storage for t in tensors(call.given[n])} & returned]
    changed = [references.expression(leaf) for n in names for leaf, _ in sizes.leaves(n, call.given[n])]
    beside = [text for i, text in enumerate(changed, len(results)) if i in compared]
    kept = [i for i in range(len(results)) if i in compared]
    listed = call.result.get("list", ())
    if not kept:
        return [text, f"return {', '.join(beside) or 'None  ' + render.TO_WRITE + ': what the launch writes'}"]
    if not beside and len(kept) == len(results) and len(listed) in (0, len(results)):
        return [f"return {text}"]
    places = [i for i, v in enumerate(listed) if tensor(v) is not None]
    flat = len(places) == len(results)
    parts = (
        [f"results[{places[i]}]" for i in kept] if flat else ["*(t for t in results if isinstance(t, torch.Tensor))"]
    )
    values = [*(parts if listed else ["results"]), *beside]
    comma = "," if len(values) == 1 and values[0].startswith("*") else ""
    return [f"results = {text}", f"return {', '.join(values)}{comma}"]


def _passed(captured: Captured) -> str:
    """Return the arguments of the call: by position until one is left out, and by name from there on."""
    only = {k.arg for k in captured.function.args.kwonlyargs} if captured.function else set[str]()
    parts, skipped = [], False
    for n in captured.calls[0].given:
        if n not in captured.arguments and n not in captured.fixed:
            skipped = True
        else:
            value = captured.fixed[n].text if n in captured.fixed else _handed_on(n, captured.calls[0].given[n])
            parts.append(f"{n}={value}" if skipped or n in only else value)
    return ", ".join(parts)


def _handed_on(name: str, value: Mapping[str, Any]) -> str:
    """Return what a launcher is given for an argument of kernel(): of tensors that it wants addresses of, a table."""
    if "table" not in value:
        return name
    dtype = "" if value["table"] == "int64" else f", dtype=torch.{value['table']}"
    return f"torch.tensor([t.data_ptr() for t in {name}]{dtype}, device={name}[0].device)"


# reference() ----------------------------------------------------------------------------------------------------------


def _reference(captured: Captured) -> tuple[list[str], str, Mapping[str, float]]:
    """Return the lines of reference(), what it needs beside it, and the tolerance of the program's own check."""
    if captured.original:
        return original_reference.lines(captured.name, captured.inputs, _plain_body(captured), captured.tiles), "", {}
    call = captured.calls[0]
    found = captured.expected
    forward = tensors(call.result) or [t for n in captured.changed for t in tensors(call.given.get(n))]
    if not found or (captured.backward and set(found) != set(range(len(forward)))):
        return [f'raise NotImplementedError("the result, in plain PyTorch")  {render.TO_WRITE}'], "", {}
    parts = [found[i] for i in sorted(found)]
    apart = program_text.apart([(e.body, e.value) for e in parts])
    lines = [line for part in dict.fromkeys(part for body, _ in apart for part in body) for line in part.split("\n")]
    values = dict(zip(sorted(found), (v for _, v in apart), strict=True))
    if captured.unchecked:
        which = ", ".join(str(i) for i in captured.unchecked)
        lines.insert(
            0,
            f'raise NotImplementedError("result {which}, which the program compares with nothing")  {render.TO_WRITE}',
        )
    value = ", ".join(values.get(i, "None") for i in sorted({*found, *captured.unchecked}))
    module = "\n\n\n".join(e.module.strip("\n") for e in parts if e.module.strip())
    if captured.backward is None:
        return [*lines, f"return {value}"], _without(module, captured), parts[0].bounds
    with_grad = [
        n
        for n, v in zip(call.given, captured.backward.result.get("list", [captured.backward.result]), strict=False)
        if tensor(v)
    ]
    names = ", ".join(with_grad)
    comma = "," if len(with_grad) == 1 else ""
    inner = [f"{names}{comma} = (t.detach().requires_grad_() for t in ({names}{comma}))", *lines, f"out = {value}"]
    grads = ", ".join(captured.gradients)
    outs = "*out" if len(parts) > 1 else "out"
    given = f"({grads},)" if len(captured.gradients) == 1 else f"({grads})"
    last = f"return {outs}, *torch.autograd.grad(out, ({names}{comma}), {given})"
    return (
        ["with torch.enable_grad():", *(f"    {line}" for line in [*inner, last])],
        _without(module, captured),
        parts[0].bounds,
    )


def _without(module: str, captured: Captured) -> str:
    """Return what the reference needs of the test's module, but for what the kernel part has already: an import of the
    launcher after it would put the package's own in place of the candidate's."""
    names = {"torch", *(n for b in captured.needed for n in b.names)}
    kept = [b for b in blocks(module) if not b.names or b.names - names] if module else []
    parts = [p for b in kept for p in (_imported(b, names, captured) if b.imports else [b])]
    return "\n\n\n".join(p.text.strip("\n") for p in parts if not p.names or p.names - names).strip("\n")


def _imported(part: Block, names: Collection[str], captured: Captured) -> list[Block]:
    return inlined.own(captured.path, _less(part, names), captured.modules)


def _less(part: Block, names: Collection[str]) -> str:
    """Return a part of a module; an import without those names."""
    if not part.imports or not part.names & set(names):
        return part.text
    lines = list[str]()
    for node in part.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node = copy.copy(node)
            node.names = [a for a in node.names if (a.asname or a.name.partition(".")[0]) not in names]
            lines += [ast.unparse(node)] if node.names else []
    return "".join(f"{line}\n" for line in lines)


def _together(modules: Sequence[str], lines: str) -> str:
    """Return what several need of the program's module, each part once, and what references call."""
    parts = list(dict.fromkeys(b.text.strip("\n") for m in modules if m for b in blocks(m) if b.text.strip()))
    if "cast(" in "\n".join((*parts, lines)):
        imports = [p for p in parts if p.startswith(("import ", "from "))]
        parts = [*imports, references.CAST.strip("\n"), *(p for p in parts if p not in imports)]
    return "\n\n\n".join(parts)
