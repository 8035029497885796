"""Expected values as tensors, for tests that compute with them."""

import torch
from pgo_agent.sandbox.judge.results.sealed import Sealed


def laid_open(held: Sealed) -> torch.Tensor:
    """Return the values as a tensor of the CPU."""
    return held.at(torch.arange(held.elements)).reshape(held.shape)
