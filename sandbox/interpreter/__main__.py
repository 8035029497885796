"""`python -m pgo_agent.sandbox.interpreter FOLDER`: runs the candidate on each case of FOLDER/request.json.

Runs in the box with TRITON_INTERPRET=1. What the answer (out/result.json) holds says `session.py`.
"""

import json
import sys
from pathlib import Path

from pgo_agent.sandbox.imports import heavy


def main(folder: Path) -> None:
    with heavy():
        from pgo_agent.sandbox.interpreter.session import Session

    request = json.loads((folder / "request.json").read_text())
    (folder / "out" / "result.json").write_text(json.dumps(Session(folder, request).answer()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
