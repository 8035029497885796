"""What PyTorch's compiler writes for a reference becomes a candidate: right for what it fits, and never for more."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.agent.proposal import compiled_reference
from pgo_agent.agent.proposal.compiled_reference import composed, results_in_inputs
from pgo_agent.sandbox.build.compiled_reference import Compiled, Variant, write
from pgo_agent.sandbox.isolation.box import Box, Ran

from tests.agent.command_line import pgo
from tests.agent.targets import builder_of

NORM = '''"""RMSNorm times a number."""

import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x_ptr, w_ptr, y_ptr, columns, scale, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + at, mask=at < columns, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x) / columns + eps) * tl.load(w_ptr + at, mask=at < columns, other=0.0) * scale
    tl.store(y_ptr + row + at, y, mask=at < columns)


def kernel(x, w, scale, eps):
    y = torch.empty_like(x)
    _norm[(x.shape[0],)](x, w, y, x.shape[1], scale, eps, triton.next_power_of_2(x.shape[1]))
    return y


def reference(x, w, scale, eps):
    v = x.float()
    return (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + eps) * w.float() * (2.0 * scale) / 2).to(x.dtype)


def inputs(case, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).half()

    rows, columns = case["rows"], case["columns"]
    return {"x": normal(rows, columns), "w": normal(columns), "scale": case["scale"], "eps": 1e-6}


CASES = {"large": dict(rows=64, columns=1024, scale=3.0), "other": dict(rows=32, columns=1024, scale=0.5)}
SMALL = {"ragged": dict(rows=7, columns=50, scale=1.5)}
HELD_OUT = {"odd": dict(rows=33, columns=127, scale=0.7)}


def flops(case):
    return 4 * case["rows"] * case["columns"]


def bytes_moved(case):
    return 4 * case["rows"] * case["columns"]
'''

OTHER = ', "other": dict(rows=32, columns=1024, scale=0.5)'
ONE = NORM.replace(OTHER, "")  # of one public case


class Closed(Box):
    """Says that it was asked, and runs nothing."""

    def run(self, *_args: Any, **_options: Any) -> Ran:
        raise AssertionError("the box is asked")


def written(
    source: str, folder: Path, in_place: dict[int, str] | None = None, box: type[Box] | None = None
) -> Compiled:
    b = builder_of(source, folder)
    cases = re.findall(r'"(\w+)": dict', source.partition("CASES = {")[2].partition("}")[0])
    place = box(b.box.kind) if box else b.box, b.contents, b.target, b.device
    return write(*place, compiled_reference.NAME, cases, in_place or {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("norm")


@pytest.fixture(scope="module")
def norm(folder: Path) -> Compiled:
    return written(NORM, folder)


def fits(variant: Variant, *args: Any) -> bool:
    (part,) = variant.parts
    names: dict[str, Any] = {"torch": torch}
    exec(part.text[part.text.index(f"def {part.condition}") :], names)
    return bool(names[part.condition](*args))


@pytest.mark.long
def test_sizes_and_numbers_that_it_was_not_written_for_come_out_right(norm: Compiled, tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    text = composed(NORM, norm.variants[0])
    first = re.sub(r"(configs=\[\n.*\n)(?: +triton\.Config\(.*\n)+", r"\1", text)  # the others compute the same
    (tmp_path / "other.py").write_text(first)
    done = pgo("check", "other.py", "--target", "norm.py", "--judge", "cpu", "--case", "large", "--json", cwd=tmp_path)
    (verdict,) = (e for e in done.events if e["type"] == "candidate.verdict")
    assert verdict["verdict"] == "checked", verdict


@pytest.mark.usefixtures("norm")
@pytest.mark.parametrize(
    ("old", "new"), [("2.0 * scale", "3.0 * scale"), ("def kernel(x, w, scale", "def kernel(w, x, scale")]
)
def test_the_compiler_is_asked_anew_where_anything_differs(folder: Path, old: str, new: str) -> None:
    with pytest.raises(AssertionError, match="the box is asked"):
        written(NORM.replace(old, new), folder, box=Closed)


def test_the_compiler_is_asked_once_for_the_same(norm: Compiled, folder: Path) -> None:
    assert written(NORM, folder, box=Closed) == norm


def test_it_is_for_all_sizes_of_its_types_and_layouts_alone(norm: Compiled) -> None:
    any_row, rows = norm.variants
    x, w = torch.zeros(12, 48).half(), torch.zeros(48).half()
    assert fits(any_row, x, w, 0.1, 1e-5) and not fits(rows, x, w, 0.1, 1e-5)
    assert fits(rows, torch.zeros(12, 1024).half(), torch.zeros(1024).half(), 0.1, 1e-5)
    for others in ((x.float(), w), (x.T.contiguous().T, w), (x[:, ::2], w[::2]), (x[:1], w), (x[None], w), (x[:0], w)):
        assert not fits(any_row, *others, 0.1, 1e-5)


def test_what_it_computes_of_numbers_is_computed_once_by_the_launcher(norm: Compiled) -> None:
    (part,) = norm.variants[0].parts
    kernel, _, launcher = part.text.partition(f"def {part.launcher}(")
    assert re.search(r"2\.0 \* zf\d+", launcher) and "zf" not in kernel and "float64" not in kernel


@pytest.mark.long
def test_a_result_that_an_input_gets_is_written_there(tmp_path: Path) -> None:
    (part,) = written(ONE, tmp_path, {0: "x"}).variants[0].parts
    launcher = part.text.partition(f"def {part.launcher}(")[2]
    assert "return x\n" in launcher and "torch.empty" not in launcher
    assert "restore_value=['in_ptr0', " in part.text, "its autotuner does not do the step several times"


REFUSED = {
    "a library": ("v = x.float() @ x.float().T", "aten.mm"),
    "too many operations": ("v = x.float()\n    for i in range(600):\n        v = v + i", "500 operations"),
    "sizes by values": ("v = x[x > 0]", "what its inputs hold"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_kernel_of_triton_serves_is_refused_with_its_reason(kind: str, tmp_path: Path) -> None:
    first, said = REFUSED[kind]
    text = ONE.replace("    v = x.float()", f"    {first}")
    answer = written(text, tmp_path)
    assert not answer.variants and said in " ".join(answer.refused)
    assert written(text, tmp_path, box=Closed) == answer, "it is asked again"


def test_a_part_of_an_input_is_no_result_to_write_in_place() -> None:
    whole = {"t": 0, "size": [4, 4], "offset": 0}
    plan: Any = {"inputs": {"x": whole, "n": 3}, "storages": [], "steps": [], "out": [whole, {"t": 1}]}
    assert results_in_inputs(plan, ["x"]) == {0: "x"}
    assert results_in_inputs(plan | {"out": [whole | {"offset": 4}]}, ["x"]) is None
