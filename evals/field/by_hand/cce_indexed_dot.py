# Products of bf16 are rounded before they are summed, and the sum is given in float32: its program allows 0.5.
TOLERANCE = dict(max_ratio=24000, mean_ratio=28000)
