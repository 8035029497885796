"""The prompt of the optimizer: facts of a run (`collect.py`), laid out as sections within a budget of tokens.

    facts = prompting.gather(ctx)
    prompt = prompting.prompt(facts)     # .text, .sections, .dropped

`layout.py` defines the sections and the order in which they are dropped; their text is in the templates of `prompts/`.
The other modules make single facts: `hot_loop.py`, `attempts.py`, `applicable_moves.py`, `cards.py`. It asks no model
and reads no reply. Reference, held-out cases and tolerances stay out: `kernel_part.py` removes them from source,
`gate/reason.py` from reasons.
"""

from pgo_agent.agent.proposal.prompt.collect import check, gather
from pgo_agent.agent.proposal.prompt.inputs import Code, Facts
from pgo_agent.agent.proposal.prompt.layout import TEMPLATE, prompt, prompt_hash, render
from pgo_agent.agent.proposal.prompt.sections import Prompt, TooLong, left_out

__all__ = [
    "TEMPLATE",
    "Code",
    "Facts",
    "Prompt",
    "TooLong",
    "check",
    "gather",
    "left_out",
    "prompt",
    "prompt_hash",
    "render",
]
