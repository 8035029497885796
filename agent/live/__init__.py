"""The interactive session, and the live block that it shares with `optimize`.

`glance.py` reads a run from its record, `block.py` draws it. The loop runs in a process of its own (`worker.py`, held
by `running.py`), so that Ctrl-C, a dead terminal or a dead loop lose nothing. `asking.py` reads what a person types,
`commands.py` does it, `editing.py` is $EDITOR, `front.py` the terminal, `conductor.py` holds it all together. Requests
reach the loop through the record alone: see `agent/steering.py`.
"""
