"""Configurations as a tracer answers them: what each launches, what it is called, whether the first one fits.

Relies on the tracer's answer being of the right form: who calls it catches what is raised otherwise. Runs and compiles
nothing.
"""

from collections.abc import Mapping

from pgo_agent.sandbox.build.result import Choice
from pgo_agent.sandbox.build.trace_and_compile import Traced, TracedPlan
from pgo_agent.sandbox.bundle import plan_id
from pgo_agent.sandbox.bundle.documents import BuildDocument, Config, Manifest, PlanDocument, StepDocument


def first_fits(traced: Traced, problems: Mapping[str, str]) -> bool:
    """Return whether one launch is varied at a time while the others stand at what can be launched.

    Triton passes over what cannot be. A tracer that stops at TTGIR does not know: another is to be asked for finished
    kernels. `problems`: of each kernel, by the tracer's name, why it cannot be launched; empty: it can.
    """
    for first in (es[0] for by_case in traced["traced"].values() for es in by_case.values() if es):
        steps = first["plan"]["steps"] if "plan" in first else ()
        if len(first["configs"]) > 1 and any(problems[s["kernel"]] for s in steps if "kernel" in s):
            return False
    return True


def named(step: StepDocument, names: Mapping[str, str]) -> StepDocument:
    """Return a step whose kernel is called by our name."""
    return {**step, "kernel": names[step["kernel"]]} if "kernel" in step else step


def launched(plan: PlanDocument) -> tuple[str, ...]:
    """Return the keys of the kernels that a plan launches, in order."""
    return tuple(s["kernel"] for s in plan["steps"] if "kernel" in s)


def choices(
    case: str,
    plans: Mapping[str, PlanDocument],
    configs: Mapping[tuple[str, str], Config],
    manifest: Manifest,
    codes: Mapping[str, str],
) -> tuple[Choice, ...]:
    """Return the configurations of a case, whose `plans` are by their labels."""
    return tuple(
        Choice(label, configs[case, label], launched(p), plan_id.plan_id(p, manifest["kernels"], codes))
        for label, p in plans.items()
    )


def counts(part: Traced) -> dict[str, int]:
    """Return how many configurations each case has, as a tracer counts them."""
    listed = part.get("listed", {})
    return {str(case): n for case, n in listed.items() if type(n) is int}


def label(sites: Mapping[str, Config], entries: list[TracedPlan], several: bool) -> tuple[str, Config]:
    """Return a name for a configuration, and the configuration of all autotuned launches.

    The name tells of those in which the entries differ. It says whose it is where `several` kernels are launched; so do
    the parameters where several are autotuned.
    """
    differing = [s for s in sites if any(e["configs"].get(s) != sites[s] for e in entries)] or list(sites)
    parts = {s.split("(")[0]: sites[s] for s in differing}
    words = {n: " ".join(f"{k}={v}" for k, v in c.items()) for n, c in parts.items()}
    if not any(words.values()):
        return "as written", {}
    label = ", ".join(f"{n}: {w}" if several or len(parts) > 1 else w for n, w in words.items())
    if len({s.split("(")[0] for s in sites}) == 1:
        return label, next(iter(parts.values()))
    every = {s.split("(")[0]: c for s, c in sites.items()} | parts
    return label, {f"{n}.{k}": v for n, c in every.items() for k, v in c.items()}


def several(entry: TracedPlan, names: Mapping[str, str], builds: Mapping[str, BuildDocument]) -> bool:
    """Return whether a plan launches kernels of several names."""
    steps = entry["plan"]["steps"] if "plan" in entry else ()
    launched = (builds[names[s["kernel"]]] for s in steps if "kernel" in s)
    return len({b["kernel"]["name"] if "kernel" in b else None for b in launched}) > 1
