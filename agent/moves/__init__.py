"""What the rest of the agent needs to know of moves. The moves themselves (`catalogue.py`) are imported to propose."""

from pgo_agent.agent.moves.move import CARRIED, NO_LAUNCH, Best, Proposal, Skipped

__all__ = ["CARRIED", "NO_LAUNCH", "Best", "Proposal", "Skipped"]
