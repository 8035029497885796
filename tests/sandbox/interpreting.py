"""Runs launchers in real, boxed interpreter processes, without a judge: what they answer, and what they return."""

import json
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import target
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.isolation import box

ADD = Path(__file__).parents[2] / "tests" / "kernels" / "add.py"


def entry(folder: Path, source: str, **given: Any) -> dict[str, Any]:
    """What a boxed interpreter process answers of `kernel(**given)` of a source."""
    _, candidate = trace_and_compile.place(
        folder, target.read(ADD), f"import torch, triton\nimport triton.language as tl\n{source}", hide=True
    )
    (folder / "in").mkdir()
    described = tensors.save(given, folder / "in", "0")
    request = {"candidate": candidate, "cases": {"one": described}, "configs": {"one": 1}, "device": "h200"}
    (folder / "request.json").write_text(json.dumps(request))
    ran = box.choose().run("pgo_agent.sandbox.interpreter", folder, 120.0, env={"TRITON_INTERPRET": "1"})
    assert ran.code == 0, ran.output
    (found,) = json.loads((folder / "out" / "result.json").read_text())["one"]
    return dict(found)


def interpreted(folder: Path, source: str, **given: Any) -> list[Any]:
    """What `kernel(**given)` returns there."""
    said = entry(folder, source, **given)
    assert "outputs" in said, said
    found = tensors.load(said["outputs"], folder / "out")
    return [found[str(i)] for i in range(len(found))]
