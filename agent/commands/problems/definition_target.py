"""The text of a target for a definition of flashinfer-bench. Its kernel() is a solution's, else the reference itself.

Inputs are random as that project draws them; numbers come from the workloads. What only a file of theirs holds is left
to write. Relies on `ast` for names, and runs nothing.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import PurePath

from pgo_agent.agent.commands.init import references, render
from pgo_agent.agent.commands.problems.definition import ENTRY, Definition, Number, Solution, Spec, Workload
from pgo_agent.agent.kernel_part import blocks
from pgo_agent.sandbox import parsing, target
from pgo_agent.sandbox.errors import UsageFault

MOST = 4  # workloads that become cases
GUESSED = (1024, 512, 256, 128)  # open axes, without a workload
SMALL, HELD_OUT = {"even": (4, 8, 16), "ragged": (3, 5, 7)}, (5, 3, 9)
WHOLE = {"int8": (-128, 128), "bool": (0, 2)}  # what whole numbers are drawn from; others from -1024 to 1023
Axes = Mapping[str, int]


def text(
    of: Definition, workloads: Sequence[Workload], solution: Solution | None, file: PurePath, uncounted: str = ""
) -> str:
    """Return the target. `uncounted`: why PyTorch cannot count what the reference does. Raises UsageFault for texts
    whose names it cannot keep apart."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    place = resources.files("pgo_agent.agent.commands.problems").joinpath("definition.py.j2")
    kernel, reference = _kernel(of, solution), _renamed(_exact(of.reference), ENTRY, "reference")
    cases = {w.uuid[:8]: {a: w.axes[a] for a in of.open} for w in _chosen(workloads)}
    numbers = {n: v for w in reversed(workloads) for n, v in w.numbers.items()}
    return environment.from_string(place.read_text(encoding="utf-8")).render(
        name=of.name,
        file=file.name,
        kernel=kernel,
        reference=_without_imports_of(kernel, reference),
        inputs=[(n, _input(of, n, s, numbers, workloads)) for n, s in of.inputs.items()],
        cases=cases or {"guessed": dict(zip(of.open, itertools.cycle(GUESSED), strict=False))},
        told=bool(cases),
        small={n: sized(of, values) for n, values in SMALL.items()},
        held_out=sized(of, HELD_OUT),
        dictionary=lambda axes: f"dict({', '.join(f'{n}={v}' for n, v in axes.items())})",
        guessed=render.GUESSED,
        uncounted=uncounted,
        moved=list(_bytes(of)),
        indexed=_indexed(of),
    )


def sized(of: Definition, values: Sequence[int]) -> dict[str, int]:
    """Return sizes for the open axes, of which one follows others where a constraint says that it equals them."""
    axes = dict(zip(of.open, itertools.cycle(values), strict=False))
    known = {n: v for n, v in of.axes.items() if v is not None}
    for constraint in of.constraints:
        match parsing.expression(constraint):
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[value]) if name in axes:
                made = _value(value, known | axes)
                axes[name] = made if made is not None else axes[name]
    return axes


