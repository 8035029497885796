# The state is summed in bf16 and given in float32: its program allows 0.01 of it.
TOLERANCE = dict(max_ratio=900000, mean_ratio=800000)
