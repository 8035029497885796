"""`python -m pgo_agent.sandbox.isolation.probe FOLDER`: shows that a box works, by writing where it may and nowhere
else."""

import sys
from pathlib import Path

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "out" / "probe").write_text("fine")
    try:
        (folder.parent / "pgo-escaped").write_text("out")
    except OSError:
        sys.exit(0)
    (folder.parent / "pgo-escaped").unlink()
    sys.exit("the box lets a process write outside of its folder")
