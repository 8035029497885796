"""What a model is shown to write a kernel anew: facts of a run (`collect.py`), put into sections within a budget.

    facts = prompting.gather(ctx)
    found = prompting.prompt(facts)      # .text, .sections, .dropped

`layout.py` says which sections there are, and what is dropped first; the words are templates in `prompts/`. The rest of
the package makes single facts: `hot_loop.py`, `attempts.py`, `applicable_moves.py`, `cards.py`. It asks no model and
reads no reply. Reference, held-out cases and tolerances stay out: `kernel_part.py` hides them in source,
`gate/reason.py` in reasons.
"""

from pgo_agent.agent.proposal.prompt.collect import check, gather
from pgo_agent.agent.proposal.prompt.inputs import Code, Facts
from pgo_agent.agent.proposal.prompt.layout import TEMPLATE, prompt, prompt_hash, render
from pgo_agent.agent.proposal.prompt.token_budget import Prompt, TooLong, left_out

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
