"""Verdicts, and the stages that need no GPU: what a candidate must pass before its speed counts."""
