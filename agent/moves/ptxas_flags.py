"""Ask ptxas for another schedule: `ptx_options="..."` at a kernel's launches. Values stay; registers and order change.

Two flags, for kernels that ran out of registers, where ptxas decides most. Neither is known to be faster: what they do
to a build was seen on ptxas 12.8 (Triton 3.6) and goes both ways, but a build and a measurement take seconds. Relies on
libcst, and on the static profile of the best known build: without one, or without the symptom, they do not apply.
`sandbox/compiler/ptxas.py` says which flags a candidate may give.
"""

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import code, functions, keywords, nodes, parameters, visited
from pgo_agent.agent.moves.analysis.launcher_edit import launches, with_keywords
from pgo_agent.agent.moves.move import SourceMove, Subject
from pgo_agent.agent.profile.findings import Defect

OPTION = "ptx_options"
FEWER_REGISTERS, LESS_OPTIMIZED = "--register-usage-level=0", "--opt-level=1"
MOST_REGISTERS = 255  # of one thread
UNIT = 8  # registers of a thread are given out in this unit


def fewer_registers(subject: Subject) -> str:
    """Raises DoesNotApply unless the kernel spills and every launch of it can be given a flag."""
    if not _known(subject)["spill_store_bytes"]:
        raise DoesNotApply("it spills nothing")
    return _with_flag(subject, FEWER_REGISTERS)


def less_optimized(subject: Subject) -> str:
    """Raises DoesNotApply unless the kernel uses all registers it may and every launch of it can be given a flag."""
    used, most = _known(subject)["registers"], _most_registers(subject)
    if used <= most - UNIT:
        raise DoesNotApply(f"it uses {used} of {most} registers")
    return _with_flag(subject, LESS_OPTIMIZED)


def _known(subject: Subject) -> dict[str, int]:
    if not subject.static:
        raise DoesNotApply("nothing is known of its build")
    return {n: int(subject.static.get(n, 0)) for n in ("registers", "spill_store_bytes")}


def _most_registers(subject: Subject) -> int:
    """What a thread of the best known configuration may use: its own limit, or a block's share of the SM."""
    share = subject.device.regs_sm // (32 * subject.config.get("num_warps", 4))
    return min(subject.config.get("maxnreg") or MOST_REGISTERS, share, MOST_REGISTERS)


def _with_flag(subject: Subject, flag: str) -> str:
    module = cst.parse_module(subject.source)
    _check(module, subject.kernel)
    return visited(module, _Launches(subject.kernel, flag)).code


def _check(module: cst.Module, kernel: str) -> None:
    """Raises DoesNotApply unless every launch can be given the option, and none has it."""
    calls = launches(module, kernel)
    if not calls:
        raise DoesNotApply(f"no function of the file launches {kernel}[grid](...)")
    named = {k for c in calls for k in keywords(c)}
    texts = {n.evaluated_value for n in nodes(module) if isinstance(n, cst.SimpleString)}
    known = functions(module)
    if OPTION in named | texts | set(parameters(known[kernel]) if kernel in known else ()):
        raise DoesNotApply(f"the file says something of {OPTION} already")
    unknown = next((a for c in calls for a in c.args if a.star == "**"), None)
    if unknown:
        raise DoesNotApply(f"its launch takes **{code(unknown.value)}, which may hold {OPTION}")


class _Launches(cst.CSTTransformer):
    """Gives every launch of a kernel one more argument."""

    def __init__(self, kernel: str, flag: str) -> None:
        self.form, self.flag = m.Call(func=m.Subscript(value=m.Name(kernel))), flag

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        launch = m.matches(original_node, self.form)
        return with_keywords(updated_node, {OPTION: f'"{self.flag}"'}) if launch else updated_node


FEWER_REGISTERS_MOVE = SourceMove(
    name="ptxas: fewer registers",
    symptom="it spills",
    gain=(
        "judged on an H200: fa_bwd 1.00, 1.02 and 1.13x in its three cases; of 55 spilled builds of the shipped "
        "kernels 29 spilled less, 14 more"
    ),
    archs=(80, 86, 89, 90, 100, 103, 120),
    rewrite=fewer_registers,
    cures=(Defect.SPILL, Defect.OCCUPANCY),
)
LESS_OPTIMIZED_MOVE = SourceMove(
    name="ptxas: optimize less",
    symptom="every register of a thread is used",
    gain=(
        "judged on an H200, fa_fwd 0.75 to 0.92x; of 55 spilled builds 30 spilled less (one 0 bytes, not 680), 22 "
        "more: seconds to try"
    ),
    archs=(80, 86, 89, 90, 100, 103, 120),
    rewrite=less_optimized,
    cures=(Defect.SPILL,),
)
MOVES = (FEWER_REGISTERS_MOVE, LESS_OPTIMIZED_MOVE)
