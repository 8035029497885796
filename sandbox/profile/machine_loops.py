"""Loops of machine code: natural loops of its control flow graph, whatever order the blocks were laid out in.

Works on instructions with branch targets; calls are taken to return. Dominators after Cooper, Harvey and Kennedy, "A
Simple, Fast Dominance Algorithm" (2001); loops after Aho et al., section 9.6. Code that the first instruction does not
reach (functions that are called) has no loops here.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pgo_agent.sandbox.profile.backend import Instruction


def loops(code: Sequence[Instruction]) -> tuple[tuple[int, ...], ...]:
    """Return the instructions of each loop, as sorted indices, an outer loop before those inside of it."""
    if not code:
        return ()
    starts = _leaders(code)
    blocks = {a: range(a, b) for a, b in pairwise([*starts, len(code)])}
    after = {a: _after(code, body, blocks) for a, body in blocks.items()}
    order = _reverse_postorder(after)
    before = defaultdict[int, list[int]](list)
    for block in order:
        for follower in after[block]:
            before[follower].append(block)
    above = _dominators(order, before)
    bodies = defaultdict[int, set[int]](set)
    for block in order:
        for header in after[block]:
            if _dominates(above, header, block):
                bodies[header] |= _natural(header, block, before)
    listed = (tuple(i for block in sorted(body) for i in blocks[block]) for body in bodies.values())
    return tuple(sorted(listed, key=lambda body: (-len(body), body[0])))


def _leaders(code: Sequence[Instruction]) -> list[int]:
    begins = {0} | {t for i in code for t in i.targets}
    begins |= {n + 1 for n, i in enumerate(code[:-1]) if i.targets or i.ends}
    return sorted(begins)


def _after(code: Sequence[Instruction], body: range, blocks: Mapping[int, range]) -> tuple[int, ...]:
    last = code[body[-1]]
    falls = not last.ends and (not last.targets or last.conditional) and body.stop in blocks
    return (*last.targets, *((body.stop,) if falls else ()))


def _reverse_postorder(after: Mapping[int, tuple[int, ...]]) -> list[int]:
    seen, done = {0}, list[int]()
    stack = [(0, iter(after[0]))]
    while stack:
        block, left = stack[-1]
        follower = next((f for f in left if f not in seen), None)
        if follower is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(follower)
            stack.append((follower, iter(after[follower])))
    return done[::-1]


def _dominators(order: Sequence[int], before: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Block -> its immediate dominator; the first block is its own."""
    rank = {block: n for n, block in enumerate(order)}
    above, changed = {order[0]: order[0]}, True
    while changed:
        changed = False
        for block in order[1:]:
            reached = [b for b in before[block] if b in above]
            new = reached[0]
            for other in reached[1:]:
                new = _meet(above, rank, new, other)
            changed |= above.get(block) != new
            above[block] = new
    return above


def _meet(above: Mapping[int, int], rank: Mapping[int, int], a: int, b: int) -> int:
    while a != b:
        a, b = (above[a], b) if rank[a] > rank[b] else (a, above[b])
    return a


def _dominates(above: Mapping[int, int], a: int, b: int) -> bool:
    while b != a and above[b] != b:
        b = above[b]
    return a == b


def _natural(header: int, latch: int, before: Mapping[int, Sequence[int]]) -> set[int]:
    body, pending = {header}, [latch]
    while pending:
        block = pending.pop()
        if block not in body:
            body.add(block)
            pending += before[block]
    return body
