"""`pgo-agent mcp`: the judge and the profiler as an MCP server, for coding agents.

`server.py` has the tools, `submissions.py` makes runs and candidates of what agents submit, `worker.py` judges them in
a process of its own, `answers.py` says what came of it, `slow.py` is for work that outlasts a call, `confirmation.py`
asks a person before a file is written, `command.py` starts the server.
"""
