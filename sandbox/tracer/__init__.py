"""Runs a launcher on fake CUDA tensors, without a GPU, and records what it would have done.

`python -m pgo_agent.sandbox.tracer FOLDER` is the boxed process; `pgo_agent.sandbox.build.builder` prepares its folder
and reads its answer. Everything it answers is untrusted: it shares a process with the candidate's Python.
"""
