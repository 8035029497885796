"""When each part of a kernel runs, by clock reads put into its final TTGIR.

`points` finds the parts, `scopes` says what is recorded in which build, `instrument` writes the records into the text,
`decode` reads what a GPU left behind, `summary` and `waves` make statistics of it, `critical` finds the longest chain.
Instrumented builds are never compared with others in time. Nothing here needs a GPU;
`sandbox/judge/launches/instrumented.py` does.
"""
