"""The profile of a kernel: which passes to take, the defects in them, their ranking and summary. Knows no run."""
