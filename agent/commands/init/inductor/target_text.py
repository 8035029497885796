"""Writes the text of a target from its draft, and from the kernels that the box answered as plain Triton.

Relies on Jinja2 for `inductor.py.j2`.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from pgo_agent.agent.commands.init import references, render
from pgo_agent.agent.commands.init.inductor import contract, draft, rows
from pgo_agent.agent.commands.init.inductor.draft import Draft
from pgo_agent.agent.commands.init.inductor.fx_text import SOFTMAX
from pgo_agent.agent.commands.init.inductor.kernels import Plain
from pgo_agent.agent.commands.init.inductor.parameters import atomic
from pgo_agent.sandbox import parsing

IMPORTS = {
    "math": "import math",
    "torch": "import torch",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "triton_helpers": "from torch._inductor.runtime import triton_helpers",
    "libdevice": "from torch._inductor.runtime.triton_helpers import libdevice",
    "tl_math": "from torch._inductor.runtime.triton_helpers import math as tl_math",
}
KIND = '''
def kind(dtype, x):
    """The type of a constant: float64 where the exact result is computed."""
    return torch.float64 if x.dtype == torch.float64 else dtype
'''


@dataclass(frozen=True)
class Source:
    """What a target is written from."""

    path: str  # of Inductor's file
    drafts: tuple[Draft, ...]  # that this target serves; all alike
    plain: Plain


def write(source: Source) -> str:
    """Return the text of a target."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    folder = resources.files("pgo_agent.agent.commands.init.inductor")
    template = folder.joinpath("inductor.py.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(**_values(source))


def _values(source: Source) -> dict[str, object]:
    made, names = source.drafts[0], source.drafts[0].group.names
    part = _part(source)
    used = {n.id for n in ast.walk(parsing.module(part)) if isinstance(n, ast.Name)} | {"torch"}
    inputs, body = list(contract.inputs(made)), draft.launcher(made, dict(enumerate(source.plain.statements)))
    reference, module = _reference(made)
    public, weights = contract.cases(source.drafts)
    fixed = not made.sizes.case()
    return {
        "path": source.path,
        "names": names,
        "atens": made.group.atens,
        "imports": [line for n, line in IMPORTS.items() if n in used],
        "part": part.strip("\n"),
        "arguments": made.arguments,
        "body": body,
        "reference": reference,
        "reference_module": module,
        "inputs": inputs,
        "normal": any("normal(" in text for _, text in inputs),
        "integers": any("integers(" in text for _, text in inputs),
        "cases": {n: contract.literal(c) for n, c in public.items()},
        "small": {n: contract.literal(c) for n, c in made.sizes.small().items()},
        "held_out": contract.literal(made.sizes.held_out()),
        "small_mark": "  # Inductor wrote the sizes into the kernel" if fixed else f"  {render.GUESSED}",
        "weights": weights,
        "in_place": render.in_place([draft.named(n) for n in made.group.changed]),
        "unordered": any(atomic(launch.kernel) for launch in made.group.launches),
        "flops": contract.flops(made),
        "moved": contract.moved(made),
        "guessed": render.GUESSED,
        "to_write": render.TO_WRITE,
    }


def _part(source: Source) -> str:
    """Return the kernels, each once."""
    made, texts = source.drafts[0], dict[str, str]()
    for i, launch in enumerate(made.group.launches):
        text = source.plain.kernels[launch.kernel.name]
        if made.sizes.rows is not None:
            text = rows.opened(text, launch.kernel.name, made.sizes.rows.launches[i])
        texts.setdefault(launch.kernel.name, text.strip("\n"))
    guessed = [n for n in texts if n in source.plain.guessed]
    marks = [f"# The configurations of {n} are guesses: {source.plain.guessed[n]}  {render.GUESSED}" for n in guessed]
    return "\n".join(marks) + "\n\n" * bool(marks) + "\n\n\n".join(texts.values())


def _reference(made: Draft) -> tuple[Sequence[str], str]:
    """Return the lines of reference(), and what it needs beside it."""
    if made.found is None:
        atens = ", ".join(made.group.atens) or "the result"
        return [f'raise NotImplementedError("{atens}, in plain PyTorch")  {render.TO_WRITE}: {made.missing}'], ""
    lines = list(made.found.lines)
    if where := made.sizes.where():
        head = where.partition(".")[0]
        if any("rows" in line for line in lines):
            lines.insert(0, f"rows = {where.replace(head, draft.named(head), 1)}")
    text = "\n".join(lines)
    module = (
        [references.CAST] * ("cast(" in text) + [KIND] * ("kind(" in text) + [SOFTMAX] * ("_softmax_online(" in text)
    )
    results = ", ".join(draft.named(n) for n in made.found.results)
    return [*lines, f"return {results}"], "\n\n\n".join(m.strip("\n") for m in module)
