"""Which GPUs may be used: what nvidia-smi lists, cut as CUDA_VISIBLE_DEVICES and --gpus say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.judge import gpus
from pgo_agent.sandbox.judge.gpus import Gpu

LISTED = """\
GPU 0: NVIDIA H200 (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
GPU 1: NVIDIA H200 (UUID: GPU-5c8a0000-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 1g.18gb     Device  0: (UUID: MIG-b1c6a1ae-72ec-5d6d-a2d8-0d1d2e3f4a5b)
  MIG 3g.71gb     Device  1: (UUID: MIG-c7f1a1ae-72ec-5d6d-a2d8-0d1d2e3f4a5b)
GPU 2: NVIDIA L4 (UUID: GPU-77aa0000-d268-c3f3-1b07-005d5ae1dc3f)
"""
KNOWN = gpus.parse(LISTED)
FIRST, SMALL, LARGE, LAST = KNOWN
uuids = st.uuids().map(lambda u: f"GPU-{u}")
machines = st.lists(uuids, min_size=1, max_size=8, unique=True).map(
    lambda found: [Gpu(u, str(i), "NVIDIA H200") for i, u in enumerate(found)]
)


def test_gpus_and_instances_are_read_with_index_model_and_uuid() -> None:
    assert [(g.index, g.model, g.uuid[:8]) for g in KNOWN] == [
        ("0", "NVIDIA H200", "GPU-5c89"),
        ("1:0", "NVIDIA H200", "MIG-b1c6"),
        ("1:1", "NVIDIA H200", "MIG-c7f1"),
        ("2", "NVIDIA L4", "GPU-77aa"),
    ]


@given(machines)
def test_what_is_listed_is_read_back(machine: list[Gpu]) -> None:
    assert gpus.parse("".join(f"GPU {g.index}: {g.model} (UUID: {g.uuid})\n" for g in machine)) == machine


@given(st.text())
def test_no_text_is_an_error_to_read(text: str) -> None:
    assert all(g.uuid for g in gpus.parse(text))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (None, KNOWN),
        ("", []),
        ("-1", []),
        ("2,0", [LAST, FIRST]),
        ("0,0,2", [FIRST, LAST]),
        ("0,-1,2", [FIRST]),
        ("0,9,2", [FIRST]),  # a name that is no GPU ends it
        (LAST.uuid, [LAST]),
        ("GPU-77", [LAST]),
        ("GPU-5c8", [FIRST]),  # the other one is cut into instances, and no device itself
        (LARGE.uuid, [LARGE]),
        ("1", [SMALL]),  # of a GPU with instances CUDA shows the first
        ("GPU-", []),  # the beginning of several
    ],
)
def test_what_is_visible_is_read_as_cuda_reads_it(names: str | None, found: list[Gpu]) -> None:
    assert gpus.visible_of(names, KNOWN) == found


@given(machines, st.data())
def test_what_is_visible_is_in_the_order_of_the_names_whatever_they_are(
    machine: list[Gpu], data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.sampled_from(machine), unique=True, min_size=1))
    by_index, by_uuid = ([g.index for g in wanted], [g.uuid for g in wanted])
    assert gpus.visible_of(",".join(by_index), machine) == wanted == gpus.visible_of(",".join(by_uuid), machine)


def test_the_option_narrows_what_is_visible() -> None:
    assert gpus.narrowed("2", [FIRST, LAST], KNOWN) == [LAST]
    assert gpus.narrowed(f" {FIRST.uuid} , 2", [LAST, FIRST], KNOWN) == [FIRST, LAST]


@pytest.mark.parametrize("names", ["1", "7", "GPU-nothing", "zero", "0,7", ""])
def test_the_option_refuses_what_is_none_of_them_and_lists_those(names: str) -> None:
    with pytest.raises(UsageFault) as refused:
        gpus.narrowed(names, [FIRST, LAST], KNOWN)
    assert "0: NVIDIA H200, GPU-5c89" in refused.value.hint and "MIG" not in refused.value.hint


def test_without_nvidia_smi_it_is_said_what_was_asked_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentFault, match="cannot ask nvidia-smi which GPUs there are"):
        gpus.named("0")
