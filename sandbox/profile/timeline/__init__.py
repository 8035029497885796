"""When each part of a kernel runs, by clock reads put into its final TTGIR.

`find_scopes` finds the parts, `scope_sets` says what is recorded in which build, `instrument` writes the records into
the text, `decode` reads what a GPU left behind, `summary` and `sm_waves` make statistics of it, `longest_path` finds
the longest chain.
Instrumented builds are never compared with others in time. Nothing here needs a GPU;
`sandbox/judge/launches/instrumented.py` does.
"""
