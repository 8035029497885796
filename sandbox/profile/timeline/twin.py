"""Builds the instrumented twins of one kernel of a bundle: a bundle for each set of scopes, as far as they compile.

What does not fit is tried again with the records in global memory, then in two builds with half of the scopes each.
Whatever cannot be recorded in the end is told with its reason. Relies on `twins.recorded`; nothing here runs a kernel.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pgo_agent.sandbox import twins
from pgo_agent.sandbox.build import Builder
from pgo_agent.sandbox.profile.timeline import scopes
from pgo_agent.sandbox.profile.timeline.instrument import instrument
from pgo_agent.sandbox.profile.timeline.scopes import Scope, ScopeSet, Unsupported, Why
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module

ENTRY, LEAST, USUAL = 8, 32, 2048  # bytes of an entry; entries of a warp: fewest worth having, Proton's own choice
HEADER = 256  # bytes before the entries of a block, at most: 40, 4 for each of 32 warps, and what aligns to 128
ADDRESSED = (1 << 31) - 1  # bytes of scratch for all blocks: Proton's arithmetic has 32 bits


class Buffer(StrEnum):
    SHARED = "shared"  # a store to shared memory for each record; small: the oldest records get lost
    GLOBAL = "global"  # a store to global memory; room for 1024 executions of scopes in each warp


@dataclass(frozen=True)
class Twin:
    """A bundle in which one kernel records a set of scopes."""

    bundle: str  # id, on the builder's shelf
    kernel: str  # key of the instrumented build
    scopes: ScopeSet
    numbers: dict[int, Scope]  # as the records name them
    buffer: Buffer
    warps: int  # of a block
    block_bytes: int  # of profile scratch
    static: dict[str, Any]  # registers, spills and shared memory of the instrumented build


@dataclass(frozen=True)
class Place:
    """The kernel that is to be timed: where it is launched, and its own build."""

    bundle: str
    case: str
    choice: str
    kernel: str  # key


def build(
    builder: Builder, place: Place, per_pass: int = 8, buffer: Buffer = Buffer.GLOBAL, entries: int = USUAL
) -> tuple[list[Twin], list[Unsupported]]:
    """Twins that together record every scope of a kernel, the calibrating one first; and what could not be recorded.

    `entries`: of each warp in global memory, a power of two; two for each execution of a scope. Fewer where the grid
    leaves no room for them. Raises what the compiler's box raises: Killed, EnvironmentFault.
    """
    module = _module(builder, place)
    if isinstance(module, Unsupported):
        return [], [module]
    return _built(builder, place, module, [(s, buffer) for s in scopes.plan_scopes(module, per_pass)], entries)


def divided(
    builder: Builder, place: Place, whole: Iterable[Twin], entries: int = USUAL
) -> tuple[list[Twin], list[Unsupported]]:
    """Two twins in place of each, with half of its scopes; none of one that has a single scope. As `build`."""
    module = _module(builder, place)
    if isinstance(module, Unsupported):
        return [], [module]
    return _built(builder, place, module, [(h, t.buffer) for t in whole for h in t.scopes.halves()], entries)


def _module(builder: Builder, place: Place) -> Module | Unsupported:
    """The kernel's final TTGIR, or why nothing of it can be recorded."""
    manifest = builder.shelf.manifest(place.bundle)
    text = builder.shelf.get(manifest["kernels"][place.kernel]["files"]["ttgir"], "ttgir").decode()
    try:
        module = reader.parse(text)
    except Unreadable as e:
        return Unsupported(Why.BUILD, str(e))
    return scopes.obstacle(module) or module


def _built(
    builder: Builder, place: Place, module: Module, waiting: list[tuple[ScopeSet, Buffer]], entries: int
) -> tuple[list[Twin], list[Unsupported]]:
    """The calibrating one first."""
    made: list[Twin] = []
    refused: list[Unsupported] = []
    while waiting:
        with ThreadPoolExecutor(builder.cores) as pool:
            found = list(pool.map(lambda w: one(builder, place, module, w[0], w[1], entries), waiting))
        made += [t for t in found if isinstance(t, Twin)]
        again = [_again(*w, f) for w, f in zip(waiting, found, strict=True) if isinstance(f, Unsupported)]
        refused += [f for f, a in zip((f for f in found if isinstance(f, Unsupported)), again, strict=True) if not a]
        waiting = [w for a in again for w in a]
    return sorted(made, key=lambda t: not t.scopes.calibrates), refused


def _again(wanted: ScopeSet, buffer: Buffer, problem: Unsupported) -> list[tuple[ScopeSet, Buffer]]:
    """What to build in place of what did not build."""
    if buffer is Buffer.SHARED and problem.why in (Why.SHARED, Why.BUILD):
        return [(wanted, Buffer.GLOBAL)]
    return [(half, buffer) for half in wanted.halves()] if problem.why in (Why.BUILD, Why.SCOPES) else []


def one(
    builder: Builder, place: Place, module: Module, wanted: ScopeSet, buffer: Buffer, entries: int = USUAL
) -> Twin | Unsupported:
    """The twin that records one set of scopes, or why there is none. Raises Killed, EnvironmentFault."""
    text = instrument(module, wanted)
    if isinstance(text, Unsupported):
        return text
    manifest = builder.shelf.manifest(place.bundle)
    size = 0 if buffer is Buffer.SHARED else _room(manifest, place, builder, entries)
    if size is None:
        return Unsupported(Why.SCRATCH, f"a grid of {_blocks(manifest, place)} blocks leaves a warp less than {LEAST}")
    told = {"buffer": str(buffer), "size": size, "shared": builder.device.smem_block}
    twin = twins.recorded(builder, place.bundle, {place.case: place.choice}, place.kernel, text, told)
    if twin.problem:
        full = "shared memory" in twin.problem
        return Unsupported(Why.SHARED if full else Why.BUILD, twin.problem)
    kernels = builder.shelf.manifest(twin.bundle)["kernels"]
    (key,) = set(kernels) - set(manifest["kernels"])
    static = (builder.shelf.build(key) or {})["static"]
    named = wanted.named
    numbers = {int(n): named[name] for n, name in static["scopes"]}
    kernel = kernels[key]
    warps, size = kernel["num_warps"], kernel["profile_scratch_size"]
    return Twin(twin.bundle, key, wanted, numbers, buffer, warps, size, static)


def _room(manifest: dict[str, Any], place: Place, builder: Builder, entries: int) -> int | None:
    """Bytes of a block's buffer in global memory; None where not even the least fits the scratch of a launch."""
    warps, blocks = manifest["kernels"][place.kernel]["num_warps"], _blocks(manifest, place)
    while entries >= LEAST:
        if blocks * (HEADER + warps * entries * ENTRY) <= min(ADDRESSED, builder.device.memory // 20):
            return int(warps * entries * ENTRY)
        entries //= 2
    return None


def _blocks(manifest: dict[str, Any], place: Place) -> int:
    """Blocks of the largest launch of the kernel."""
    steps: Sequence[dict[str, Any]] = manifest["plans"][place.case][place.choice]["steps"]
    grids = [s["grid"] for s in steps if s.get("kernel") == place.kernel]
    return max((x * y * z for x, y, z in grids), default=0)
