"""What a kernel costs: which passes to take, what stands out in them, how that is ranked and summarized. Knows of no
run."""
