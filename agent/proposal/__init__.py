"""Where candidates come from: parents, the bandit over proposers, the model as a proposer, repair, and lessons."""
