"""Models in KernelBench's form, which become targets without an edit: single operators, and sequences of them."""
