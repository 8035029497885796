"""`pgo-agent init --inductor`: targets from the code that PyTorch's compiler (Inductor) wrote for a model."""
