"""What the rest of the agent needs to know of moves. The moves themselves (`embedded.py`) are imported to propose."""

from pgo_agent.agent.moves.base import CARRIED, NO_LAUNCH, Best, Proposal, Skipped

__all__ = ["CARRIED", "NO_LAUNCH", "Best", "Proposal", "Skipped"]
