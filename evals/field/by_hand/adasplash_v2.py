# Rows that keep few keys err more than the mean row: its program allows 0.04.
TOLERANCE = dict(max_ratio=3, mean_ratio=3)
