"""Runs untrusted code.

A kernel's Python is executed only by the tracer, in a box without GPU, network or keys. What leaves the box is data: a
launch plan and TTGIR. The compiler turns TTGIR into cubins without ever importing a kernel file; the judge launches
cubins through the CUDA driver without importing a candidate or Triton. Nothing in here imports `pgo_agent.agent`.
"""
