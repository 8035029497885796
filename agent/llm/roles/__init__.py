"""The roles of the loop that a model plays beside the optimizer: profiler and summarizer."""
