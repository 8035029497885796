"""The cards of knowledge as resources: a list of them, and the text of each for the device that is compiled for.

A card is a template of `prompts/cards/`. The one on Gluon lists the functions of the installed package, which the box
reads.
"""

from pgo_agent.agent import text as printable
from pgo_agent.agent.llm import templates
from pgo_agent.agent.run import judge_choice
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.gluon_api import api

FOLDER = "cards"
WHEN = {  # card -> when to read it
    "epilogue": "what stands behind the main loop takes time: scaling, converting, storing",
    "gluon": "you write Gluon: its functions in the installed Triton, and how its parts go together",
    "layouts": "accesses are uncoalesced or narrow, layouts are converted in a loop, banks conflict",
    "memory_bound": "device memory is the limit: row norms, softmax, reductions, elementwise kernels",
    "persistent": "the last wave is nearly empty, tiles are short or unequal, the L2 cache misses",
    "registers": "registers spill, or few blocks fit an SM",
    "softmax": "a softmax between dots takes the time: attention",
    "tma": "copies of tiles by descriptors: pointers and masks take registers and instructions",
    "warp_specialization": "copies or dots are waited for, and warps of their own could issue them",
    "wgmma_waits": "dots do not overlap with other work, or ptxas serializes them",
}


def listed() -> str:
    """Every card with when to read it, a line each."""
    return "".join(f"pgo://card/{name}: {when}\n" for name, when in WHEN.items())


def text(name: str, store: Store, asked: RunSettings) -> str:
    """Return a card. Raises UsageFault for one that there is not."""
    if name not in WHEN:
        raise UsageFault(f"there is no card {printable.line(name, 40)}", f"pgo://cards lists them: {', '.join(WHEN)}")
    judge, device = judge_choice.choose(asked)
    if judge is not None:
        judge.close()
    values = _gluon(store, asked, device) if name == "gluon" else {"device": device}
    return templates.render(f"{FOLDER}/{name}", **values)


def _gluon(store: Store, asked: RunSettings, device: Device) -> dict[str, object]:
    chosen = box.choose(asked.sandbox, asked.python)
    builder = Builder(judge_choice.NO_TARGET, device, chosen, store.contents)
    return {"lines": api(Workbench(builder)), "triton": triton_version(asked.python)}
