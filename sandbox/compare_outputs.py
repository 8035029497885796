"""Compares what runs of a program gave: `python compare_outputs.py A B ...`, files of named tensors; by path, alone.

Prints one line of JSON: for each further file, name -> how it differs from the first: `exact`, or the largest error and
the root of the mean square error as a part of the first one's own (`relative`), in float64; `problem` where shapes or
types differ, a name is missing, or NaN stand elsewhere.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch


def main(files: list[str]) -> None:
    first, *others = map(_read, files)
    print(json.dumps([{n: _compared(t, other.get(n)) for n, t in first.items()} for other in others]))


def _read(file: str) -> dict[str, torch.Tensor]:
    try:
        named = json.loads(Path(file).read_bytes())
    except ValueError:
        return dict(torch.load(file, weights_only=True))
    return {n: torch.as_tensor(v, dtype=torch.float64 if _floats(v) else None) for n, v in named.items()}


def _floats(value: Any) -> bool:
    return any(map(_floats, value)) if isinstance(value, list) else isinstance(value, float)


def _compared(a: torch.Tensor, b: torch.Tensor | None) -> dict[str, Any]:
    if b is None:
        return {"problem": "it is missing"}
    told: dict[str, Any] = {"dtype": str(a.dtype).removeprefix("torch."), "elements": a.numel()}
    if a.shape != b.shape or a.dtype != b.dtype:
        return told | {"problem": f"{list(b.shape)} {b.dtype} in place of {list(a.shape)} {a.dtype}"}
    if torch.equal(a, b):
        return told | {"exact": True}
    if not (a.is_floating_point() or a.is_complex()):
        return told | {"problem": f"{int((a != b).sum())} of {a.numel()} differ"}
    if not torch.equal(a.isfinite(), b.isfinite()):
        return told | {"problem": "NaN or infinities stand elsewhere"}
    kept = a.isfinite()
    x, y = a[kept].double(), b[kept].double()
    size = float(x.square().mean().sqrt())
    worst, mean = float((x - y).abs().max()), float((x - y).square().mean().sqrt())
    return told | {"exact": False, "largest": worst, "relative": mean / size if size else float("inf")}


if __name__ == "__main__":
    main(sys.argv[1:])
