"""Stage 4 of the gate: can this kernel's barriers hang? Simulates the mbarriers of its TTGIR on the CPU.

`simulate(module)` says what it found, that it found nothing (not a proof), or that it could not decide and where.
"""
