"""What an agent can look at over MCP: what its candidate was compiled to, and the profile of that.

And where it can have a target written.
"""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from pgo_agent.agent.cli.mcp_server import built_kernels, cards, server, target_check, worker
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings

from tests.agent import facts
from tests.agent.cli.mcp_server import serving
from tests.agent.cli.mcp_server.serving import ADD, READS, SECRET, TARGET, call, judged, refused
from tests.shared_builds import lend

SPILLS = ADD.replace('{"BLOCK": 2048}, num_warps=8', '{"BLOCK": 8192}, num_warps=1, maxnreg=32')


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a client heard of a candidate that spills, and of one that tells what it reads in the box."""
    root = serving.folder(tmp_path_factory.mktemp("looked"))
    lend(root / "ws" / target_check.FOLDER)
    spy = ADD.replace("def kernel(x, y):", "def _launched(x, y):")
    spy = spy.replace("def reference", f"{READS.format(when='True').strip()}\n\n\ndef reference")

    async def talk(client: Client) -> dict[str, Any]:
        jobs = [(await call(client, "submit", target=TARGET, candidate=text))[0]["job"] for text in (SPILLS, spy)]
        results = [await judged(client, job) for job in jobs]
        label = results[0]["kernels"][0].partition("[")[2].partition("]")[0]
        checked = await done(client, "init", file=TARGET, check=True)  # while the worker holds the workspace
        profiles = [await profiled(client, job, label) for job, label in zip(jobs, (label, ""), strict=True)]
        return {"spills": results[0], "profile": profiles[0], "spy": profiles[1], "checked": checked}

    yield serving.by_stdio(root, talk)
    serving.kill(root, worker.MODULE)


async def profiled(client: Client, job: str, label: str) -> str:
    return await done(client, "profile", candidate=job, configuration=label)


async def done(client: Client, tool: str, **values: Any) -> str:
    while True:
        said = await call(client, tool, **values, wait_seconds=40)
        if said["state"] == "done":
            return str(said["text"])


@pytest.mark.slow
def test_a_target_is_checked_while_its_candidates_are_judged(heard: dict[str, Any]) -> None:
    said = heard["checked"]
    assert said.startswith("no_change") and "checked: 2 small cases" in said, said
    assert SECRET not in said and "allowed" not in said and "held" not in said


@pytest.mark.slow
def test_a_result_says_which_kernel_spills_and_how_much_and_where_to_look(heard: dict[str, Any]) -> None:
    worst, *_ = heard["spills"]["kernels"]
    assert worst.startswith("_add [BLOCK=8192 num_warps=1") and "32 registers a thread" in worst and "spills" in worst
    assert "profile" in heard["spills"]["note"]


@pytest.mark.slow
def test_the_profile_of_a_job_is_that_of_the_candidate(heard: dict[str, Any]) -> None:
    assert "spill" in heard["profile"] and "tl.load(x_ptr + at" in heard["profile"]


@pytest.mark.slow
def test_a_profile_prints_what_a_launcher_says_that_finds_no_held_out_case_in_its_box(heard: dict[str, Any]) -> None:
    assert b"HELD_OUT = {}".hex() in heard["spy"]
    assert SECRET.encode().hex() not in heard["spy"]


def test_notes_of_ptxas_are_told_in_words() -> None:
    static: Any = {"name": "_f", "registers": 168, "num_warps": 8, "shared": 64, "notes": ["C7510"]}
    said = built_kernels.said(static | {"spill_store_bytes": 660, "spill_load_bytes": 700})
    assert "spills 660 B in stores and 700 B in loads" in said and "C7510 (tensor instructions are serialized)" in said


def test_every_card_is_listed_and_can_be_read(tmp_path: Path) -> None:
    async def talk(client: Client) -> tuple[set[str], str, dict[str, str]]:
        known = {str(r.uri) for r in (await client.list_resources()).resources}
        return known, await read(client, "pgo://cards"), {uri: await read(client, uri) for uri in known}

    known, listed, texts = talked(tmp_path, talk)
    assert {f"cards/{name}" for name in cards.WHEN} == set(facts.names("cards"))
    assert known == {"pgo://cards", *(line.partition(": ")[0] for line in listed.splitlines())}
    assert "warpgroup_mma" in texts["pgo://card/gluon"] and "bytes in flight" in texts["pgo://card/memory_bound"]


def test_the_kernel_of_a_file_is_read_by_its_name_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    async def talk(client: Client) -> list[str]:
        return [await read(client, f"pgo://{what}") for what in ("kernel/add", "kernel/add.py", "kernel/no", "card/no")]

    by_name, by_file, gone, nothing = talked(tmp_path, talk)
    assert "def kernel(x, y)" in by_name and by_name == by_file
    assert "there is no file no" in gone and "pgo://cards" in nothing


async def read(client: Client, uri: str) -> str:
    """Return the text of a resource, or of the error."""
    try:
        return str(getattr((await client.read_resource(uri)).contents[0], "text", ""))
    except MCPError as e:
        return str(e)


def talked(root: Path, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    tools = server.Tools(Store(serving.folder(root) / "ws"), root, RunSettings(judge="cpu"), 60.0)

    async def go() -> Any:
        async with Client(server.made(tools)) as client:
            return await talk(client)

    try:
        return anyio.run(go)
    finally:
        tools.store.close()


def test_what_is_marked_in_a_target_is_told_but_for_its_held_out_cases(tmp_path: Path) -> None:
    async def talk(client: Client) -> str:
        text = ADD.replace("n=1000)}", "n=1000)}  # to write").replace("n=9_991)}", "n=9_991)}  # to write")
        (tmp_path / "marked.py").write_text(text)
        return str((await call(client, "init", file="marked", check=True))["text"])

    said = talked(tmp_path, talk)
    assert said.startswith("to write: line 36: SMALL") and "9_991" not in said


def test_a_target_is_written_nowhere_where_it_would_be_run_or_read_as_something_else(tmp_path: Path) -> None:
    async def talk(client: Client) -> list[str]:
        places = (".git/hooks/pre-commit", ".hidden/a.py", "ws/evil.py", "notes.txt", "../a.py")
        return [await refused(client, "init", file=TARGET, call="kernel(1, 2)", output=p) for p in places]

    assert all("no place for a target" in r or "outside of the folder" in r for r in talked(tmp_path, talk))


@pytest.mark.slow
def test_what_configurations_have_in_common_is_told_once(heard: dict[str, Any]) -> None:
    first, *others = heard["spills"]["kernels"]
    assert [line.partition("]")[0] for line in others] == ["_add [BLOCK=1024 num_warps=4 num_stages=3"]
    assert "] and" not in first
