# Head and scores are computed in bf16, and given in float32.
TOLERANCE = dict(max_ratio=3500, mean_ratio=3000)
