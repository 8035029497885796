"""Asks models in the roles of profiler and summarizer, and falls back on the embedded rules when that fails.

Relies on `json_query.py` to ask, and on `agent/llm/roles/profiler.py` and `agent/llm/roles/summarizer.py` for the facts
of a prompt and for valid replies. The embedded rules do the work when a role has no model, and when two replies in a
row are of no use; the user is informed.
"""

from collections.abc import Sequence

from pgo_agent.agent.llm import templates
from pgo_agent.agent.llm.models.types import PROFILER, SUMMARIZER
from pgo_agent.agent.llm.roles import profiler, summarizer
from pgo_agent.agent.llm.roles.summarizer import Short
from pgo_agent.agent.profile.pass_policy import Choice, Situation
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.proposal.json_query import Question, consult, fall_back
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.profile.static_profile import StaticProfile


def choose(ctx: Context, case: str, s: Situation) -> Choice | None:
    """Choose the next passes of a kernel; None leaves them to the rules. Raises Suspended and Faults."""
    if ctx.model_of(PROFILER) is None or not any(s.offered.values()):  # free passes need no decision
        return None
    kernel = s.static.kernel if isinstance(s.static, StaticProfile) else "without a name"
    facts, chosen = profiler.facts(case.split("/", 1)[-1], kernel, s), profiler.Chosen(s)
    facts["mark"] = templates.fenced("profile", repr(facts))
    author = consult(ctx, Question(PROFILER, profiler.schema(s), chosen.read), profiler.TEMPLATE, facts)
    if author and not chosen.valid:
        fall_back(ctx, PROFILER, "its replies were of no use", f"the passes of {kernel}, {facts['case']}")
    return chosen.choice(author)


def summaries(ctx: Context, shorts: Sequence[Short], which: str) -> tuple[dict[str, Summary], str]:
    """Return case -> a model's summary, if it is valid; and which model wrote it. Raises Suspended and Faults."""
    if ctx.model_of(SUMMARIZER) is None or not shorts:
        return {}, ""
    facts, written = summarizer.facts(shorts), summarizer.Written(shorts)
    facts["mark"] = templates.fenced("profile", repr(facts))
    author = consult(ctx, Question(SUMMARIZER, summarizer.schema(shorts), written.read), summarizer.TEMPLATE, facts)
    for case, why in written.problems.items() if author else ():
        fall_back(ctx, SUMMARIZER, why, f"the summary of {which}, {case}")
    return {written.shorts[name].summary.case: s for name, s in written.summaries.items()}, author
