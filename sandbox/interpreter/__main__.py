"""`python -m pgo_agent.sandbox.interpreter FOLDER`: runs the candidate on each case of FOLDER/request.json.

Runs in the box with TRITON_INTERPRET=1. What the answer (out/result.json) holds says `session.py`.
"""

import json
import os
import sys
from pathlib import Path

from pgo_agent.sandbox.imports import heavy


def main(folder: Path) -> None:
    with heavy():
        from pgo_agent.sandbox.interpreter.session import Session

    Session(folder, json.loads((folder / "request.json").read_text())).work()
    os._exit(0)  # blocks that were left waiting have threads, and nothing is left to do


if __name__ == "__main__":
    main(Path(sys.argv[1]))
