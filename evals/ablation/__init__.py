"""What a profile is worth to the optimizer: the same targets, budget and seeds, with more or less of it shown."""
