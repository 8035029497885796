"""The judge without a GPU: which cases Triton's interpreter runs, and the verdict on its runs."""