def _value(node: ast.expr, axes: Axes) -> int | None:
    match node:
        case ast.Constant(value=int(n)):
            return n
        case ast.Name(id=name):
            return axes.get(name)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, axes), _value(right, axes)
            if a is None or b is None:
                return None
            made = {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b, ast.FloorDiv: a // b if b else None}
            return made.get(type(op))
    return None


def _chosen(workloads: Sequence[Workload]) -> list[Workload]:
    """Return workloads with other axes each, some small and some large."""
    distinct = list({tuple(sorted(w.axes.items())): w for w in workloads}.values())
    by_size = sorted(distinct, key=lambda w: sum(w.axes.values()))
    if len(by_size) <= MOST:
        return by_size
    return [by_size[i * (len(by_size) - 1) // (MOST - 1)] for i in range(MOST)]


# texts ----------------------------------------------------------------------------------------------------------------


def _exact(reference: str) -> str:
    """Return a reference whose casts to shorter floats leave float64 as it is."""
    tree = references.Casts().visit(parsing.module(reference))
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return text if "cast(" not in text else _after_imports(text, references.CAST)


def _without_imports_of(kernel: str, text: str) -> str:
    known = {b.text.strip() for b in blocks(kernel) if b.imports}
    return "".join(b.text for b in blocks(text) if not (b.imports and b.text.strip() in known)).strip("\n") + "\n"


def _after_imports(text: str, added: str) -> str:
    parts = blocks(text)
    at = next((i for i, b in enumerate(parts) if not b.imports), len(parts))
    return "".join([*(b.text for b in parts[:at]), f"\n{added}\n\n", *(b.text for b in parts[at:])])


def _kernel(of: Definition, solution: Solution | None) -> str:
    """Return the kernel part: a solution's, or the reference as PyTorch runs it."""
    if solution is None:
        return _renamed(of.reference, ENTRY, "kernel")
    if not solution.into_results:
        return _renamed(solution.text, solution.function, "kernel")
    made = _renamed(solution.text, solution.function, "into")
    sizes = "".join(f"    {a} = {_size(of, a)}\n" for a in of.axes if _size(of, a))
    device = next(n for n, s in of.inputs.items() if s.shape)
    results = [
        (n, f"torch.empty({_shape(s)}, dtype=torch.{s.dtype}, device={device}.device)") for n, s in of.outputs.items()
    ]
    lines = "".join(f"    {n} = {text}\n" for n, text in results)
    given, names = ", ".join(of.inputs), ", ".join(of.outputs)
    head = "" if re.search(r"^import torch$", made, re.M) else "import torch\n"
    return f"{head}{made}\n\ndef kernel({given}):\n{sizes}{lines}    into({given}, {names})\n    return {names}\n"


def _size(of: Definition, axis: str) -> str:
    if of.axes[axis] is not None:
        return str(of.axes[axis])
    found = ((n, s.shape.index(axis)) for n, s in of.inputs.items() if s.shape and axis in s.shape)
    return next((f"{n}.shape[{i}]" for n, i in found), "")


def _shape(spec: Spec) -> str:
    return f"({', '.join(spec.shape or ())}{',' if len(spec.shape or ()) == 1 else ''})"


def _renamed(text: str, old: str, new: str) -> str:
    """Return a text in which a function has another name. Raises UsageFault where its names clash with a target's."""
    parts = blocks(text)
    at = next((i for i, b in enumerate(parts) if old in b.names), None)
    if at is None:
        raise UsageFault(f"the text defines no function {old}", "it is what the definition or the entry point names")
    clashes = sorted(
        (target.CONTRACT | {"kernel"}) & {n for i, b in enumerate(parts) if i != at for n in b.names} - {old}
    )
    if clashes or any(old in b.loads for i, b in enumerate(parts) if i != at):
        raise UsageFault(f"{', '.join(clashes) or old} is used by the text for something else", "rename it in a copy")
    changed = re.sub(rf"^(def ){old}\b", rf"\g<1>{new}", parts[at].text, flags=re.M)
    return "".join([*(b.text for b in parts[:at]), changed, *(b.text for b in parts[at + 1 :])]).strip("\n") + "\n"


# inputs ---------------------------------------------------------------------------------------------------------------


def _input(of: Definition, name: str, spec: Spec, numbers: Mapping[str, Number], workloads: Sequence[Workload]) -> str:
    """Return the line that makes an input."""
    if spec.shape is None:
        return (
            f"{numbers[name]!r}," if name in numbers else f"None,  {render.TO_WRITE}: a number, which no workload gives"
        )
    shape = ", ".join(f'case["{a}"]' if of.axes[a] is None else str(of.axes[a]) for a in spec.shape)
    shape = f"({shape}{',' if len(spec.shape) == 1 else ''})"
    kept = any(name in w.files for w in workloads)
    if "float" not in spec.dtype:
        if kept:
            return f"None,  {render.TO_WRITE}: whole numbers that the workloads keep in a file"
        low, high = WHOLE.get(spec.dtype, (-1024, 1024))
        return f"integers({low}, {high}, {shape}, torch.{spec.dtype}),"
    mark = f"  {render.GUESSED}: the workloads keep it in a file" if kept else ""
    return f"normal({shape}, torch.{spec.dtype}),{mark}"


def _indexed(of: Definition) -> bool:
    """Whether whole numbers among the inputs may say what is read of the others."""
    return any(s.shape and "float" not in s.dtype for s in of.inputs.values())


def _bytes(of: Definition) -> Iterator[str]:
    """Yield the bytes of each tensor that is moved in any case, as expressions of a case."""
    for spec in (*(() if _indexed(of) else of.inputs.values()), *of.outputs.values()):
        if spec.shape is not None:
            factors = [f'case["{a}"]' if of.axes[a] is None else str(of.axes[a]) for a in spec.shape]
            yield " * ".join([*factors, f"torch.{spec.dtype}.itemsize"])
