"""Problems that others wrote become targets: models in KernelBench's form, definitions of flashinfer-bench."""
