"""Launches checked bundles on a GPU and reports the results. Needs torch, numpy and what the target file imports.

`python -m pgo_agent.sandbox.judge` is the process that holds the GPU; it imports the user's original target file, and
never a candidate, nor Triton. `gpu_judge.py` is the other end: it starts, feeds and, after a fault, replaces that
process. `spool/` is for a GPU on another machine.
"""
