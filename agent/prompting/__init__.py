"""What a model is shown to write a kernel anew: facts of a run (`gathering.py`), put into sections within a budget.

    facts = prompting.gather(ctx)
    found = prompting.prompt(facts)      # .text, .sections, .dropped

`composing.py` says which sections there are, and what is dropped first; the words are templates in `prompts/`. The rest
of the package makes single facts: `hot_loop.py`, `tried.py`, `applying.py`, `cards.py`. It asks no model and reads no
reply. Reference, held-out cases and tolerances stay out: `parts.py` hides them in source, `hiding.py` in reasons.
"""

from pgo_agent.agent.prompting.composing import TEMPLATE, prompt, prompt_hash, render
from pgo_agent.agent.prompting.facts import Code, Facts
from pgo_agent.agent.prompting.gathering import check, gather
from pgo_agent.agent.prompting.sections import Prompt, TooLong, left_out

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
