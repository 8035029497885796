"""Builds one kernel of a bundle with records: a bundle for each set of scopes, as far as they compile.

What does not compile is tried again in two builds with half of the scopes each.
What cannot be recorded in the end is reported with its reason. Relies on `variants.recorded`; runs no kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pgo_agent.sandbox.build import variants
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.documents import Manifest, Static
from pgo_agent.sandbox.profile.timeline import scope_sets
from pgo_agent.sandbox.profile.timeline.instrument import instrument
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope, ScopeSet, Unsupported, Why
from pgo_agent.sandbox.threads import threads
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module

ENTRY = 8  # bytes of an entry
LEAST, USUAL, MOST = 32, 2048, 1 << 15  # entries of a warp: fewest worth having, Proton's own choice, and at most
HEADER = 256  # bytes before the entries of a block, at most: 40, 4 for each of 32 warps, and what aligns to 128
ADDRESSED = (1 << 31) - 1  # bytes of scratch for all blocks: Proton's arithmetic has 32 bits


@dataclass(frozen=True)
class InstrumentationPlan:
    """What a build is to record."""

    scopes: ScopeSet
    entries: int = USUAL  # of each warp, a power of two; two for each execution of a scope


@dataclass(frozen=True)
class InstrumentedBuild:
    """A bundle in which one kernel records a set of scopes."""

    bundle: str  # id, on the builder's content store
    kernel: str  # key of the instrumented build
    plan: InstrumentationPlan
    numbers: dict[int, Scope]  # as the records name them
    warps: int  # of a block
    block_bytes: int  # of profile scratch
    static: Static  # registers, spills and shared memory of the instrumented build


@dataclass(frozen=True)
class KernelRef:
    """The kernel that is to be timed: where it is launched, and its own build."""

    bundle: str
    case: str
    choice: str
    kernel: str  # key


def build(
    builder: Builder, place: KernelRef, per_pass: int = 8, plans: Sequence[InstrumentationPlan] | None = None
) -> tuple[list[InstrumentedBuild], list[Unsupported]]:
    """Build what records every scope of a kernel, or what `plans` ask for, the calibrating build first; return what
    could not be recorded, too. What does not build is built in halves.

    Fewer entries where the grid leaves no room for them. Raises what the compiler's box raises: Killed,
    EnvironmentFault.
    """
    module = _module(builder, place)
    if isinstance(module, Unsupported):
        return [], [module]
    waiting = [InstrumentationPlan(s) for s in scope_sets.plan_scopes(module, per_pass)] if plans is None else [*plans]
    builds: list[InstrumentedBuild] = []
    refused: list[Unsupported] = []
    while waiting:
        with threads(builder.cores) as pool:
            results = list(pool.map(partial(one, builder, place, module), waiting))
        again: list[InstrumentationPlan] = []
        for plan, result in zip(waiting, results, strict=True):
            if isinstance(result, InstrumentedBuild):
                builds.append(result)
            elif parts := halves(plan) if result.why in (Why.BUILD, Why.SCOPES) else []:
                again += parts
            else:
                refused.append(result)
        waiting = again
    return sorted(builds, key=lambda t: not t.plan.scopes.calibrates), refused


def _module(builder: Builder, place: KernelRef) -> Module | Unsupported:
    """Return the kernel's final TTGIR, or why nothing of it can be recorded."""
    manifest = builder.contents.manifest(place.bundle)
    text = builder.contents.get(manifest["kernels"][place.kernel]["files"]["ttgir"], "ttgir").decode()
    try:
        module = reader.parse(text)
    except Unreadable as e:
        return Unsupported(Why.BUILD, str(e))
    return scope_sets.obstacle(module) or module


def halves(plan: InstrumentationPlan) -> list[InstrumentationPlan]:
    """Return two plans with half of the scopes each; none where there is one alone."""
    return [replace(plan, scopes=half) for half in plan.scopes.halves()]


def one(
    builder: Builder, place: KernelRef, module: Module, plan: InstrumentationPlan
) -> InstrumentedBuild | Unsupported:
    """Build what records one set of scopes, or return why that fails. Raises Killed, EnvironmentFault."""
    text = instrument(module, plan.scopes)
    if isinstance(text, Unsupported):
        return text
    manifest = builder.contents.manifest(place.bundle)
    size = _room(manifest, place, builder, plan.entries)
    if size is None:
        return Unsupported(Why.SCRATCH, f"a grid of {_blocks(manifest, place)} blocks leaves a warp less than {LEAST}")
    options = {"size": size, "shared": builder.device.smem_block}
    variant = variants.recorded(builder, place.bundle, {place.case: place.choice}, place.kernel, text, options)
    if variant.problem:
        full = "shared memory" in variant.problem
        return Unsupported(Why.SHARED if full else Why.BUILD, variant.problem)
    kernels = builder.contents.manifest(variant.bundle)["kernels"]
    (key,) = set(kernels) - set(manifest["kernels"])
    static = (builder.contents.build(key) or {})["static"]
    named = plan.scopes.named
    numbers = {int(n): named[name] for n, name in static["scopes"]}
    kernel = kernels[key]
    warps, size = kernel["num_warps"], kernel["profile_scratch_size"]
    return InstrumentedBuild(variant.bundle, key, plan, numbers, warps, size, static)


def _room(manifest: Manifest, place: KernelRef, builder: Builder, entries: int) -> int | None:
    """Bytes of a block's buffer in global memory; None where not even the least fits the scratch of a launch."""
    warps, blocks = manifest["kernels"][place.kernel]["num_warps"], _blocks(manifest, place)
    while entries >= LEAST:
        if blocks * (HEADER + warps * entries * ENTRY) <= min(ADDRESSED, builder.device.memory // 20):
            return int(warps * entries * ENTRY)
        entries //= 2
    return None


def _blocks(manifest: Manifest, place: KernelRef) -> int:
    """Blocks of the largest launch of the kernel."""
    steps = manifest["plans"][place.case][place.choice]["steps"]
    grids = [s["grid"] for s in steps if s.get("kernel") == place.kernel]
    return max((x * y * z for x, y, z in grids), default=0)
