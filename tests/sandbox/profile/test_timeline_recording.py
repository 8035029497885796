"""What the judge keeps of the profile scratch is what was in it: all headers, and the blocks that were chosen."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.judge.launches import instrumented
from pgo_agent.sandbox.profile.timeline.collect import fetched
from pgo_agent.sandbox.profile.timeline.decode import decode, headers

from tests.sandbox.profile.test_timeline_decode import Encoder

WARPS = 2


def scratch(blocks: int) -> tuple[torch.Tensor, int]:
    """The scratch of a launch on which each warp ran scope 1 for as many cycles as its block's number says."""
    raw = []
    for number in range(blocks):
        block = Encoder(number, WARPS, 8)
        for warp in range(WARPS):
            block.record(warp, (1, False, 100))
            block.record(warp, (1, True, 100 + number))
        raw.append(block.raw())
    return torch.frombuffer(bytearray(b"".join(raw)), dtype=torch.uint8), len(raw[0])


@pytest.mark.parametrize(("blocks", "most"), [(1, 4), (4, 4), (7, 3), (10, 1)])
def test_every_header_and_no_more_blocks_than_wanted_are_kept(blocks: int, most: int, tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    tensor, size = scratch(blocks)
    for repeat in range(4):
        kept = instrumented.keep(tensor, size, most, repeat, contents)
        assert [b.block for b in headers(fetched(contents, kept.headers))] == list(range(blocks))
        found = decode(fetched(contents, kept.records), size, WARPS)
        assert 0 < len(found.blocks) == kept.fetched <= most
        assert found.records.cycles.tolist() == found.records.block.tolist()
        assert (found.problems, kept.blocks) == ((), blocks)


def test_repeats_look_at_other_blocks_until_all_were_seen(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    tensor, size = scratch(12)
    seen: Counter[int] = Counter()
    for repeat in range(4):
        raw = fetched(contents, instrumented.keep(tensor, size, 3, repeat, contents).records)
        seen.update(b.block for b in decode(raw, size, WARPS).blocks)
    assert seen == Counter(range(12))
