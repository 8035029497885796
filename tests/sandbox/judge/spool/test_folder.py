"""A spool whose folder is broken as copies by hand and strangers break it: nothing is lost, and nothing believed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.questions import Final
from pgo_agent.sandbox.judge.references import plan_ref
from pgo_agent.sandbox.judge.spool.client import Unanswered
from pgo_agent.sandbox.judge.spool.folder import (
    ANSWERS,
    ARTEFACTS,
    BUNDLES,
    FOLDERS,
    REQUESTS,
)

from tests.sandbox.judge.test_gpu_judge import write
from tests.sandbox.spooling import Spool

PICK = {"CASES/one": {"bundle": "0" * 64, "choice": "default"}}


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, write(tmp_path))


# copies by hand -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_folder_that_is_copied_there_and_back_is_one_folder(spool: Spool, tmp_path: Path) -> None:
    judge = spool.judge()
    there = Spool(tmp_path / "there", spool.subject)
    shutil.copytree(spool.root, there.root)
    there.once()
    shutil.copytree(there.root, spool.root, dirs_exist_ok=True)
    with pytest.raises(EnvironmentFault, match="has no GPU"):
        spool.begin(judge)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_half_a_request_is_none_until_the_rest_is_there(spool: Spool, keep: float) -> None:
    request = spool.stranger()
    path, whole = spool.asked(request), request.as_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    done = spool.once()
    assert "000001" in done.err and "cannot be answered yet: is not whole" in done.err
    assert spool.answer(request) is None
    path.write_bytes(whole)
    spool.once()
    assert spool.answer(request) is not None


@pytest.mark.parametrize("folder", [BUNDLES, ARTEFACTS])
@pytest.mark.parametrize("left", [None, b"", b"half"])
def test_a_request_waits_for_all_that_it_names(spool: Spool, folder: str, left: bytes | None) -> None:
    unknown = spool.unknown()
    judge, side = spool.judge(subject=unknown), {"CASES/one": plan_ref(spool.contents, spool.bundle(), "default")}
    with pytest.raises(Unanswered):
        judge.ask(Final({"shipped": side}, ("CASES/one",)))
    (file,) = (spool.root / folder).iterdir()
    whole = file.read_bytes()
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    said = spool.once().err
    assert f"{folder}/{file.name} is not {'whole' if left is not None else 'there'}" in said
    assert len(spool.folder.answered()) == 1  # hello
    file.write_bytes(whole)
    assert "final refused: the target" in spool.once().err


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_half_an_answer_is_none_until_the_rest_is_there(spool: Spool, keep: float) -> None:
    unknown = spool.unknown()
    judge = spool.judge(unknown)
    spool.once()
    (path,) = (spool.root / ANSWERS).iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(Unanswered):
        judge.wait()
    path.write_bytes(whole)
    with pytest.raises(EnvironmentFault, match="is not allowed here"):
        spool.judge(unknown)


def test_half_an_answer_on_the_answering_side_is_answered_again(spool: Spool) -> None:
    request = spool.stranger()
    spool.once()
    path = spool.root / ANSWERS / f"{request.sha}.json"
    path.write_bytes(path.read_bytes()[:-9])
    spool.once()
    assert spool.answer(request) is not None


# strangers ------------------------------------------------------------------------------------------------------------


def put(spool: Spool, **changes: Any) -> str:
    """A request with other fields, under its right name; gives what it is called."""
    said = json.loads(spool.stranger().as_bytes()) | changes
    data = json.dumps(said).encode()
    spool.folder.ask(data)
    return next(a.sha for a in spool.folder.requests() if spool.folder.request(a) == data)


HOSTILE = {
    "a command that opens paths": {"do": "open", "fields": {"path": "/etc/passwd"}},
    "a candidate's source": {"do": "check", "fields": {"source": "import os"}},
    "an attribute of the judge": {"do": "__init__", "fields": {}},
    "a path for a bundle": {"do": "peaks", "fields": {"case": "a", "bundle": {"manifest": "/etc/passwd"}}},
    "a bundle of another folder": {"files": ["../../etc/passwd"]},
    "a content store to write on": {"do": "peaks", "fields": {"case": "a", "shelf": "/tmp"}},
    "no fields": {"do": "race", "fields": {}},
    "a bundle that is not brought": {"do": "final", "fields": {"sides": {"shipped": PICK}, "cases": ["CASES/one"]}},
    "unguarded launches": {
        "do": "race",
        "fields": {"bundle": "0" * 64, "case": "a", "choice": "b", "stress": True, "unguarded": True},
    },
    "endless launches": {
        "do": "timeline",
        "fields": {"case": "a", "kernel": "0" * 64, "repeats": 1 << 40, "blocks": 1, "instrumented": 1, "plain": 1},
    },
    "another version": {"schema": 99},
    "a name of a megabyte": {"run": "x" * (1 << 20)},
    "lists in lists": {"fields": {"a": [[[[[[[[]]]]]]]]}},
}


def test_what_is_no_request_is_refused_and_the_next_one_is_answered(spool: Spool) -> None:
    names = {what: put(spool, **changes) for what, changes in HOSTILE.items()}
    (spool.root / REQUESTS / "000000-not-a-request.json").write_text("{}")
    done = spool.once()
    assert done.code == 0, done.err
    for what, sha in names.items():
        said = json.loads(spool.folder.answer(sha))
        assert said["kind"] == "refused" and "this is no request" in said["said"]["message"], what
    assert "is not allowed here" in json.loads(spool.folder.answer(spool.stranger().sha))["said"]["message"]


def test_a_deeply_nested_request_ends_no_worker(spool: Spool) -> None:
    spool.folder.make()
    spool.folder.ask(b'{"a":' * 100_000)
    assert "this is no request: not JSON" in spool.once().err


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_is_a_link_is_not_followed(spool: Spool, tmp_path: Path, folder: str) -> None:
    spool.stranger()
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(spool.root / folder)
    (spool.root / folder).symlink_to(tmp_path / "elsewhere")
    spool.once()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_request_that_is_a_link_a_pipe_or_too_large_is_never_read(spool: Spool, tmp_path: Path) -> None:
    requests = [spool.stranger(f"stranger-{i}") for i in range(3)]
    link, pipe, large = (spool.asked(r) for r in requests)
    for path in (link, pipe, large):
        path.rename(tmp_path / path.name)
    link.symlink_to(tmp_path / link.name)
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(1 << 40)
    assert spool.once().err.count("this is no request") == 3


@pytest.mark.parametrize("how", ["link", "pipe", "folder"])
def test_an_answer_that_is_no_plain_file_is_an_error_and_is_not_read(spool: Spool, tmp_path: Path, how: str) -> None:
    unknown = spool.unknown()
    spool.judge(unknown)
    spool.once()
    (path,) = (spool.root / ANSWERS).iterdir()
    path.rename(tmp_path / "kept")
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(tmp_path / "kept"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[how]()
    with pytest.raises(EnvironmentFault, match="is no plain file"):
        spool.judge(unknown)
