"""Hardware counters of one launch, by Nsight Compute in a process of its own."""
