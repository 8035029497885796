"""What an agent can look at over MCP: what its candidate was compiled to, and the profile of that."""

from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client
from pgo_agent.agent.cli.mcp_server import built_kernels, worker

from tests.agent.cli.mcp_server import serving
from tests.agent.cli.mcp_server.serving import ADD, READS, SECRET, TARGET, call, judged

SPILLS = ADD.replace('{"BLOCK": 2048}, num_warps=8', '{"BLOCK": 8192}, num_warps=1, maxnreg=32')


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a client heard of a candidate that spills, and of one that tells what it reads in the box."""
    root = serving.folder(tmp_path_factory.mktemp("looked"))
    spy = ADD.replace("def kernel(x, y):", "def _launched(x, y):")
    spy = spy.replace("def reference", f"{READS.format(when='True').strip()}\n\n\ndef reference")

    async def talk(client: Client) -> dict[str, Any]:
        jobs = [(await call(client, "submit", target=TARGET, candidate=text))[0]["job"] for text in (SPILLS, spy)]
        results = [await judged(client, job) for job in jobs]
        label = results[0]["kernels"][0].partition("[")[2].partition("]")[0]
        profiles = [await profiled(client, job, label) for job, label in zip(jobs, (label, ""), strict=True)]
        return {"spills": results[0], "profile": profiles[0], "spy": profiles[1]}

    yield serving.by_stdio(root, talk)
    serving.kill(root, worker.MODULE)


async def profiled(client: Client, job: str, label: str) -> str:
    while True:
        said = await call(client, "profile", target=TARGET, candidate=job, configuration=label, wait_seconds=40)
        if said["state"] == "done":
            return str(said["text"])


def test_a_result_says_which_kernel_spills_and_how_much_and_where_to_look(heard: dict[str, Any]) -> None:
    worst, *_ = heard["spills"]["kernels"]
    assert worst.startswith("_add [BLOCK=8192 num_warps=1") and "32 registers a thread" in worst and "spills" in worst
    assert "profile" in heard["spills"]["note"]


def test_the_profile_of_a_job_is_that_of_the_candidate(heard: dict[str, Any]) -> None:
    assert "spill" in heard["profile"] and "tl.load(x_ptr + at" in heard["profile"]


def test_a_profile_prints_what_a_launcher_says_that_finds_no_held_out_case_in_its_box(heard: dict[str, Any]) -> None:
    assert b"HELD_OUT = {}".hex() in heard["spy"]
    assert SECRET.encode().hex() not in heard["spy"]


def test_notes_of_ptxas_are_told_in_words() -> None:
    static: Any = {"name": "_f", "registers": 168, "num_warps": 8, "shared": 64, "notes": ["C7510"]}
    said = built_kernels.said(static | {"spill_store_bytes": 660, "spill_load_bytes": 700}, "as written")
    assert "spills 660 B in stores and 700 B in loads" in said and "C7510 (tensor instructions are serialized)" in said
