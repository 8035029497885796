"""Runs a candidate's launcher in Triton's interpreter on the CPU, boxed: right or wrong without a GPU, never how fast.

Limits: fp16 and fp32 only (its bf16 arithmetic is wrong), no Gluon, no TTGIR, no inline assembly, of libdevice only
what `libdevice.py` computes; tf32 and fp16 accumulation are not modelled. The process computes the outputs itself: it
can at most be `checked`.
"""
