"""The arithmetic that `init` guesses for a target of captured calls: of a product, the sizes that give its result."""

from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.commands.init import cases
from pgo_agent.agent.commands.init.captured_calls import Captured
from pgo_agent.agent.commands.init.captured_inputs import flops
from pgo_agent.agent.commands.init.inlined import Modules
from pgo_agent.agent.commands.init.seen import Call

TEXT = """import torch
import triton
import triton.language as tl


@triton.jit
def _product(A, B, C):
    tl.store(C, tl.sum(tl.dot(tl.load(A), tl.load(B))))


def product(a, a_scale, b, b_scale):
    c = torch.empty((a.shape[0], b.shape[0]), device=a.device)
    _product[(1,)](a, b, c)
    return c
"""


def tensor(storage: int, *shape: int) -> dict[str, Any]:
    stride = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        stride[i] = stride[i + 1] * shape[i + 1]
    return {"storage": storage, "shape": list(shape), "stride": stride, "dtype": "float16", "grad": False}


@pytest.mark.parametrize("b", [(768, 2048), (2048, 768)])
def test_scales_beside_two_matrices_are_no_part_of_their_product(b: tuple[int, int], tmp_path: Path) -> None:
    file = tmp_path / "product.py"
    file.write_text(TEXT)
    args = {"a": tensor(1, 512, 2048), "a_scale": tensor(2, 512, 16), "b": tensor(3, *b), "b_scale": tensor(4, 6, 16)}
    call = Call(str(file), "product", 11, args, tensor(5, 512, 768), None, ())
    modules = Modules(frozenset(), frozenset(), tmp_path)
    captured = Captured(file, TEXT, (call,), None, (), "", modules)
    known = cases.sizes(captured.calls, captured.function)
    sizes = known.by_call[0]
    assert eval(flops(captured, known), {"case": sizes}) == 2 * 512 * 768 * 2048
