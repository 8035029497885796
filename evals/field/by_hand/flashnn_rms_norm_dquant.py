# A value at the border of two int8 numbers may get either: its program allows a difference of 1.
TOLERANCE = dict(max_ratio=2, mean_ratio=2.5)
