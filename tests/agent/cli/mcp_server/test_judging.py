"""What agents submit over MCP is judged, recorded as a run, and told as a model may hear it."""

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from pgo_agent.agent.cli.mcp_server import worker
from pgo_agent.agent.run import ttgir_files
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Kind
from pgo_agent.agent.run.settings import STATES
from pgo_agent.agent.views.live import dashboard, snapshot
from pgo_agent.sandbox.gate.reason import FAILS

from tests.agent.cli.mcp_server import serving
from tests.agent.cli.mcp_server.serving import READS, RIGHT, SECRET, TARGET, WRONG, call, judged, refused
from tests.agent.command_line import pgo
from tests.agent.loopback import edit

pytestmark = pytest.mark.long  # a run that is judged in for half a minute
LISTED = '{"_add": [{"BLOCK": 256, "num_warps": 2}]}'


@pytest.fixture(scope="module")
def results(url: str) -> dict[str, Any]:
    """What a client heard that submitted a right and a wrong kernel."""

    async def talk(client: Client) -> dict[str, Any]:
        (right,) = await call(client, "submit", target=TARGET, candidate=RIGHT, hypothesis="Longer blocks.")
        (wrong,) = await call(client, "submit", target=TARGET, candidate=WRONG)
        heard: list[str] = []

        async def progress(_done: float, _of: float | None, said: str | None) -> None:
            heard.append(said or "")

        await client.call_tool("status", {"job": right["job"], "wait_seconds": 20}, progress_callback=progress)
        (listed,) = await call(client, "submit", target=TARGET, candidate=LISTED)
        known = [await judged(client, job["job"]) for job in (right, wrong)]
        (again,) = await call(client, "submit", target=TARGET, candidate=f"# the same\n{RIGHT}")
        return {
            "progress": heard,
            "jobs": [result["job"] for result in known],
            "again": await judged(client, again["job"]),
            "listed": await judged(client, listed["job"]),
            "right": await judged(client, right["job"]),
            "wrong": await judged(client, wrong["job"]),
            "baselines": await call(client, "baselines", target=TARGET),
            "history": await call(client, "history", target=TARGET),
            "report": await call(client, "report", run=right["job"].split("/")[0]),
        }

    return dict(serving.by_http(url, talk))


def test_a_right_kernel_is_checked_and_without_a_gpu_nothing_is_called_faster(results: dict[str, Any]) -> None:
    right = results["right"]
    assert right["verdict"] == "checked" and right["checked"] and not right["over"] and "no GPU" in right["note"]


def test_a_result_says_which_races_were_looked_for_and_which_were_not(results: dict[str, Any]) -> None:
    said = results["right"]["races"]
    assert "simulation of barriers" in said and "none found" in said and "not on a GPU" in said


def test_a_wrong_kernel_is_refused_with_the_stage_and_the_reason(results: dict[str, Any]) -> None:
    wrong = results["wrong"]
    assert (wrong["verdict"], wrong["stage"]) == ("wrong", "interpreter") and "error" in wrong["reason"]


def test_no_answer_tells_of_what_is_held_out(results: dict[str, Any]) -> None:
    said = json.dumps(results)
    assert f'"{SECRET}' not in said and f" {SECRET}" not in said and "held" not in said.lower()


def test_a_client_that_asks_is_told_how_far_it_is(results: dict[str, Any]) -> None:
    begins = ("building the kernel as shipped", "checking the kernel")  # the first may last less than a look does
    assert any(phase in said for said in results["progress"] for phase in begins), results["progress"]


def test_the_baselines_name_every_public_case(results: dict[str, Any]) -> None:
    assert [c["case"] for c in results["baselines"]["cases"]] == ["1m", "16m"]


def test_history_tells_the_next_agent_what_failed_by_its_job_and_in_whole_lines(results: dict[str, Any]) -> None:
    wrong, right = (line for line in results["history"] if line.partition(",")[0] in results["jobs"])
    assert wrong.startswith(results["wrong"]["job"]) and wrong.endswith(results["wrong"]["reason"])
    assert 'whole kernel, "Longer blocks."' in right and "edit of" not in right


