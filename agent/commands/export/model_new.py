"""A candidate as KernelBench's ModelNew: the problem's Model with another forward, which calls kernel().

Its weights and its constructor are the Model's own, so the same seed gives both the same. Which weight is which
argument stands in the target's reference(), as `init PROBLEM` wrote it. Relies on text; nothing is run.
"""

import ast
from dataclasses import dataclass

from pgo_agent.agent.commands.export import standalone
from pgo_agent.agent.commands.export.chosen import Chosen
from pgo_agent.agent.kernel_part import blocks, used_by
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.errors import UsageFault

MODEL = "Model"
HINT = "`pgo-agent init PROBLEM.py` makes such a target; export another one --as module"


@dataclass(frozen=True)
class Call:
    """How reference() calls the model."""

    weights: dict[str, str]  # argument -> the model's own name of it
    forward: list[str]  # arguments of the model
    arguments: list[str]  # of kernel(), in order


def text(chosen: Chosen) -> str:
    """Return the file. Raises UsageFault for a target that is not of such a problem."""
    source = chosen.candidate.source
    call = _call(source)
    module = standalone.text(chosen, {MODEL})
    names = [n for n in call.arguments if n not in call.weights and n not in call.forward]
    passed = [f'weights["{call.weights[n]}"]' if n in call.weights else n for n in call.arguments]
    if names:
        passed = [
            f"self.init[{names.index(n)}]" if n in names else p for n, p in zip(call.arguments, passed, strict=True)
        ]
    lines = [
        f"class ModelNew({MODEL}):",
        '    """The model with its forward by kernel()."""',
        "",
        "    def __init__(self, *init):",
        "        super().__init__(*init)",
        "        self.init = init",
        "",
        f"    def forward(self, {', '.join(call.forward)}):",
        "        named = *self.named_parameters(), *self.named_buffers()",
        "        weights = {name: tensor.detach() for name, tensor in named}",
        "        return kernel(",
        *(f"            {argument}," for argument in passed),
        "        )",
    ]
    return module.rstrip("\n") + "\n\n\n" + "\n".join(lines) + "\n"


def _call(source: str) -> Call:
    functions = {n.name: n for n in parsing.module(source).body if isinstance(n, ast.FunctionDef)}
    reference, model = functions.get("reference"), _has_model(source)
    if reference is None or not model:
        raise UsageFault("the target is not of a problem in KernelBench's form", HINT)
    weights, forward = dict[str, str](), list[str]()
    for node in ast.walk(reference):
        match node:
            case ast.Assign(targets=[ast.Name(id="weights")], value=ast.Dict(keys=keys, values=values)):
                pairs = zip(keys, values, strict=True)
                weights = {
                    v.id: str(k.value) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Name)
                }
            case ast.Call(func=ast.Attribute(attr="functional_call"), args=[_, _, ast.Tuple(elts=given)]):
                forward = [n.id for n in given if isinstance(n, ast.Name)]
    if not forward:
        raise UsageFault("the target's reference() does not call the model as `init PROBLEM` writes it", HINT)
    return Call(weights, forward, [a.arg for a in reference.args.args])


def _has_model(source: str) -> bool:
    parts = blocks(source)
    return bool(used_by(parts, [i for i, b in enumerate(parts) if MODEL in b.names]))
