"""The text of a target for a problem of KernelBench's form. Its kernel() is the model's forward as PyTorch runs it.

The box says in which sizes the model works (`sandbox/tracer/problem.py`). Weights are inputs, drawn as the model draws
them, so kernel and reference have the same. What the answer says is checked before it becomes part of a text.
"""

import json
import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources

from pgo_agent.agent.commands.init import render
from pgo_agent.agent.commands.problems.kernelbench import Problem
from pgo_agent.agent.commands.problems.ladders import HIDDEN_CASE, LAST_CASE, ROWS_CASE, ladders
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.errors import BadBundle, UsageFault
from pgo_agent.sandbox.interpreter.as_shipped import HELD_OUT_BYTES, HELD_OUT_FLOPS
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.temporary_folders import temporary_folder

SECONDS = 120.0
LONG = 0.05  # of the most work for the interpreter: kernels walk through long rows a few elements at a time
PUBLIC = "given"
MODULE = "pgo_agent.sandbox.tracer.problem"
HINT = "a problem has class Model(nn.Module), get_inputs() and get_init_inputs(), and makes its tensors on the host"


@dataclass(frozen=True)
class Tried:
    """The sizes of a case, and what it costs."""

    sizes: dict[str, int]
    flops: int
    bytes: int


@dataclass(frozen=True)
class Looked:
    """What the box says of a problem."""

    forward: tuple[str, ...] = ()  # arguments of the model
    init: tuple[str, ...] = ()  # and of its constructor
    weights: tuple[str, ...] = ()  # their names in the model
    cases: dict[str, Tried] = field(default_factory=dict)
    of_init: bool = False  # what it computes depends on sizes that its constructor was given
    dropout: bool = False
    batch_norm: bool = False
    partial: bool = False  # parts of what it is given may stay unread


def look(box: Box, problem: Problem) -> Looked:
    """Ask the box about a problem. Raises UsageFault where the model does not run."""
    request = {
        "sizes": dict(problem.sizes),
        "given": problem.given.sizes,
        "init": problem.init.sizes,
        "ladders": ladders(problem.sizes, problem.init.sizes),
        "rows": [ROWS_CASE, LAST_CASE],
    }
    with temporary_folder("problem") as folder:
        (folder / "out").mkdir()
        (folder / "problem.py").write_text(problem.text, encoding="utf-8")
        (folder / "request.json").write_text(json.dumps(request))
        ran = box.run(MODULE, folder, SECONDS)
        try:
            answer = validate.answer(folder / "out" / "result.json")
            error = str(answer.get("error", ""))
            looked = Looked() if error else json_codec.from_json(Looked, answer)
        except (BadBundle, OSError, ValueError, TypeError, KeyError):
            why = f"it ran for over {SECONDS:.0f} s" if ran.timed_out else ran.output.strip()[-500:]
            raise UsageFault(f"the problem left no answer: {why}", HINT) from None
    if error:
        raise UsageFault(f"the model does not run: {error}", HINT)
    _must_be_names(looked, problem)
    return looked


def _must_be_names(looked: Looked, problem: Problem) -> None:
    dotted = [part for w in looked.weights for part in w.split(".") if not part.isdigit()]
    sizes = [n for t in looked.cases.values() for n in t.sizes if n not in problem.sizes]
    wrong = [n for n in (*looked.forward, *looked.init, *dotted) if not n.isidentifier() or keyword.iskeyword(n)]
    if wrong or sizes:
        raise UsageFault(f"the problem has what is no name: {[*wrong, *sizes][0]!r:.80}", HINT)


def text(problem: Problem, looked: Looked, name: str) -> str:
    """Return the target."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    place = resources.files("pgo_agent.agent.commands.problems").joinpath("kernelbench.py.j2")
    init = looked.init if looked.of_init else ()
    weights = list(_weights(looked, init))
    sizes = ", ".join(str(problem.sizes[n]) for n in problem.init.sizes)
    small = {c: t.sizes for c, t in _small(problem, looked)}
    return environment.from_string(place.read_text(encoding="utf-8")).render(
        name=name,
        problem=problem,
        looked=looked,
        init=init,
        made=", ".join(init) if init else f"*get_init_inputs({sizes})",
        arguments=[*looked.forward, *(argument for _, argument in weights), *init],
        weights=weights,
        of_case=lambda names: ", ".join(f'case["{n}"]' for n in names),
        dictionary=lambda values: f"dict({', '.join(f'{n}={v}' for n, v in values.items())})",
        imports_torch="\nimport torch\n" in f"\n{problem.model}\n",
        model=lambda made: f"prepared(Model({made}))" if looked.dropout or looked.batch_norm else f"Model({made})",
        public=PUBLIC,
        hidden=HIDDEN_CASE,
        small=small or {PUBLIC: dict(problem.sizes)},
        held_out=looked.cases[HIDDEN_CASE].sizes,
        guessed=render.GUESSED,
    )


def _small(problem: Problem, looked: Looked) -> Iterator[tuple[str, Tried]]:
    """Yield small cases that differ, and that the interpreter runs."""
    seen, cases = [dict(problem.sizes)], dict(looked.cases)
    cases.pop(HIDDEN_CASE)
    if _cheap(cases[ROWS_CASE], LONG):
        cases.pop(LAST_CASE)
    for case, tried in cases.items():
        if tried.sizes not in seen and _cheap(tried, LONG if case in (ROWS_CASE, LAST_CASE) else 1.0):
            seen.append(tried.sizes)
            yield case, tried


def _cheap(tried: Tried, share: float) -> bool:
    """Whether the interpreter runs such a case within a share of what it may take for one."""
    return tried.flops <= share * HELD_OUT_FLOPS and tried.bytes <= share * HELD_OUT_BYTES


def _weights(looked: Looked, init: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the model's name of each weight, and that of the argument."""
    taken = {*looked.forward, *init, "case", "generator"}
    for dotted in looked.weights:
        plain = dotted.replace(".", "_")
        name = next(
            n for n in (plain, *(f"{plain}_{i}" for i in range(2, 99))) if n not in taken and not keyword.iskeyword(n)
        )
        taken.add(name if name.isidentifier() else f"w_{name}")
        yield dotted, name if name.isidentifier() else f"w_{name}"


def notes(problem: Problem, looked: Looked) -> Iterator[str]:
    """Yield what a person should know of a target."""
    if looked.dropout:
        yield "dropout is off: random numbers cannot be compared"
    if looked.batch_norm:
        yield "batch norm uses the statistics of the batch, and its running ones are not kept: kernel() changes nothing"
    fixed = [n for n, v in problem.sizes.items() if v > 8 and all(t.sizes[n] == v for t in looked.cases.values())]
    if not list(_small(problem, looked)):
        why = "no smaller case takes little enough work" if len(fixed) < len(problem.sizes) else "no size may change"
        yield f"{why}: Triton's interpreter may be too slow for the one small case"
    if fixed:
        yield f"the model takes no other {', '.join(fixed)}: every case has the size that the problem has"
