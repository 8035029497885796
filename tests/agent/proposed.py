"""Candidates to be written into a record, as one of our moves would have proposed them."""

from typing import Any

from pgo_agent.agent.run.record.candidate import Candidate, NewCandidate, candidate_id


def proposed(source: str, name: str = "", **changes: Any) -> NewCandidate:
    """A rewrite of the kernel as shipped. `name`: its id; without one that of its text."""
    plain = {"kind": "source", "move": "m", "rationale": "r", "author": "embedded", "parent": "shipped"}
    return NewCandidate(id=name or candidate_id(source), source=source, **(plain | changes))


def judged(
    verdict: str | None, speedup: float | None, name: str = "c", against: str | None = "shipped", **changes: Any
) -> Candidate:
    """A candidate with its verdict, of no run that is recorded."""
    unbuilt = {"bundle": None, "read_build": lambda: None}
    came_to = {"verdict": verdict, "stage": None, "why": None, "speedup": speedup, "seconds": None}
    place = {"run": "r", "generation": 1, "position": 0, "against": against}
    return Candidate(**(vars(proposed("s", name)) | place | unbuilt | came_to | changes))
