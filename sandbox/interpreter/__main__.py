"""`python -m pgo_agent.sandbox.interpreter FOLDER`: runs the candidate on each case of FOLDER/request.json.

Runs in the box with TRITON_INTERPRET=1. `session.py` describes the answer (out/result.json).
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
    os._exit(0)  # waiting blocks may still have threads


if __name__ == "__main__":
    main(Path(sys.argv[1]))
