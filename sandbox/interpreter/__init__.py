"""Runs a candidate's launcher in Triton's interpreter on the CPU, boxed: right or wrong without a GPU, never how fast.

What Triton's own computes otherwise than the compiled code is replaced: numbers (`floats.py`, `arithmetic.py`), dots
(`products.py`), reductions, logical operators (`syntax.py`), memory (`memory.py`: nothing outside of tensors, nothing
that a masked load leaves undefined) and the order of blocks (`blocks.py`: those that wait for later ones take turns).
Limits: no Gluon, no TTGIR, no inline assembly, of libdevice only what `libdevice.py` computes: `unsupported.py` is how
that is said, and what is computed but not modelled. The process computes the outputs itself: it can at most be
`checked`.
"""
