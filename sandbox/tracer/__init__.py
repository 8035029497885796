"""Runs a launcher on fake CUDA tensors, without a GPU, and records what it would have done.

`python -m pgo_agent.sandbox.tracer FOLDER` is the boxed process; `pgo_agent.sandbox.build.builder` prepares its folder
and reads its answer. `user_program.py` does the same with a user's whole program, for `pgo-agent init`. Everything they
answer is untrusted: they share a process with the candidate's, or the user's, Python.
"""

NEEDS_CUBINS = 75  # exit status of a tracer that is to be run again, with finished kernels
