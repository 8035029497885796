"""The critical path of a kernel for its profile: the longest chain of executions that wait for one another.

Puts together what `timeline/` has: scopes' P50, the graph of barriers and roles, its longest chain, grouped by scope.
The chain is of a few turns of the loops, not of the whole kernel, and a lower bound; see
`sandbox/profile/timeline/execution_graph.py`.
"""

from pgo_agent.sandbox.profile import memo
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.kernel_profile import Chain, Missing
from pgo_agent.sandbox.profile.timeline import execution_graph, longest_path
from pgo_agent.sandbox.profile.timeline.types import Timeline
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Module

NAME = "critical path"
ITERATIONS = 9  # enough for the rings of buffers that were seen, of up to four places, to turn over twice


def chain(module: Module, timeline: Timeline, iterations: int = ITERATIONS) -> Chain | Missing:
    """Return the longest chain by the P50 of the timeline's scopes, in cycles, loops with barriers or copies turning
    `iterations` times. Scopes that are not on it are listed, too, with their slack.

    Missing where nothing was timed, or where the kernel's barriers cannot be followed: with the reason.
    """
    cycles = {s.scope.name: s.cycles.p50 for s in timeline.scopes}
    if not cycles:
        return Missing(NAME, "no scope was timed")
    graph = execution_graph.graph(module, cycles, iterations)
    if graph.problem:
        return Missing(NAME, graph.problem)
    path = longest_path.critical_path(graph.nodes, graph.edges)
    scopes = tuple(s for s in longest_path.by_scope(path, graph.nodes) if s.scope)
    return Chain(path.length, iterations, scopes)


@memo.kept("pgo_agent.sandbox.profile.chain.of_build", version=1)
def of_build(bench: Workbench, build: str, timeline: Timeline) -> Chain | Missing:
    """Return the `chain` of a built kernel, by its key."""
    files = (bench.contents.build(build) or {})["kernel"]["files"]
    return chain(reader.parse(bench.contents.get(files["ttgir"], "ttgir").decode()), timeline)
