"""The contract reader: what it refuses, what its messages tell, and what it lets a proposer see.

The target files here are text that nobody runs.
"""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pgo_agent.agent import kernel_part
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import TargetFault, UsageFault

KERNEL = """\
import torch
import triton


@triton.jit
def _scale(x_ptr):
    pass


def _blocks(n):
    return (n + 127) // 128


def kernel(x):
    _scale[(_blocks(x.numel()),)](x)
    return x
"""
CONTRACT = """\

def reference(x):
    return 2 * x  # the reference's own comment


@torch.no_grad()
def inputs(case, generator):
    return {"x": torch.ones(case["n"])}


CASES = {"public": dict(n=4096)}
SMALL = {"small": dict(n=128)}
HELD_OUT = {
    "secret": dict(n=99_991),
}
TOLERANCE: dict[str, float] = {"mean": 1e-6}
NONDETERMINISTIC = True


def flops(case):
    return case["n"]


def bytes_moved(case):
    return 8 * case["n"]
"""
WHOLE = KERNEL + CONTRACT


def _file(folder: Path, text: str, name: str = "scale.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# reading --------------------------------------------------------------------------------------------------------------


def test_a_file_that_keeps_the_contract_is_read(tmp_path: Path) -> None:
    found = target.read(_file(tmp_path, WHOLE))
    assert (found.name, found.source, found.contract, found.sidecar) == ("scale", WHOLE, WHOLE, False)


def test_missing_names_are_told_with_the_file_and_how_to_mend(tmp_path: Path) -> None:
    path = _file(tmp_path, KERNEL + "\nCASES = {}\nSMALL = {}\nHELD_OUT = {}\ndef inputs(case, generator): ...\n")
    with pytest.raises(TargetFault) as caught:
        target.read(path)
    assert caught.value.message == f"{path} does not define: reference, flops, bytes_moved"
    assert "def reference(...)" in caught.value.hint
    assert "def bytes_moved(case)" in caught.value.hint
    assert "CASES" not in caught.value.hint


@pytest.mark.parametrize("name", sorted(target.REQUIRED))
def test_each_required_name_is_missed(tmp_path: Path, name: str) -> None:
    with pytest.raises(TargetFault, match=rf"does not define: {name}\n"):
        target.read(_file(tmp_path, WHOLE.replace(f"def {name}(", "def other(").replace(f"\n{name} =", "\nOTHER =")))


def test_a_name_that_is_only_defined_inside_a_function_is_missed(tmp_path: Path) -> None:
    with pytest.raises(TargetFault, match="does not define: HELD_OUT"):
        target.read(_file(tmp_path, WHOLE.replace("HELD_OUT =", "def hidden():\n  HELD_OUT =")))


def test_an_imported_name_counts_as_defined(tmp_path: Path) -> None:
    text = WHOLE.replace("def reference(", "def other(") + "\nfrom library import oracle as reference\n"
    assert target.read(_file(tmp_path, text)).source == text


def test_an_import_that_replaces_a_function_of_the_kernel_part_is_told(tmp_path: Path) -> None:
    """Else every change of that function would be found right, for it is never run."""
    file = tmp_path / "scaled.py"
    file.write_text(KERNEL + "from package import expected, _blocks\n" + CONTRACT)
    with pytest.raises(TargetFault, match=r"scaled.py:\d+: _blocks is imported, and replaces the one of line 10"):
        target.read(file)
    file.write_text("from package import _blocks\n" + KERNEL + CONTRACT)
    target.read(file)


def test_a_file_that_is_not_python_is_told_with_its_line(tmp_path: Path) -> None:
    path = _file(tmp_path, "import torch\n\ndef kernel(:\n")
    with pytest.raises(UsageFault) as caught:
        target.read(path)
    assert caught.value.message.startswith(f"{path}:3 is not Python: ")
    assert caught.value.hint


def test_a_null_byte_in_the_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"is not Python: .*null bytes"):
        target.read(_file(tmp_path, WHOLE + "\0"))


def test_a_file_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(UsageFault, match=r"latin\.py is not Python: it is not UTF-8 text"):
        target.read(path)


def test_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="is a folder\n  -> name the Python file"):
        target.read(tmp_path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"no such file: .*/nowhere\.py\n  -> name a kernel file"):
        target.read(tmp_path / "nowhere.py")


def test_a_path_that_leads_through_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"cannot read .*: Not a directory"):
        target.read(_file(tmp_path, WHOLE) / "inner.py")


