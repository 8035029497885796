"""A judge on a Ray cluster of several hosts, each a real process of Ray's on this machine; its GPUs are made up."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.judge.cluster.cluster_pool import ClusterPool
from pgo_agent.sandbox.judge.cluster.ray_cluster import Cluster, Node
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.questions import Hello

from tests.agent.many import Machine, overlapping
from tests.conftest import ROOT, TARGETS

ray = pytest.importorskip("ray", reason="Ray is not installed here")
ADD = target.read(TARGETS / "add.py")


class Hosts:
    """A cluster, and what its judge processes do."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster as Started

        self.machine = Machine(folder / "machine", 1)
        self.machine.control(seconds=0.2)
        self.machine.judges()  # writes the interpreter that stands for theirs
        self.started = Started(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
        self.count = itertools.count()
        self.events: list[dict[str, Any]] = []

    def pool(self, most: int | None = None) -> ClusterPool:
        made = ClusterPool(Cluster(self.started.address), ADD, arguments=self._arguments, most=most)
        made.begin(lambda kind, **fields: self.events.append({"type": kind, **fields}), lambda *_: None, ())
        return made

    def _arguments(self, node: Node, number: int) -> tuple[str, Gpu]:
        of = node.id or f"any-{next(self.count)}"
        return str(self.machine.folder / "python"), Gpu(f"GPU-{of}-{number}", str(number), "made up")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("cluster")
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)  # of its hosts, too
    made = Hosts(folder)
    yield made
    ray.shutdown()
    made.started.shutdown()
    os.environ.pop("XDG_RUNTIME_DIR") if before is None else os.environ.update(XDG_RUNTIME_DIR=before)


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()


def uuid(pool: ClusterPool) -> str:
    """Asks for nothing, and gives the GPU that answered."""
    pool.ask(Hello())
    return str(pool.environment.uuid)


@pytest.mark.slow
def test_without_a_gpu_in_the_cluster_it_is_said_and_nothing_is_left(hosts: Hosts) -> None:
    with pytest.raises(EnvironmentFault, match="has no GPU"):
        hosts.pool()


@pytest.mark.slow
def test_hosts_may_join_and_go_while_work_goes_on(hosts: Hosts) -> None:
    """Two hosts answer side by side; one is killed while it answers, and its question moves; a third joins."""
    first, second = (hosts.started.add_node(num_cpus=1, num_gpus=1) for _ in range(2))
    pool = hosts.pool()
    try:
        assert within(60, lambda: len(pool.all) == 2)
        found = dict(pool.together({str(i): lambda: uuid(pool) for i in range(6)}))
        assert len(found) == 6 and set(found.values()) == {j.gpu for j in pool.all}
        assert overlapping(hosts.machine.asked()) == []
        hosts.machine.control(seconds=3.0)
        later: dict[str, str] = {}
        work = threading.Thread(
            target=lambda: later.update(dict(pool.together({str(i): lambda: uuid(pool) for i in range(2)})))
        )
        asked = len(hosts.machine.asked())
        work.start()
        time.sleep(1.0)
        hosts.started.remove_node(second)
        hosts.machine.control(seconds=0.2)
        work.join(60)
        assert not work.is_alive() and set(later.values()) == {f"GPU-{first.node_id}-0"} and len(later) == 2
        assert any(e["type"] == "gpu.quarantined" and "is gone" in e["why"] for e in hosts.events)
        assert len(hosts.machine.asked()) >= asked + 2
        hosts.started.add_node(num_cpus=1, num_gpus=1)
        assert within(60, lambda: len(pool._left) == 2)
    finally:
        pool.close()
    pids = {a["process"] for a in hosts.machine.asked()}
    assert within(20, lambda: not any(Path(f"/proc/{p}").exists() for p in pids)), "a judge process is left"


@pytest.mark.slow
def test_runs_that_take_one_gpu_each_share_a_cluster(hosts: Hosts) -> None:
    node = hosts.started.add_node(num_cpus=1, num_gpus=2)
    pools = [hosts.pool(1) for _ in range(2)]
    assert [len(p.all) for p in pools] == [1, 1]
    assert {uuid(p) for p in pools} == {p.all[0].gpu for p in pools} and pools[0].all[0].gpu != pools[1].all[0].gpu
    for pool in pools:
        pool.close()
    hosts.started.remove_node(node)


WITHOUT_HEAD = """
import os, signal, sys, time
from pathlib import Path
from pgo_agent.sandbox.judge.cluster import cluster_pool
from tests.sandbox.judge.cluster.test_cluster_pool import Hosts, uuid

cluster_pool.HEADLESS = 5.0
hosts = Hosts(Path(sys.argv[1]))
hosts.started.add_node(num_cpus=1, num_gpus=1)
pool = hosts.pool()
hosts.started.head_node.kill_gcs_server()
try:
    while True:
        uuid(pool)
        time.sleep(0.5)
except KeyboardInterrupt:
    print(hosts.events[-1]["text"], flush=True)
    os._exit(0)  # Ray would wait for its head
"""


@pytest.mark.slow
def test_a_run_stops_by_itself_before_ray_ends_its_process_for_want_of_a_head(tmp_path: Path) -> None:
    env = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", WITHOUT_HEAD, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=100, check=False)
    assert done.returncode == 0 and "is gone for 5 s: the run stops" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("address", "fault", "said"),
    [
        ("nowhere", UsageFault, "names no HOST:PORT"),
        ("127.0.0.1:1", EnvironmentFault, "nothing answers at 127.0.0.1:1"),
    ],
)
def test_an_address_that_cannot_answer_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, address: str, fault: type[Exception], said: str
) -> None:
    from pgo_agent.sandbox.judge.cluster import ray_cluster

    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(fault, match=said):
        Cluster(address)
