"""Turns TTGIR into cubins in a process that never imported a candidate.

`python -m pgo_agent.sandbox.compiler FOLDER` is the boxed process; `pgo_agent.sandbox.build.builder` prepares its
folder. Its inputs are text from the tracer, so MLIR and ptxas may crash on them: each kernel is compiled in a child of
its own.
"""