def test_launch_configurations_are_taken_as_they_are_written_down(results: dict[str, Any]) -> None:
    assert results["listed"]["kernels"][0].startswith("_add [BLOCK=256 num_warps=2")
    assert any("launch configurations of shipped" in line for line in results["history"])


def test_the_same_code_under_another_text_is_told_with_the_verdict_of_the_first(results: dict[str, Any]) -> None:
    again = results["again"]
    assert again["verdict"] == "no_change" and f"of {results['right']['job']}" in again["note"]
    assert "checked: right on" in again["note"] and again["reason"].endswith("which is checked")


def test_it_is_recorded_as_a_run_of_its_author(root: Path, results: dict[str, Any]) -> None:
    store = Store(root / "ws")
    candidates = store.candidates(results["report"]["run"])
    assert len(candidates) == 4 and all(c.author.endswith("by MCP") and c.by == c.author for c in candidates)
    store.close()


def test_a_person_sees_it_in_the_session_and_in_the_report_with_its_author(root: Path, results: dict[str, Any]) -> None:
    run = results["report"]["run"]
    report = pgo("report", run, "--markdown", "-", "--store", root / "ws", cwd=root).out
    assert "whole kernel, from mcp 0.1.0, by MCP: Longer blocks." in report
    with closing(Store(root / "ws")) as store:
        seen = snapshot.take(store, run)
    lines = "\n".join(line.plain for line in dashboard.lines(seen, (), 160, 40))
    assert "mcp 0.1.0," in lines and "launch configurations of shipped" in lines and "0 of 12 candidates" in lines


def test_ten_calls_at_once_of_one_text_are_one_candidate(url: str) -> None:
    async def talk(client: Client) -> list[Any]:
        heard: list[Any] = []

        async def one() -> None:
            heard.append(await call(client, "submit", target=TARGET, candidate=WRONG.replace("- tl", "* tl")))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(one)
        return heard

    heard = serving.by_http(url, talk)
    assert len(heard) == 10 and len({h[0]["job"] for h in heard}) == 1


def test_a_text_that_was_submitted_twice_ends_no_run(root: Path, results: dict[str, Any]) -> None:
    run = results["report"]["run"]
    with closing(Store(root / "ws")) as store:
        (first, *_) = user_requests.of(store, run, Kind.SUBMIT)
        again = user_requests.add(store, run, Kind.SUBMIT, first.body)  # as a server of before could
        until = time.monotonic() + 120
        while again in {s.n for s in user_requests.waiting(store, run)}:
            assert time.monotonic() < until, serving.everything(root)
            time.sleep(0.1)
        time.sleep(1.0)
        assert store.run(run).state not in STATES


def test_a_second_server_of_the_workspace_joins_the_open_run(root: Path, results: dict[str, Any]) -> None:
    async def talk(client: Client) -> Any:
        return await call(client, "submit", target=TARGET, candidate=WRONG.replace("- tl", "+ 2 * tl"))

    assert serving.by_stdio(root, talk)[0]["job"].startswith(results["report"]["run"] + "/")


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a path outside": ({"target": "/etc/passwd", "candidate": RIGHT}, "outside of the folder"),
    "a way up": ({"target": "../../etc/passwd", "candidate": RIGHT}, "outside of the folder"),
    "no path at all": ({"target": "a\0b", "candidate": RIGHT}, "no path"),
    "a file that is not there": ({"target": "none.py", "candidate": RIGHT}, "no file"),
    "five megabytes": ({"target": TARGET, "candidate": "# " + "x" * 3_000_000}, "characters"),
    "nothing": ({"target": TARGET, "candidate": " \n"}, "nothing was sent"),
    "a character that ends a text of C": ({"target": TARGET, "candidate": f"{RIGHT}\0"}, "character NUL"),
    "a kernel with a slip": ({"target": TARGET, "candidate": RIGHT.replace("z = torch", "z == = torch")}, ".py:19 is"),
    "code in 5000 brackets": (
        {"target": TARGET, "candidate": f"{RIGHT}\nx = {'(' * 5000}1{')' * 5000}"},
        "too many nes",
    ),
    "configurations of nobody": ({"target": TARGET, "candidate": '{"_sub": [{"BLOCK": 128}]}'}, "_sub"),
    "part of a line": ({"target": TARGET, "candidate": edit("n < 3", "n")}, "(whole lines are compared)"),
    "no kernel": ({"target": TARGET, "candidate": "please make it fast"}, "no code found"),
    "another contract": ({"target": TARGET, "candidate": RIGHT.replace("return x + y", "return x")}, "reference"),
    "the kernel as shipped": ({"target": TARGET, "candidate": serving.ADD}, "as shipped"),
    "an edit of nobody's": ({"target": TARGET, "candidate": RIGHT, "of": "0123"}, "`report` lists them"),
}


