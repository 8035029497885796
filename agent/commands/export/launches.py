"""A proven dispatch as a patch of a kernel's launches: a package that a program imports, and nothing else changes.

For a kernel whose launches a trace has, or an Inductor file: the target's launcher was made of launches, so the module
that the kernel is from has no such function to write it back into. `patched_launches.py`, whose copy stands in the
package, takes over the launches that the target's own launcher would have made, where a guard holds. Relies on text;
nothing is run.
"""

import ast
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path

from pgo_agent.agent.commands import origins
from pgo_agent.agent.commands.export import given_results, standalone
from pgo_agent.agent.commands.export.chosen import Chosen
from pgo_agent.agent.commands.init import render
from pgo_agent.agent.commands.init.scan import is_kernel
from pgo_agent.agent.kernel_part import Block, blocks, kernel_part, used_by
from pgo_agent.agent.moves.analysis import merge_kernels
from pgo_agent.agent.run import target_file
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.packages_folder import within

WIDTH = 116
RUNTIME = "patched_launches.py"
HINT = "`pgo-agent init --from-trace TRACE` makes such a target; export another one --as module"
_PACKAGE = '''\
"""{said}
"""

import torch

from . import {regions}, shipped
from .patched_launches import Region, install


{guards}

patched = install(
    {module},
    {kernel},
    {digest},
    {gpu},
    shipped.launcher,
    {parameters},
    [{listed}],
)
'''
_USE = (
    "Import it, and those launches of {module}.{kernel} that were judged go to the faster kernels; all others stay as "
    "they are. `patched.launches` counts them; `patched` is None where the module is not the one that this was proven "
    "against."
)
_GUARD = '''
def guard_{i}({parameters}):
    """{said}"""
    return (
        {tests}
    )
'''


def files(chosen: Chosen) -> Mapping[str, str]:
    """Return the package's files. Raises UsageFault for what is no dispatch, or of no module's kernel."""
    if chosen.proof is None:
        raise UsageFault("only what `pgo-agent dispatch` has proven takes over launches", "add --dispatch")
    subject = target_file.unmoved(chosen.run)
    parts = blocks(kernel_part(subject.source))
    kernel = _launched(parts)
    origin = _origin(chosen, kernel)
    parameters = merge_kernels.parameters(subject.source)
    texts, said = dict[str, str](), list[str](chosen.said)
    for i, winner in enumerate(chosen.winners, 1):
        text, copied = given_results.rewritten(standalone.kernel_text(winner.source))
        texts[f"region_{i}.py"] = f"# {winner.move}\n\n{text}"
        said += [f"region_{i}: {copied} of its results are copied into the caller's tensors"] if copied else []
    regions = chosen.proof.regions
    guards = [
        _GUARD.format(
            i=i, parameters=parameters, said=", ".join(r.cases), tests=r.guard.replace(" and ", "\n        and ")
        )
        for i, r in enumerate(regions, 1)
    ]
    module = _module(origin.path)
    use = _USE.format(module=module, kernel=kernel)
    package = _PACKAGE.format(
        said="\n\n".join(textwrap.fill(line, WIDTH) for line in (*said, use, *standalone.licences(chosen))),
        regions=", ".join(name.removesuffix(".py") for name in texts),
        guards="\n\n".join(guards).strip("\n") + "\n",
        module=json.dumps(module),
        kernel=json.dumps(kernel),
        digest=json.dumps(origin.digest),
        gpu=json.dumps(chosen.proof.gpu),
        parameters=repr(tuple(parameters.split(", "))),
        listed=", ".join(f"Region(guard_{i}, region_{i}.{given_results.ENTRY})" for i in range(1, len(regions) + 1)),
    )
    return {
        "__init__.py": package,
        "shipped.py": _shipped(parts, kernel),
        RUNTIME: Path(__file__).with_name(RUNTIME).read_text(encoding="utf-8"),
        **texts,
    }


def _launched(parts: list[Block]) -> str:
    """Return the only kernel that host functions launch. Raises UsageFault for several."""
    jitted = {n for b in parts if _is_kernel(b) for n in b.names}
    host = [b for b in parts if not b.imports and not _is_kernel(b)]
    launched = {
        node.value.id
        for b in host
        for statement in b.nodes
        for node in ast.walk(statement)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in jitted
    }
    if len(launched) != 1:
        found = ", ".join(sorted(launched)) or "none"
        raise UsageFault(f"launches of one kernel can be taken over; the target launches {found}", HINT)
    return launched.pop()


def _is_kernel(part: Block) -> bool:
    return any(isinstance(n, ast.FunctionDef) and is_kernel(n) for n in part.nodes)


def _origin(chosen: Chosen, kernel: str) -> origins.Origin:
    """Return the file that the kernel was taken from."""
    found = origins.recorded(chosen.candidate.source, Path(chosen.run.target))
    if len(found) != 1:
        raise UsageFault(f"the target does not say which file {kernel} was taken from", HINT)
    return found[0]


def _module(path: Path) -> str:
    """Return a file's name as a module, by the packages that it lies in."""
    parts = within(path) or (*render.package(path), path.name)
    return ".".join(Path(*parts).with_suffix("").parts).removesuffix(".__init__")


def _shipped(parts: list[Block], kernel: str) -> str:
    """Return the module with the launcher as it was judged, within a function that is given the kernel."""
    host = [i for i, b in enumerate(parts) if given_results.LAUNCHER in b.names]
    walls = [i for i, b in enumerate(parts) if kernel in b.names]
    needed = used_by(parts, host, walls)
    above = [b.text for i, b in enumerate(parts) if i in needed and not _is_function(b)]
    within = [b.text.strip("\n") for i, b in enumerate(parts) if i in needed and _is_function(b)]
    body = textwrap.indent("\n\n".join(within), "    ")
    head = '"""The launcher whose launches were judged: patched_launches.py compares with it."""\n\n'
    return (
        f"{head}{''.join(above).strip()}\n\n\ndef launcher({kernel}):\n{body}\n\n    return {given_results.LAUNCHER}\n"
    )


def _is_function(part: Block) -> bool:
    return any(isinstance(n, ast.FunctionDef) for n in part.nodes)
