"""IN_PLACE: what is read from a contract's text, and what inputs() must give for it."""

from pathlib import Path

import pytest
import torch
from pgo_agent.sandbox import in_place, target
from pgo_agent.sandbox.errors import TargetFault

from tests.sandbox.test_target import WHOLE

ROWS = torch.zeros(4, 4)
GIVEN: dict[str, object] = {"p": torch.ones(2), "states": [torch.zeros(2), torch.zeros(2)], "lr": 0.5, "none": []}


def read(folder: Path, line: str) -> tuple[str, ...]:
    (folder / "subject.py").write_text(f"{WHOLE}\n{line}\n")
    return target.read(folder / "subject.py").in_place


@pytest.mark.parametrize(
    ("line", "names"),
    [("", ()), ('IN_PLACE = ("x",)', ("x",)), ('IN_PLACE: list[str] = ["x", "m"]', ("x", "m")), ("IN_PLACE = ()", ())],
)
def test_names_are_read_without_running_the_contract(line: str, names: tuple[str, ...], tmp_path: Path) -> None:
    assert read(tmp_path, line) == names


@pytest.mark.parametrize(
    "line",
    [
        'IN_PLACE = "x"',
        "IN_PLACE = (x,)",
        "IN_PLACE = (1,)",
        'IN_PLACE = tuple("x")',
        'IN_PLACE = ("x",)\nIN_PLACE += ("y",)',
        'IN_PLACE = ("x",)\nIN_PLACE = ("y",)',
        'IN_PLACE, other = ("x",), 1',
        "def IN_PLACE(): ...",
    ],
)
def test_what_only_a_run_would_tell_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(TargetFault, match=r"subject.py:\d+: IN_PLACE must be one tuple or list of names") as refused:
        read(tmp_path, line)
    assert 'IN_PLACE = ("p", "exp_avg")' in refused.value.hint


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (("p", "states"), ""),
        (("q",), "names 'q', and inputs() gives no such argument"),
        (("lr",), "names 'lr', which is no tensor"),
        (("none",), "names 'none', which is no tensor"),
    ],
)
def test_every_name_must_be_an_input_of_tensors(names: tuple[str, ...], wrong: str) -> None:
    if not wrong:
        in_place.check(names, GIVEN)
        return
    with pytest.raises(TargetFault) as refused:
        in_place.check(names, GIVEN)
    assert wrong in refused.value.message


def test_inputs_that_share_memory_are_all_named_or_none_of_them() -> None:
    shared: dict[str, object] = {"q": ROWS[:2], "k": [ROWS[2:]], "v": ROWS.clone()}
    in_place.check(("q", "k"), shared)
    in_place.check(("v",), shared)
    with pytest.raises(TargetFault) as refused:
        in_place.check(("q",), shared)
    assert refused.value.message == "input 'k' shares memory with 'q', which kernel() changes"


def test_a_reference_gets_copies_of_what_it_may_change_and_of_nothing_else() -> None:
    copied = in_place.copied(("states",), GIVEN)
    assert copied["p"] is GIVEN["p"]
    for ours, theirs in zip(in_place.tensors(copied["states"]), in_place.tensors(GIVEN["states"]), strict=True):
        assert torch.equal(ours, theirs) and ours.data_ptr() != theirs.data_ptr()
