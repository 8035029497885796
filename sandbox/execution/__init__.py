"""Runs TTGIR on the CPU, for its values: what a launch was recorded to do, without Python of a launcher.

`program.py` reads a text and runs its blocks; `memory.py` has what they may access. Nothing of a text is executed as
code. Layouts are read over, and TTIR runs as well. An operation that is not known is said (`NotModelled`), and so is
what a kernel does wrong (`KernelFault`). Threads of a partition of warps move together.
"""
