# A value at the border of two int8 numbers may get either: its program allows a difference of 1.
TOLERANCE = dict(max_ratio=3, mean_ratio=7)
