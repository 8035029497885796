"""Writes the text of a target from its draft, and from the kernels that the box answered as plain Triton.

Relies on Jinja2 for `inductor.py.j2`.
"""

import ast
import re
from dataclasses import dataclass
from importlib import resources

from pgo_agent.agent.commands.init import original_reference, references, render
from pgo_agent.agent.commands.init.inductor import contract, derived, draft, rows
from pgo_agent.agent.commands.init.inductor.draft import Draft
from pgo_agent.agent.commands.init.inductor.drawn import DRAWN
from pgo_agent.agent.commands.init.inductor.fx_text import SOFTMAX
from pgo_agent.agent.commands.init.inductor.kernels import Plain
from pgo_agent.agent.commands.init.inductor.parameters import atomic
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import AS_IT_STOOD

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
    computed = derived.derived(made.group, draft.writer(made.sizes))
    inputs, before = list(contract.inputs(made, computed)), contract.before(made, computed)
    imports, body = (
        [line for n, line in IMPORTS.items() if n in used],
        draft.launcher(made, dict(enumerate(source.plain.statements))),
    )
    original = "" if made.found else _original(imports, part, made, body)
    reference = _reference(made)
    public, weights = contract.cases(source.drafts)
    fixed = not made.sizes.case()
    return {
        "path": source.path,
        "names": names,
        "atens": made.group.atens,
        "imports": imports,
        "part": part.strip("\n"),
        "arguments": made.arguments,
        "body": body,
        "original": original_reference.escaped(original),
        "original_words": AS_IT_STOOD.capitalize(),
        "missing": made.missing,
        "reference": reference,
        "reference_module": _helpers("\n".join([*reference, *before])),
        "inputs": inputs,
        "before": before,
        "normal": any("normal(" in text for text in (*before, *(t for _, t in inputs))),
        "integers": any("integers(" in text for text in (*before, *(t for _, t in inputs))),
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


def _original(imports: list[str], part: str, made: Draft, body: list[str]) -> str:
    """Return the kernels and kernel() as a text of their own."""
    lines = [f"def kernel({', '.join(made.arguments)}):", *(f"    {line}" for line in body)]
    return "\n\n\n".join(["\n".join(imports), part.strip("\n"), "\n".join(lines)]) + "\n"


def _reference(made: Draft) -> list[str]:
    """Return the lines of reference()."""
    if made.found is None:
        return original_reference.lines("kernel", made.arguments, [f"return kernel({', '.join(made.arguments)})"])
    lines = list(made.found.lines)
    if (where := made.sizes.where()) and re.search(r"\brows\b", "\n".join(lines)):
        head = where.partition(".")[0]
        lines.insert(0, f"rows = {where.replace(head, draft.named(head), 1)}")
    return [*lines, f"return {', '.join(draft.named(n) for n in made.found.results)}"]


def _helpers(text: str) -> str:
    """Return the functions that statements of a reference call."""
    called = {"cast(": references.CAST, "kind(": KIND, "_softmax_online(": SOFTMAX, "drawn(": DRAWN}
    return "\n\n\n".join(module.strip("\n") for name, module in called.items() if name in text)
