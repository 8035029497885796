"""The interactive session, and the live block that it shares with `optimize`.

`snapshot.py` reads a run from its record, `dashboard.py` draws it. The loop runs in a process of its own (`worker.py`,
controlled by `worker_process.py`), so that Ctrl-C, a dead terminal or a dead loop lose nothing. `parse_input.py` reads
what a person types, `commands.py` does it, `editor.py` starts $EDITOR, `terminal.py` reads lines, and `controller.py`
holds the state of the session. Requests reach the loop through the record alone: see `agent/run/steering.py`.
"""