def test_what_cannot_be_judged_is_refused_in_words_and_the_server_lives_on(url: str) -> None:
    async def talk(client: Client) -> dict[str, str]:
        heard = {name: await refused(client, "submit", **values) for name, (values, _) in HOSTILE.items()}
        heard["a job of nobody's"] = await refused(client, "status", job="x/../../y")
        heard["nothing accepted"] = await refused(client, "apply", run="last")
        await call(client, "baselines", target=TARGET)
        return heard

    heard = serving.by_http(url, talk)
    assert {name: said in heard[name] for name, (_, said) in HOSTILE.items()} == dict.fromkeys(HOSTILE, True), heard
    assert "there is no job" in heard["a job of nobody's"] and "no accepted candidate" in heard["nothing accepted"]


@pytest.mark.parametrize("token", ["", "Bearer another"])
def test_without_the_token_nothing_is_served(url: str, token: str) -> None:
    answer = httpx2.post(
        url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={"Authorization": token}
    )
    assert answer.status_code == 401


def test_what_was_submitted_is_judged_when_client_and_server_are_killed(tmp_path: Path) -> None:
    root = serving.folder(tmp_path)

    async def talk(client: Client) -> Any:
        (job,) = await call(client, "submit", target=TARGET, candidate=WRONG)
        serving.kill(root, "mcp")  # the server
        return job["job"]

    with serving.http(root) as served:
        run, candidate = str(serving.by_http(served, talk)).split("/")
    store, until = Store(root / "ws"), time.monotonic() + 120
    while store.candidates(run) == [] or store.candidate(run, candidate).verdict is None:
        assert time.monotonic() < until, serving.everything(root)
        time.sleep(0.5)
    assert store.candidate(run, candidate).verdict == "wrong"
    serving.kill(root, worker.MODULE)
    store.close()


@pytest.mark.parametrize("when", ["True", "x.numel() == 2048"], ids=["traced", "interpreted"])
def test_what_an_exception_says_of_the_box_tells_no_held_out_case(url: str, when: str) -> None:
    text = RIGHT.replace("4096}", "8192}").replace("def kernel(x, y):", "def _launched(x, y):")  # no known code
    spy = text.replace("def reference", f"{READS.format(when=when).strip()}\n\n\ndef reference")

    async def talk(client: Client) -> Any:
        (job,) = await call(client, "submit", target=TARGET, candidate=spy)
        return await judged(client, job["job"])

    said = serving.by_http(url, talk)
    assert said["verdict"] not in ("checked", "accepted") and "48454c445f4f5554" in said["reason"], said
    assert SECRET.encode().hex() not in said["reason"] and "9991" not in said["reason"], said


def test_the_box_in_which_small_cases_are_interpreted_holds_no_other_case(url: str) -> None:
    reads = """
def kernel(x, y):
    if x.numel() == 2048:
        import pathlib
        told = pathlib.Path("request.json").read_text()
        raise ValueError(told[max(told.find("HELD_OUT"), 0) :][:200].encode().hex())
    return _launched(x, y)
"""
    text = RIGHT.replace("4096}", "256}, num_stages=2").replace("def kernel(x, y):", "def _launched(x, y):")
    spy = text.replace("def reference", f"{reads.strip()}\n\n\ndef reference")

    async def talk(client: Client) -> Any:
        (job,) = await call(client, "submit", target=TARGET, candidate=spy)
        return await judged(client, job["job"])

    said = serving.by_http(url, talk)
    assert (said["verdict"], said["stage"]) == ("build_error", "interpreter") and b'"c'.hex() in said["reason"], said
    assert SECRET.encode().hex() not in said["reason"] and b"9991".hex() not in said["reason"], said


