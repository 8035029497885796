"""`python -m pgo_agent.sandbox.tracer.problem FOLDER`: what a model of PyTorch's takes, in which sizes, and gives.

Runs in the box. FOLDER/problem.py is the module; FOLDER/request.json names its sizes, for each case what may be tried
for each of them, and the cases in which rows stay as long as they are. FOLDER/out/result.json gets what
`sized_model.py` found.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.imports import heavy


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    with heavy():
        import torch  # noqa: F401 (imported here, used below)
    try:
        answer = _answer(folder / "problem.py", request)
    except (Exception, SystemExit) as e:
        answer = {"error": f"{type(e).__name__}: {e}"[:1000]}
    part = folder / "out" / "result.json.part"
    part.write_text(json.dumps(answer))
    part.rename(part.with_suffix(""))


def _answer(path: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    from pgo_agent.sandbox import target
    from pgo_agent.sandbox.tracer.sized_model import SizedModel

    model = SizedModel(target.load(path, "pgo_problem"), request["given"], request["init"])
    sizes = {str(n): int(v) for n, v in request["sizes"].items()}
    seen = model.called(sizes)
    width = seen.outputs[0].shape[-1:]
    rows = {n: [v] for n, v in sizes.items() if (v,) == tuple(width)}
    ladders = {c: ladder | (rows if c in request["rows"] else {}) for c, ladder in request["ladders"].items()}
    cases = {c: model.nearest(sizes, ladder) for c, ladder in ladders.items()}
    return {
        **model.described(sizes),
        "partial": seen.partial,
        "cases": {c: {"sizes": s, **model.called(s).cost()} for c, s in cases.items()},
        "of_init": not all(model.same(s, sizes) for s in cases.values()),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