# sidecars -------------------------------------------------------------------------------------------------------------


def test_a_sidecar_holds_the_contract_of_an_untouched_file(tmp_path: Path) -> None:
    path, sidecar = _file(tmp_path, KERNEL), _file(tmp_path, CONTRACT, "scale.target.py")
    found = target.read(path)
    assert (found.path, found.contract_path, found.sidecar) == (path, sidecar, True)
    assert (found.source, found.contract) == (KERNEL, CONTRACT)


def test_a_name_missing_in_a_sidecar_is_told_with_the_sidecars_path(tmp_path: Path) -> None:
    path = _file(tmp_path, KERNEL)
    sidecar = _file(tmp_path, CONTRACT.replace("SMALL", "TINY"), "scale.target.py")
    with pytest.raises(TargetFault) as caught:
        target.read(path)
    assert caught.value.message == f"{sidecar} does not define: SMALL"


def test_a_launcher_missing_beside_a_sidecar_is_told_with_the_kernels_path(tmp_path: Path) -> None:
    path = _file(tmp_path, KERNEL.replace("def kernel(", "def launch("))
    _file(tmp_path, CONTRACT, "scale.target.py")
    with pytest.raises(TargetFault) as caught:
        target.read(path)
    assert caught.value.message == f"{path} does not define: kernel"


def test_the_digest_changes_with_the_kernel_and_with_the_sidecar(tmp_path: Path) -> None:
    path, sidecar = _file(tmp_path, KERNEL), _file(tmp_path, CONTRACT, "scale.target.py")
    digests = {target.read(path).digest}
    sidecar.write_text(CONTRACT.replace("2 * x", "3 * x"))
    digests.add(target.read(path).digest)
    path.write_text(KERNEL.replace("127", "255"))
    digests.add(target.read(path).digest)
    assert len(digests) == 3


# what a proposer sees -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(target.CONTRACT))
def test_the_kernel_part_hides_each_name_of_the_contract(name: str) -> None:
    assert name not in kernel_part.kernel_part(f"{WHOLE}\n{name} = 1\n")


@pytest.mark.parametrize("secret", ["99_991", "secret", "1e-6", "2 * x", "the reference's own comment", "no_grad"])
def test_the_kernel_part_hides_what_the_contract_says(secret: str) -> None:
    assert secret in WHOLE
    assert secret not in kernel_part.kernel_part(WHOLE)


@pytest.mark.parametrize("name", ["import triton", "@triton.jit", "def _scale", "def _blocks", "def kernel"])
def test_the_kernel_part_keeps_launcher_kernels_and_helpers(name: str) -> None:
    assert name in kernel_part.kernel_part(WHOLE)


def test_the_kernel_part_of_a_file_without_contract_is_the_file() -> None:
    assert kernel_part.kernel_part(KERNEL) == KERNEL


@example("\f\f")
@example("\u2028\u2028")
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\0\r\n\\"'), max_size=8))
def test_the_kernel_part_hides_the_held_out_cases_whatever_characters_stand_above_them(text: str) -> None:
    part = kernel_part.kernel_part(f'NOTE = "{text}"\nHELD_OUT = {{\n    "secret": 1,\n}}\ndef helper(): ...\n')
    assert "secret" not in part
    assert "def helper(): ..." in part


# whether the contract was kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 * x", "2.0 * x"),
        ("n=4096", "n=4097"),
        ("99_991", "99_990"),
        ("1e-6", "1e-2"),
        ("NONDETERMINISTIC = True", ""),
        ("@torch.no_grad()\n", ""),
        ("torch.ones", "torch.zeros"),
    ],
)
def test_a_changed_contract_is_noticed(old: str, new: str) -> None:
    assert old in WHOLE
    assert not target.same_contract(WHOLE, WHOLE.replace(old, new))


def test_a_second_definition_that_would_win_is_noticed() -> None:
    assert not target.same_contract(WHOLE, WHOLE + "\nTOLERANCE = {'mean': 1.0}\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("127) // 128", "255) // 256"),
        ("    pass", "    return"),
        ("import torch", "import torch\n\n\n"),
        ("the reference's own comment", "another comment"),
    ],
)
def test_a_changed_kernel_is_no_change_of_the_contract(old: str, new: str) -> None:
    assert old in WHOLE
    assert target.same_contract(WHOLE, WHOLE.replace(old, new))