def test_a_held_out_case_that_is_interpreted_counts_and_of_a_wrong_one_no_more_is_said(root: Path, url: str) -> None:
    text, short = (RIGHT.replace("4096}", f"{block}}}, num_stages=2") for block in (128, 64))
    texts = text, short.replace("(x, y, z, x.numel())", "(x, y, z, x.numel() - (x.numel() == 9_991))")

    async def talk(client: Client) -> list[Any]:
        jobs = [(await call(client, "submit", target=TARGET, candidate=t))[0]["job"] for t in texts]
        return [await judged(client, job) for job in jobs]

    right, wrong = serving.by_http(url, talk)
    assert (wrong["verdict"], wrong["reason"]) == ("wrong", FAILS) and right["verdict"] == "checked"
    with closing(Store(root / "ws")) as store:
        reasons = [store.candidate(*r["job"].split("/")).reason or "" for r in (right, wrong)]
    assert "1 held-out case" in reasons[0] and reasons[1].startswith("a held-out case: output 0"), reasons


def test_nor_does_a_rule_that_a_launcher_breaks_where_it_meets_one(url: str) -> None:
    """Which rule, and in which words, would be its choice: the name of an operator, or of a kernel."""
    spy = RIGHT.replace("4096}", "512}, num_stages=2").replace(
        "    return z\n", "    return z.cos() if HELD_OUT else z\n"
    )

    async def talk(client: Client) -> Any:
        (job,) = await call(client, "submit", target=TARGET, candidate=spy)
        return await judged(client, job["job"])

    said = serving.by_http(url, talk)
    assert (said["verdict"], said["stage"], said["reason"]) == ("rejected", "screen", FAILS)


def test_nor_does_the_launcher_of_a_ttgir_that_fails_where_it_meets_one(root: Path, url: str, tmp_path: Path) -> None:
    text = RIGHT.replace("4096}", "1024}").replace("def kernel(x, y):", "def _launched(x, y):")
    reads = READS.format(when="HELD_OUT and x.numel() != 1 << 20").replace(' + str(globals().get("HELD_OUT"))', "")
    spy = text.replace("def reference", f"{reads.strip()}\n\n\ndef reference")

    async def talk(client: Client) -> Any:
        (job,) = await call(client, "submit", target=TARGET, candidate=spy)
        run, launcher = job["job"].split("/")
        source = await judged(client, job["job"])
        with closing(Store(root / "ws")) as store:
            ttgir = ttgir_files.write(store, run, launcher, tmp_path)[0].read_text()
        (job,) = await call(client, "submit", target=TARGET, candidate=ttgir, of=job["job"])
        return source, await judged(client, job["job"])

    for said in serving.by_http(url, talk):
        assert (said["verdict"], said["reason"]) == ("build_error", FAILS)


def test_first_calls_at_once_begin_one_run(url: str, root: Path) -> None:
    """The last test of this file: its run would keep the worker from those of others."""
    (root / "other.py").write_text(serving.ADD.replace("BLOCK", "BLOCK_SIZE"))

    async def talk(client: Client) -> set[str]:
        begun = set[str]()

        async def one(n: int) -> None:
            text = WRONG.replace("- tl", f"- {n} * tl").replace("BLOCK", "BLOCK_SIZE")
            (job,) = await call(client, "submit", target="other.py", candidate=text)
            begun.add(job["job"].partition("/")[0])

        async with anyio.create_task_group() as tasks:
            for n in range(2, 6):
                tasks.start_soon(one, n)
        for run in begun:
            await call(client, "finish", run=run)
        return begun

    assert len(serving.by_http(url, talk)) == 1
