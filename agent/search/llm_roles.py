"""The profiler and the summarizer at work as models: what they are asked, and what stands in when it comes to nothing.

Relies on `json_query.py` to ask, on `agent/llm/roles/profiler.py` and `agent/llm/roles/summarizer.py` for what is told
and what is a valid reply. Where a role has no model, and where a reply is of no use twice, its embedded form does the
work; that is said.
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
    """The next passes of a kernel; None leaves them to the rules. Raises Suspended and Faults."""
    if ctx.model_of(PROFILER) is None or not any(s.offered.values()):  # what costs nothing is no question
        return None
    kernel = s.static.kernel if isinstance(s.static, StaticProfile) else "without a name"
    told, chosen = profiler.facts(case.split("/", 1)[-1], kernel, s), profiler.Chosen(s)
    told["mark"] = templates.fenced("profile", repr(told))
    author = consult(ctx, Question(PROFILER, profiler.schema(s), chosen.read), profiler.TEMPLATE, told)
    if author and not chosen.valid:
        fall_back(ctx, PROFILER, "its replies were of no use", f"the passes of {kernel}, {told['case']}")
    return chosen.choice(author)


def summaries(ctx: Context, shorts: Sequence[Short], which: str) -> tuple[dict[str, Summary], str]:
    """Case -> what a model made of its summary, where that is valid; and which model. Raises Suspended and Faults."""
    if ctx.model_of(SUMMARIZER) is None or not shorts:
        return {}, ""
    told, written = summarizer.facts(shorts), summarizer.Written(shorts)
    told["mark"] = templates.fenced("profile", repr(told))
    author = consult(ctx, Question(SUMMARIZER, summarizer.schema(shorts), written.read), summarizer.TEMPLATE, told)
    for case, why in written.problems.items() if author else ():
        fall_back(ctx, SUMMARIZER, why, f"the summary of {which}, {case}")
    return {written.shorts[name].summary.case: s for name, s in written.summaries.items()}, author
