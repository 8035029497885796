"""`pgo-agent init` on what libraries of kernels do: results that are copied, definitions in conditions, annotations."""

import re
import textwrap
from pathlib import Path

import pytest
from pgo_agent.agent.commands.init import command

from tests.agent.commands.init.test_init import KERNEL, LAUNCHER, init

HEAD = 'def add(x, y, out):\n    n = x.shape[0]\n    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)\n'
DENSE = HEAD + "    dense = out.contiguous()\n    _add[grid](x, y, dense, n)\n"
IMPORTS, _, KERNELS = KERNEL.partition("@triton.autotune")


@pytest.mark.parametrize(
    "copied",
    ["out.copy_(dense)", "out.copy_(dense.to(out.dtype))", "out[:] = dense", "made = dense * 2\n    out.copy_(made)"],
)
def test_what_the_host_copies_a_result_into_is_written_too(copied: str, tmp_path: Path) -> None:
    made = init(f"{KERNEL}{DENSE}    {copied}\n", tmp_path)
    assert 'IN_PLACE = ("out",)' in made and "    return out\n" in made


def test_what_the_host_copies_from_arguments_is_no_result(tmp_path: Path) -> None:
    made = init(f"{KERNEL}{LAUNCHER}    y.copy_(x)\n", tmp_path)
    assert "    return out\n" in made


def test_kernels_and_launchers_in_a_condition_are_read_like_others(tmp_path: Path) -> None:
    own = textwrap.indent("@triton.autotune" + KERNELS + LAUNCHER, "    ")
    made = init(f"{IMPORTS}import sys\n\nif sys.platform:\n{own}", tmp_path)
    assert "    return out\n" in made[made.rindex("def kernel") :]


@pytest.mark.parametrize("first", [True, False])
def test_what_only_raises_where_something_is_missing_is_not_the_launcher(tmp_path: Path, first: bool) -> None:
    own = textwrap.indent("@triton.autotune" + KERNELS + LAUNCHER, "    ")
    stub = '    def add(x, y, out, scale=1.0):\n        raise NotImplementedError("needs Triton")\n'
    one, other = (own, stub) if first else (stub, own)
    made = init(f"{IMPORTS}import sys\n\nif sys.platform:\n{one}\nelse:\n{other}", tmp_path)
    assert "    return out\n" in made[made.rindex("def kernel") :]


@pytest.mark.parametrize(
    ("annotation", "tensor"),
    [("torch.tensor", True), ("Float[Tensor, 'n']", True), ("Any", True), ("int", False), ("Optional[int]", False)],
)
def test_an_annotation_says_what_is_a_tensor_and_else_its_use(annotation: str, tensor: bool, tmp_path: Path) -> None:
    text = LAUNCHER.replace("add(x,", f'add(x: "{annotation}",').replace("x.shape[0]", "x.numel()")
    assert ('"x": tensor(' in init(KERNEL + text, tmp_path)) is tensor


def test_a_module_is_found_in_folders_that_are_no_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "vendor" / "kernels"
    folder.mkdir(parents=True)
    (folder / "sums.py").write_text(KERNEL + LAUNCHER)
    monkeypatch.syspath_prepend(tmp_path)
    assert command.located("vendor.kernels.sums") == folder / "sums.py"
    assert command.located("vendor.kernels.none") == Path("vendor.kernels.none")
    assert command.located("vendor.none.sums") == Path("vendor.none.sums")


def test_a_stride_is_no_size(tmp_path: Path) -> None:
    text = LAUNCHER.replace("    n = x.shape[0]", "    row = x.stride(0)\n    n = x.numel()")
    assert 'case["row"]' not in init(KERNEL + text, tmp_path)


def test_a_size_that_addresses_are_made_of_is_no_result(tmp_path: Path) -> None:
    stored = KERNEL.replace("tl.store(z_ptr + at", "tl.store(z_ptr + n - n + at")
    assert "    return out\n" in init(f"{stored}{LAUNCHER}    return out, n\n", tmp_path)


def test_a_kernel_that_a_condition_chooses_is_launched(tmp_path: Path) -> None:
    chosen = "    chosen = (\n        _add if n % 2 else _other\n    )\n    chosen["
    text = KERNEL + KERNEL[KERNEL.index("@triton.jit") :].replace("_add(", "_other(")
    made = init(text + LAUNCHER.replace("    _add[", chosen), tmp_path)
    assert "    return out\n" in made and "def _other(" in made


@pytest.mark.parametrize("size", ["x.shape[-1]", "x.size(-1)", "width"])
def test_what_is_made_a_matrix_has_two_dimensions_at_least(size: str, tmp_path: Path) -> None:
    text = LAUNCHER.replace("    n = x.shape[0]", f"    x = x.view(-1, {size})\n    n = x.numel()")
    assert re.search(r'"x": tensor\(case\["\w+"\], case\["\w+"\]\)', init(KERNEL + text, tmp_path))
