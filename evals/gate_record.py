"""`python -m pgo_agent.evals.gate_record FILES`: records what `pgo-agent eval gate --json` printed on a GPU machine.

One line for each entry goes to evals/results/gate-DEVICE.jsonl; of an entry that several files hold, the last. The
whole corpora take longer than some machines are to be had for: parts add up. Of every file whose run came to its end
there is a line with how many were judged in how many seconds, if that were enough to speak of a batch. What no GPU
judged cannot be recorded; what the corpora do not hold any more is left out.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pgo_agent.evals import entries as corpora
from pgo_agent.evals.record import RESULTS
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.errors import UsageFault

BATCH = 10  # entries


def merged(files: list[Path]) -> list[dict[str, Any]]:
    """The entries, by name, then the batches. Raises UsageFault for a file that says nothing of a GPU."""
    known = {e.name for e in corpora.load()}
    found: dict[str, dict[str, Any]] = {}
    batches = []
    for file in files:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        machine = next((r["environment"] for r in rows if r.get("environment")), None)
        if machine is None:
            raise UsageFault(f"{file}: no GPU judged this", "record what a GPU machine printed")
        entries = {r["entry"]: {"what": "gate"} | r | {"environment": machine} for r in rows if "entry" in r}
        found |= {name: row for name, row in entries.items() if name in known}
        if "entry" not in rows[-1] and len(entries) >= BATCH:
            batches.append(_batch(rows[-1]) | {k: rows[0][k] for k in ("target", "commit")} | {"environment": machine})
    return [*(found[n] for n in sorted(found)), *batches]


def _batch(counted: dict[str, Any]) -> dict[str, Any]:
    entries = counted["bad"]["entries"] + counted["honest"]["entries"]
    return {"what": "gate batch", "entries": entries, "wall": counted["wall"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    found = merged(parser.parse_args().files)
    if not found:
        raise UsageFault("nothing was judged", "give what `pgo-agent eval gate --json` printed")
    (gpu,) = {r["environment"]["gpu"] for r in found}
    device = devices.named(gpu)
    out = RESULTS / f"gate-{device.key if device else gpu}.jsonl"
    out.write_text("".join(json.dumps(row) + "\n" for row in found))
    print(f"{len(found)} lines in {out}")


if __name__ == "__main__":
    main()
