"""Rewrites of Triton source: each proves that no value changes, or says why it does not apply."""
