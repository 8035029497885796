"""Traces and compilations on the hosts of a Ray cluster come to what they come to here."""

from pathlib import Path

import pytest
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.judge.cluster import cluster_box
from pgo_agent.sandbox.judge.cluster.cluster_box import ClusterBox
from pgo_agent.sandbox.judge.cluster.ray_cluster import Cluster

from tests.sandbox.judge.cluster.test_cluster_pool import ADD, Hosts, hosts

__all__ = ["hosts"]


@pytest.mark.slow
def test_a_build_by_other_hosts_is_the_build_of_this_one(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cluster(hosts.started.address)
    here = box.choose()

    def built(place: Box, name: str) -> str:
        builder = Builder(ADD, devices.find("h200"), place, ContentStore(tmp_path / name))
        return builder.build(ADD.source, {"SMALL": None}, None, untrusted=True).bundle

    mine = built(here, "here")
    monkeypatch.setattr(Box, "run", lambda *_: pytest.fail("it was run here"))
    assert built(ClusterBox(here.kind, here.python), "there") == mine != ""


def test_a_host_of_another_triton_or_without_a_sandbox_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = cluster_box.Boxed("pgo_agent.sandbox.compiler", (), {}, 1.0, {}, isolates=True, triton="1.0")
    assert str(cluster_box.run(asked)["unfit"]).startswith("it has Triton 3.")
    monkeypatch.setattr(box, "choose", lambda: Box("none"))
    assert cluster_box.run(asked)["unfit"] == "it has no sandbox"


def test_what_a_host_sends_back_is_written_below_the_folder_alone(tmp_path: Path) -> None:
    cluster_box.put(tmp_path / "out", {"a": b"1", "deep/b": b"2", "../c": b"3", "/tmp/pgo-c": b"4"})
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == ["out/a", "out/deep/b"]
    assert not Path("/tmp/pgo-c").exists()
