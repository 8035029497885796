"""The loop, on one screen: baseline -> profile -> summarize -> propose -> build -> judge -> record, and from there to
profile again when there is a new incumbent, else to propose; when nothing is proposed, it finishes.

LangGraph runs the nodes and stores nothing. The state is two numbers that follow from the record, and every step looks
into the record before it works. So a process killed anywhere goes on at the node where it died (`recovery.py` finds
it), and no recorded verdict is made again.
"""

import itertools
import os
from typing import Literal, TypedDict

os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"  # they would upload kernel source

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pgo_agent.agent.evaluation import baseline as baselines
from pgo_agent.agent.proposal import compiled_reference
from pgo_agent.agent.run import incumbent, steering, submissions
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.search import lent, profile_incumbent, recovery, steps
from pgo_agent.agent.search.finish import announce as announce_last_session
from pgo_agent.agent.search.finish import finish as finish_run
from pgo_agent.sandbox.threads import threads

STEPS = 10**9  # of LangGraph: budgets end a run, and not the number of its generations


class State(TypedDict):
    generation: int  # the present one, from 1
    generations_without_win: int  # generations in a row without an accepted candidate


def baseline(state: State, runtime: Runtime[Context]) -> None:
    ctx = runtime.context
    if ctx.store.run(ctx.run.id).baseline is None:
        lent.take_over(ctx) if ctx.settings.baseline_of else baselines.establish(ctx)


def profile(state: State, runtime: Runtime[Context]) -> None:
    ctx = runtime.context
    if ctx.settings.generations == 0:
        announce_last_session(ctx)
    if not ctx.store.candidates(ctx.run.id, state["generation"]):  # else it was used already
        with threads(1) as pool:
            pool.submit(compiled_reference.ask_ahead, ctx)
            profile_incumbent.profile(ctx)


def summarize(state: State, runtime: Runtime[Context]) -> None:
    profile_incumbent.summarize(runtime.context)


def propose(state: State, runtime: Runtime[Context]) -> Command[Literal["build", "propose", "finish"]]:
    ctx = runtime.context
    submitted = submissions.wait(ctx)
    steps.apply_requests(ctx)
    impatient = state["generations_without_win"] >= ctx.settings.patience
    ended = ctx.out_of_time() or (impatient and not steering.wants_a_generation(ctx, state["generation"]))
    if not ended and steps.propose(ctx, state["generation"]):
        return Command(goto="build")
    if submitted and not ended:  # nothing of it was new
        return Command(goto="propose")
    steering.give_back(ctx, state["generation"])
    return Command(goto="finish")


def build(state: State, runtime: Runtime[Context]) -> None:
    steps.build(runtime.context, state["generation"])


def judge(state: State, runtime: Runtime[Context]) -> None:
    steps.judge(runtime.context, state["generation"])


def record(state: State, runtime: Runtime[Context]) -> Command[Literal["profile", "propose"]]:
    ctx, n = runtime.context, state["generation"]
    ctx.store.finish_generation(ctx.run.id, n)
    candidates = ctx.store.candidates(ctx.run.id, n)
    won = any(c.verdict == "accepted" for c in candidates)
    ctx.emit(
        "generation.completed",
        generation=n,
        incumbent=incumbent.name(ctx),
        judged=sum(c.verdict is not None for c in candidates),
    )
    new: State = {"generation": n + 1, "generations_without_win": 0 if won else state["generations_without_win"] + 1}
    return Command(goto="profile" if profile_incumbent.due(ctx) else "propose", update=new)


def finish(state: State, runtime: Runtime[Context]) -> None:
    finish_run(runtime.context)


def run(ctx: Context) -> None:
    """Run the loop of `ctx.run`, from its beginning or from where it was interrupted."""
    recovery.rebuild_lost(ctx)
    first, generation, generations_without_win = recovery.next_node(ctx)
    graph = StateGraph(State, context_schema=Context)
    for node in (baseline, profile, summarize, propose, build, judge, record, finish):
        graph.add_node(node)
    for node_name, following in itertools.pairwise(("baseline", "profile", "summarize", "propose")):
        graph.add_edge(node_name, following)
    graph.add_edge(START, first).add_edge("build", "judge").add_edge("judge", "record").add_edge("finish", END)
    state: State = {"generation": generation, "generations_without_win": generations_without_win}
    graph.compile().invoke(state, {"recursion_limit": STEPS}, context=ctx)
