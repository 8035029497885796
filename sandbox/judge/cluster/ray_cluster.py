"""Connects to a Ray cluster, says which hosts have GPUs, and starts an actor beside a GPU.

`local` starts a cluster of this machine alone; `auto` takes one that runs here; HOST:PORT is that of a head's GCS, for
a driver on a host of the cluster; //HOST:PORT is a Ray client's. Relies on Ray alone, and judges nothing.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

ANSWER_SECONDS = 20.0  # for an address
LOCAL, AUTO = "local", "auto"
INSTALL = "pip install 'pgo-agent[ray]'"


@dataclass(frozen=True)
class Node:
    """A host of the cluster."""

    id: str
    host: str
    gpus: int


ANY = Node("", "any host", 0)


class Cluster:
    """A connection, for as long as a run goes on."""

    def __init__(self, address: str) -> None:
        """Raises UsageFault for an address of another form or version, EnvironmentFault where nothing answers."""
        try:
            import ray
        except ImportError:
            raise EnvironmentFault("--judge ray: needs Ray, which is not installed", INSTALL) from None
        self._ray: Any = ray
        self.address = address
        if not ray.is_initialized():
            self._connect(address)

    def nodes(self) -> list[Node]:
        """Return the hosts that are there now and have GPUs."""
        listed: list[dict[str, Any]] = self._ray.nodes()
        found = [n for n in listed if n["Alive"]]
        return [
            Node(n["NodeID"], n["NodeManagerHostname"], int(n["Resources"]["GPU"]))
            for n in found
            if n["Resources"].get("GPU", 0) >= 1
        ]

    @property
    def cpus(self) -> int:
        """CPU cores of all hosts that are there now."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def actor(self, kind: type, node: Node, name: str, arguments: Sequence[object]) -> Any:
        """Start an actor with a GPU of a host, or of ANY that has a free one, and do not wait for it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = "DEFAULT" if node is ANY else NodeAffinitySchedulingStrategy(node.id, soft=False)
        remote: Any = self._ray.remote(kind).options(
            num_gpus=1, num_cpus=0, max_concurrency=4, max_restarts=0, name=name, scheduling_strategy=there
        )
        return remote.remote(*arguments)

    def answered(self, refs: Sequence[Any], seconds: float) -> list[Any]:
        """Return those of some answers that are there within `seconds`."""
        return list(self._ray.wait(list(refs), num_returns=len(refs), timeout=seconds)[0]) if refs else []

    def get(self, ref: Any) -> Any:
        """Return an answer that is there. Raises what Ray raises."""
        return self._ray.get(ref)

    @property
    def head(self) -> str:
        """Return where the head's GCS listens; empty behind a Ray client, which tells of a lost head itself."""
        if self.address.startswith("//"):
            return ""
        return str(self._ray.get_runtime_context().gcs_address)

    def close(self) -> None:
        self._ray.shutdown()

    def _connect(self, address: str) -> None:
        quiet = {"namespace": "pgo-agent", "log_to_driver": False, "logging_level": "ERROR"}
        if address == LOCAL:
            self._try(lambda: self._ray.init(include_dashboard=False, **quiet))
            return
        if address != AUTO:
            _must_answer(address.removeprefix("//"))
        full = f"ray:{address}" if address.startswith("//") else address
        self._try(lambda: self._ray.init(address=full, **quiet))

    def _try(self, connect: Callable[[], object]) -> None:
        try:
            connect()
        except RuntimeError as e:
            if "ersion mismatch" in str(e):
                hint = "install the cluster's versions of ray and Python here, or run on a host of it"
                raise UsageFault(f"the cluster has other versions: {_line(e)}", hint) from None
            raise EnvironmentFault(f"Ray did not start: {_line(e)}", "see `ray status` there") from None
        except (ConnectionError, TimeoutError, ValueError, OSError) as e:
            raise EnvironmentFault(f"no Ray cluster answers at {self.address}: {_line(e)}", _help()) from None


def _must_answer(address: str) -> None:
    """Raise EnvironmentFault where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageFault(
            f"'ray:{address}' names no HOST:PORT", "give ray:HOST:6379, ray:auto, ray:local or ray://HOST:10001"
        )
    deadline, why = time.monotonic() + ANSWER_SECONDS, ""
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, int(port)), timeout=5):
                return
        except OSError as e:
            why = str(e)
            time.sleep(1)
    raise EnvironmentFault(f"nothing answers at {address} in {ANSWER_SECONDS:.0f} s: {why}", _help())


def listens(address: str) -> bool:
    """Return whether something takes connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
        return True
    return False


def _help() -> str:
    here = os.environ.get("RAY_ADDRESS")
    known = f" (RAY_ADDRESS is {here})" if here else ""
    return f"`ray status` on its head says whether it runs{known}; --judge ray:local starts one of this machine"


def _line(e: BaseException) -> str:
    return " ".join(str(e).split())[:300]
