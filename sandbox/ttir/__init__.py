"""Runs TTIR, Triton's IR before any layout, on the CPU: what a launch was recorded to do, without Python of a launcher.

`program.py` reads a text and runs its blocks; `memory.py` has what they may access. Nothing of a text is executed as
code. An operation that is not known is said (`NotModelled`), and so is what a kernel does wrong (`KernelFault`).
"""
