"""What a profile is worth to the optimizer: the same targets, budget and seeds, told more or less of it."""
