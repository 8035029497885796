"""Runs a candidate's launcher in Triton's interpreter on the CPU, in the box: checks results without a GPU, not time.

Replaces what Triton's interpreter computes otherwise than compiled code: numbers (`floats.py`, `arithmetic.py`), dots
(`products.py`), reductions, logical operators (`syntax.py`), memory (`memory.py`: no accesses outside of tensors, no
use of undefined lanes) and the order of blocks (`blocks.py`: blocks that wait for later ones take turns). Limits: no
Gluon, no TTGIR, no inline assembly but `griddepcontrol`, of libdevice only what `libdevice.py` computes;
`unsupported.py` reports what is lacking or not modelled. The process computes the outputs itself, so a candidate is at
most `checked`.
"""
