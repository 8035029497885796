"""`pgo-agent eval mutants`: kernels with one thing changed, by hundreds, each of which the gate must not call right."""
