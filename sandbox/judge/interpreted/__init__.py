"""The judge without a GPU: which cases Triton's interpreter runs, and what its runs come to."""
