"""Stage 4 of the gate: can this kernel's barriers hang, or let memory be used too soon? Simulates its TTGIR on the CPU.

`runs.simulate(module)` returns a finding, or no finding (not a proof), or that it could not decide and where.
"""
