"""Orders builds before any GPU time is spent: the hot loop's instructions, occupancy, waves, pipeline depth, spills.

`estimate` returns milliseconds, but only an estimate. Its factors were fitted to one sweep of 132 configurations of
kernels/fa_fwd.py on an H200: rank correlation 0.74 to 0.89 by case, and its first configuration was 0 to 12 % slower
than the best. It is only trusted to order configurations of one kernel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.bundle.schema import ITEMSIZE
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.gate.evidence import tensors

BLOCKS_SM = 32  # most resident blocks of one SM
REGISTER_UNIT = 256  # registers are given out to a warp in this unit
RESERVED_SHARED = 1024  # bytes of shared memory that the system reserves for each block
SCHEDULERS, MUFU_LANES = 4, 16  # of one SM, per cycle (CUDA programming guide)
CYCLES_INSTRUCTION, CYCLES_BARRIER = 1.5, 200.0  # fitted: cost of the dependent chain of one warp
SHALLOW, SPILLED_BYTE = 1.2, 0.001  # fitted: fewer than three stages; each byte spilled
SPILLED_MORE, SPILLED_SHARE = 256, 10  # bytes over all kernels of a case, or a tenth of what the tuned kernel spills
ATTAINED = 0.68  # fitted: covers what the model leaves out
SERIALIZED = frozenset({"C7510", "C7511", "C7512", "C7513", "C7514", "C7515", "C7516"})


@dataclass(frozen=True)
class Occupancy:
    blocks: int  # resident blocks of one SM
    warps: int  # resident warps of one SM
    limiter: str  # registers, shared memory, threads or blocks


def occupancy(static: Mapping[str, Any], num_warps: int, device: Device) -> Occupancy:
    """Return the resident blocks and warps of one SM, by the CUDA occupancy rules."""
    per_warp = math.ceil(max(static["registers"], 1) * 32 / REGISTER_UNIT) * REGISTER_UNIT
    limits = {
        "registers": device.regs_sm // (per_warp * num_warps),
        "shared memory": device.smem_sm // (static["shared"] + RESERVED_SHARED),
        "threads": device.threads_sm // (32 * num_warps),
        "blocks": BLOCKS_SM,
    }
    limiter = min(limits, key=lambda k: limits[k])
    blocks = max(limits[limiter], 1)
    return Occupancy(blocks, blocks * num_warps, limiter)


def symptoms(static: Mapping[str, Any]) -> list[str]:
    """Return the problems of a build for a person, worst first."""
    texts = []
    if static["spill_store_bytes"]:
        texts.append(f"{static['spill_store_bytes']} B spilled")
    if SERIALIZED & set(static["notes"]):
        texts.append("wgmma serialized")
    if static["dots"] and static["pipeline_depth"] < 2:
        texts.append("no pipeline")
    return texts


def dominated(statics: Sequence[Static], best: Sequence[Static]) -> str:
    """Return why a build of all kernels of a case is not worth GPU time beside `best`; empty if it may be."""
    ours, theirs = ([s for n, s in enumerate(side) if s not in side[:n]] for side in (statics, best))
    spilled, other = (sum(s["spill_store_bytes"] for s in side) for side in (ours, theirs))
    more = max(SPILLED_MORE, other // SPILLED_SHARE)
    if spilled > other + more:
        where = ", ".join(f"{s['name']} {s['spill_store_bytes']}" for s in ours if s["spill_store_bytes"])
        bound = f"what spills over {more} bytes more is not timed"
        return f"spills {spilled} bytes ({where}), the tuned kernel {other}: {bound}"
    serialized = sorted(serializing(statics))
    if serialized and not serializing(best) and spilled > other:
        return f"ptxas serializes its tensor instructions ({', '.join(serialized)}) and it spills"
    return ""


def serializing(statics: Sequence[Static]) -> set[str]:
    return {note for s in statics for note in s["notes"]} & SERIALIZED


def loading(statics: Sequence[Mapping[str, Any]]) -> str:
    """Return how the kernels of a plan load their tiles. The estimate was fitted to pointer loads."""
    if any(s["warp_specialized"] for s in statics):
        return "by warps of their own"
    return "through descriptors" if any(s["sass"].get("UTMALDG") for s in statics) else "through pointers"


def estimate(
    static: Mapping[str, Any], num_warps: int, blocks: int, device: Device, flops: float, moved: float
) -> float:
    """Return the estimated milliseconds of a launch of `blocks` blocks that does `flops` and moves `moved` bytes."""
    if not blocks:
        return 0.0
    resident = occupancy(static, num_warps, device)
    slots = device.sms * resident.blocks
    tail = blocks / (math.ceil(blocks / slots) * slots)
    ideal = max(flops / (device.tensor_tflops(_narrow(static)) * 1e12), moved / (device.gbps * 1e9)) * 1e3
    looped = _looped(static, num_warps, min(resident.blocks, blocks / device.sms), device, flops)
    return max(ideal, looped) / (0.5 + 0.5 * tail)


def operators(steps: Sequence[Mapping[str, Any]], device: Device, flops: float) -> float:
    """Return the estimated milliseconds of a plan of torch operators alone: each moves what it reads and writes."""
    moved = sum(_bytes(t) for s in steps for t in tensors((s["args"], s["kwargs"], s["out"])))
    return max(flops / (device.fp16_tflops * 1e12), moved / (device.gbps * 1e9)) * 1e3


def _bytes(t: Mapping[str, Any]) -> int:
    return int(math.prod(t["size"]) * ITEMSIZE[t["dtype"]])


def _narrow(static: Mapping[str, Any]) -> bool:
    """Whether all dots of a build multiply fp8, by warpgroups."""
    return bool(static["sass"].get("QGMMA")) and not (static["sass"].get("HGMMA") or static["sass"].get("HMMA"))


def _looped(static: Mapping[str, Any], num_warps: int, blocks_sm: float, device: Device, flops: float) -> float:
    """Milliseconds of the hot loop: the maximum of tensor pipe, issue slots, MUFU and the latency of a block."""
    loop, useful = static["sass"]["loop"], static["loop_flops"]
    if not loop or not useful or not loop["tensor_flops"]:
        return 0.0
    clock = device.sm_khz * 1e3
    groups = num_warps / 4 if static["sass"].get("HGMMA") or static["sass"].get("QGMMA") else num_warps
    tensor = loop["tensor_flops"] * groups / (device.tensor_tflops(_narrow(static)) * 1e12 / (device.sms * clock))
    issue, mufu = loop["all"] * num_warps / SCHEDULERS, loop["mufu"] * num_warps * 32 / MUFU_LANES
    latency = tensor + CYCLES_INSTRUCTION * loop["all"] + CYCLES_BARRIER * loop["barriers"]
    latency *= SHALLOW if static["pipeline_depth"] < 3 else 1.0
    latency *= 1 + static["spill_store_bytes"] * SPILLED_BYTE
    cycles = max(tensor, issue, mufu, latency / max(blocks_sm, 1.0))
    return float(flops / useful * cycles / (device.sms * clock) * 1e3 / ATTAINED)
