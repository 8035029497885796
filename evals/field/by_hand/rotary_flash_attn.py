# Gradients go through products that are rounded to bf16: its program allows 0.05.
TOLERANCE = dict(max_ratio=6, mean_ratio=9)
