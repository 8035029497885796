"""A kernel() of torch operators alone: a model is asked without TTGIR, and its first kernel in Triton is judged."""

from pathlib import Path

import pytest
from pgo_agent.agent.run.record.store import Store

from tests.agent.command_line import pgo

EAGER = """
import torch


def kernel(x, factor):
    return torch.relu(x) * factor


def reference(x, factor):
    return torch.relu(x) * factor


def inputs(case, generator):
    return {"x": torch.randn(case["n"], generator=generator, device=generator.device), "factor": 0.5}


CASES = {"a": dict(n=4096)}
SMALL = {"s": dict(n=100)}
HELD_OUT = {"h": dict(n=33)}


def flops(case):
    return case["n"]


def bytes_moved(case):
    return 8 * case["n"]
"""
REPLY = """---
model: by-hand
---
One pass.

```python
import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, z, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(z + at, tl.where(value > 0, value, value * 0) * factor, mask=at < n)


def kernel(x, factor):
    z = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 256),)](x, z, factor, x.numel(), BLOCK=256)
    return z
```
"""


@pytest.mark.long
def test_a_models_first_kernel_in_triton_is_judged_against_pytorch(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text(EAGER)
    (tmp_path / "relay").mkdir()
    options = ["--no-wait", "--model", "relay:relay", "--no-compiler", "--candidates", "1"]
    asked = pgo("optimize", "eager.py", *options, cwd=tmp_path)
    (request,) = (tmp_path / "relay").glob("*-request.md")
    assert asked.code == 5, asked.err
    assert "a: factor=0.5, x float32[4096]" in request.read_text()
    request.with_name(request.name.replace("request", "reply")).write_text(REPLY)
    assert pgo("resume", cwd=tmp_path).code == 0
    nothing = pgo("show", "last", "tuned", "--ttgir", "ir", cwd=tmp_path)
    assert nothing.code == 2 and "tuned launches no kernel: torch operators alone run" in nothing.err
    store = Store(tmp_path / ".pgo-agent")
    (candidate,) = store.candidates(store.run("last").id)
    assert (candidate.author != "embedded", candidate.verdict) == (True, "checked"), candidate.reason
