"""What the warps of one block did when: single executions of scopes, for drawing.

Reads the records that a timeline pass kept. A clock is of one SM, so only what is of one block is put side by side. The
times are as they were recorded: the cost of a record is in them. Statistics are `summary.py`'s.
"""

from dataclasses import dataclass

import numpy as np
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.timeline.collect import fetched
from pgo_agent.sandbox.profile.timeline.decode import Records, decode
from pgo_agent.sandbox.profile.timeline.types import Pass


@dataclass(frozen=True)
class Execution(Record):
    """One execution of a scope by one warp."""

    scope: str  # its name
    role: str  # kernel, default, partition0
    warp: int  # of the block
    begin: int  # cycles from the block's first record that was kept; not below zero
    end: int  # cycles from there; not before it began


def traces(contents: ContentStore, timeline_pass: Pass, block: int = 0, most: int = 5000) -> tuple[Execution, ...]:
    """Return the first `most` executions in a block, in the order of their begin; what holds another comes before it.

    `block`: its linear number in the grid. Of the launches that were recorded it is the first in which this block's
    records were kept; () where none was. Raises EnvironmentFault where records are missing or damaged.
    """
    for artefact in timeline_pass.records:
        raw = fetched(contents, artefact.digest)
        decoded = decode(raw, timeline_pass.block_bytes, timeline_pass.warps)
        if any(b.block == block for b in decoded.blocks):
            return _named(decoded.records, block, timeline_pass)[:most]
    return ()


def _named(records: Records, block: int, timeline_pass: Pass) -> tuple[Execution, ...]:
    """Return the block's executions of scopes that the build has."""
    roles = {s.scope.name: s.scope.role for s in timeline_pass.timed.scopes}
    names = {int(number): name for number, name in timeline_pass.numbers.items() if name in roles}
    chosen = np.flatnonzero((records.block == block) & np.isin(records.scope, list(names)))
    begins = records.start[chosen] - (records.start[chosen].min() if len(chosen) else 0)
    ends = begins + records.cycles[chosen]
    rows = zip(
        records.scope[chosen].tolist(), records.warp[chosen].tolist(), begins.tolist(), ends.tolist(), strict=True
    )
    executions = (Execution(names[scope], roles[names[scope]], warp, begin, end) for scope, warp, begin, end in rows)
    return tuple(sorted(executions, key=lambda e: (e.begin, -e.end, e.warp)))
