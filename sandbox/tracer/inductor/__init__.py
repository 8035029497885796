"""A target's reference as Triton kernels: what Inductor, PyTorch's compiler, writes for it, in the form of a target."""
