"""Reading TTGIR, Triton's GPU IR, as text: `reader.parse` gives a tree that renders to the very text that was read.

Needs neither Triton nor MLIR, so the judge's half may use it. It reads what MLIR prints (an op to a line) and judges
nothing: whether a text is TTGIR at all, Triton's own parser and verifier say (`triton_parser.py`).
"""
