"""The buffers of shared memory that a TTGIR text allocates, in words: for a kernel that asks for more than there is.

What the compiler adds (conversions, reductions, barriers) is in no buffer, and buffers that are never live at a time
may share bytes: so the sum need not be what the kernel asks for.
"""

from collections import Counter
from dataclasses import replace

from pgo_agent.sandbox.ttgir import reader, types
from pgo_agent.sandbox.ttgir.tokens import Unreadable

MOST = 6  # kinds of buffers that are named


def listed(ttgir: str) -> str:
    """Return the largest buffers, as `2 of 3x128x64xf16 (49152 B)`; empty for a text that cannot be read."""
    try:
        ops = [op for op in reader.parse(ttgir).walk() if op.name == "ttg.local_alloc" and op.result_types]
    except Unreadable:
        return ""
    buffers = Counter(replace(b, encoding=()) for op in ops if (b := types.shaped(op.result_types[0])))
    largest = sorted(buffers, key=lambda b: (-b.bytes * buffers[b], b.shape))
    more = f" and {len(largest) - MOST} smaller kinds" if len(largest) > MOST else ""
    return ", ".join(_said(b, buffers[b]) for b in largest[:MOST]) + more


def _said(buffer: types.Shaped, times: int) -> str:
    shape = "x".join([*map(str, buffer.shape), buffer.element])
    return f"{f'{times} of ' if times > 1 else ''}{shape} ({buffer.bytes} B)"
