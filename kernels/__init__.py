"""Targets that ship with the project: each file is a kernel with its launcher, reference, inputs and cases.

They are data: pgo-agent loads them by path, in its box, and never imports them as part of itself.
"""
