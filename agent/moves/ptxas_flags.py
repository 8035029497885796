"""Ask ptxas to use fewer registers: `ptx_options="--register-usage-level=0"` at a kernel's launches.

For kernels that spill. Values stay; registers and the order of instructions change. It goes both ways (ptxas 12.8,
Triton 3.6), but a build and a measurement take seconds. Relies on libcst, and on the static profile of the best known
build: without one, or without spills, it does not apply. `sandbox/compiler/ptxas.py` says which flags a candidate may
give.
"""

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import code, functions, keywords, module_of, nodes, parameters, visited
from pgo_agent.agent.moves.analysis.launcher_edit import is_launch, launches, with_keywords
from pgo_agent.agent.moves.move import RewriteInput, SourceMove
from pgo_agent.agent.profile.findings import Defect

OPTION = "ptx_options"
FLAG = "--register-usage-level=0"


def rewrite(subject: RewriteInput) -> str:
    """Give every launch of the kernel the flag. Raises DoesNotApply unless it spills and every launch can take it."""
    if not subject.static:
        raise DoesNotApply("nothing is known of its build")
    if not subject.static.get("spill_store_bytes", 0):
        raise DoesNotApply("it spills nothing")
    module = module_of(subject.source)
    _check(module, subject.kernel)
    return visited(module, _Launches(subject.kernel)).code


def _check(module: cst.Module, kernel: str) -> None:
    """Raises DoesNotApply unless every launch can be given the option, and none has it."""
    calls = launches(module, kernel)
    if not calls:
        raise DoesNotApply(f"no function of the file launches {kernel}[grid](...)")
    named = {k for c in calls for k in keywords(c)}
    texts = {n.evaluated_value for n in nodes(module) if isinstance(n, cst.SimpleString)}
    by_name = functions(module)
    if OPTION in named | texts | set(parameters(by_name[kernel]) if kernel in by_name else ()):
        raise DoesNotApply(f"the file says something of {OPTION} already")
    unknown = next((a for c in calls for a in c.args if a.star == "**"), None)
    if unknown:
        raise DoesNotApply(f"its launch takes **{code(unknown.value)}, which may hold {OPTION}")


class _Launches(cst.CSTTransformer):
    """Gives every launch of a kernel one more argument."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        launch = is_launch(original_node, self.kernel)
        return with_keywords(updated_node, {OPTION: f'"{FLAG}"'}) if launch else updated_node


MOVE = SourceMove(
    name="ptxas: fewer registers",
    symptom="it spills",
    gain=(
        "judged on an H200: fa_bwd 1.00, 1.02 and 1.13x in its three cases; of 55 spilled builds of the shipped "
        "kernels 29 spilled less, 14 more"
    ),
    archs=(80, 86, 89, 90, 100, 103, 120),
    rewrite=rewrite,
    cures=(Defect.SPILL, Defect.OCCUPANCY),
)
