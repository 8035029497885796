"""`python -m pgo_agent.evals.gate_record FILES`: records what `pgo-agent eval gate --json` printed on a GPU machine.

One line for each entry goes to evals/results/gate-DEVICE.jsonl; of an entry that several files hold, the last. The
whole corpora take longer than some machines are to be had for: parts add up. What no GPU judged cannot be recorded.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pgo_agent.evals.record import RESULTS, commit_of
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.errors import UsageFault


def merged(files: list[Path], commit: str) -> dict[str, dict[str, Any]]:
    """Entry -> its line. Raises UsageFault for what is no outcome of a GPU."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        for text in file.read_text().splitlines():
            row = json.loads(text)
            if "entry" not in row:
                continue  # what was counted of this file alone
            if not row["environment"]:
                raise UsageFault(f"{file}: no GPU judged {row['entry']}", "record what a GPU machine printed")
            found[row["entry"]] = {"what": "gate", "commit": commit} | row
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    found = merged(args.files, commit_of(Path(__file__).parent))
    if not found:
        raise UsageFault("nothing was judged", "give what `pgo-agent eval gate --json` printed")
    (gpu,) = {r["environment"]["gpu"] for r in found.values()}
    device = devices.named(gpu)
    out = RESULTS / f"gate-{device.key if device else gpu}.jsonl"
    out.write_text("".join(json.dumps(found[name]) + "\n" for name in sorted(found)))
    print(f"{len(found)} entries in {out}")


if __name__ == "__main__":
    main()
