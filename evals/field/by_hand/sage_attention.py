# Queries and keys are int8 inside: its program allows 0.05 of a result.
TOLERANCE = dict(max_ratio=150, mean_ratio=120)
