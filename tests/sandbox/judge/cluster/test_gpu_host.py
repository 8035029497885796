"""What runs beside a GPU of a cluster, without Ray: files by their hash, and failures as data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import target
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.judge import by_hash
from pgo_agent.sandbox.judge.cluster.gpu_host import GpuHost
from pgo_agent.sandbox.judge.gpus import Gpu

from tests.agent.many import Machine
from tests.conftest import TARGETS

ADD = target.read(TARGETS / "add.py")
TEXTS = (ADD.path.name, ADD.source, ADD.contract_path.name, ADD.contract)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = Machine(tmp_path / "machine", 1)
    made.control()
    made.judges()  # writes its interpreter
    return made


@pytest.fixture
def host(machine: Machine) -> Iterator[GpuHost]:
    made = GpuHost(str(machine.folder / "python"), Gpu("GPU-0", "0", "made up"))
    yield made
    made.close()


def test_an_answer_says_how_long_the_gpu_was_held_and_where(host: GpuHost) -> None:
    assert "answer" in host.open(*TEXTS)
    said: dict[str, Any] = host.answer("hello", {})
    assert said["answer"] == {} and said["environment"]["host"] == host.about()["host"]
    assert said["environment"]["uuid"] == "GPU-0" and 0 < said["busy"] < 60


def test_a_hang_is_data_and_the_next_question_gets_a_new_process(host: GpuHost, machine: Machine) -> None:
    machine.control(deadline=0.3, hangs={"GPU-0": ["peaks"]})
    host.open(*TEXTS)
    said: dict[str, Any] = host.answer("peaks", {"case": "CASES/1m"})
    assert said["ended"]["timed_out"] and said["ended"]["stage"] == "peaks"
    machine.control()
    assert "answer" in host.answer("hello", {})


def test_a_gpu_that_does_not_start_is_a_fault_with_its_kind(host: GpuHost, machine: Machine) -> None:
    machine.control(deadline=0.3, hangs={"GPU-0": ["open"]})
    said: dict[str, Any] = host.open(*TEXTS)
    assert said["fault"]["type"] == "NoStart"


def test_files_are_kept_under_their_hash_and_no_other_name(host: GpuHost, tmp_path: Path) -> None:
    contents = ContentStore(tmp_path / "driver")
    cubin = contents.put(b"code", "cubin")
    bundle = contents.put_bundle({"kernels": {"k": {"files": {"cubin": cubin}}}})  # type: ignore[typeddict-item]
    files = by_hash.files(contents, {"candidate": {"bundle": bundle}})
    assert files == [f"artefacts/{cubin}.cubin", f"bundles/{bundle}.json"] == host.missing(files)
    with pytest.raises(ValueError, match="is not what its name says"):
        host.put(files[0], b"other code")
    for file in files:
        host.put(file, by_hash.data(contents, file))
    assert host.missing(files) == [] and host.get(files[0]) == b"code"
