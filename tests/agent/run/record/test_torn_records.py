"""A workspace after a power loss: files that lost their ends, or are gone.

`resume` comes to the record of an undisturbed run, or says that the record is damaged; never anything else.
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.bundle.store import ContentStore

from tests.agent import breaking
from tests.agent.breaking import Whole
from tests.agent.command_line import Done, pgo, write
from tests.marks import first_of

many = int(os.environ.get("KILLS", 0)) // 5  # `make kills` cuts more often


def resumed(at: Path, folder: Path, damage: Callable[[Path], object]) -> Done:
    """`resume` on a copy of a workspace, with something done to it first. Where the run itself is lost: a new one."""
    shutil.copytree(at, folder / ".pgo-agent")
    damage(folder / ".pgo-agent")
    write(folder)
    done = pgo(*(breaking.RESUME if breaking.has_run(folder) else breaking.SHORT), cwd=folder)
    assert "Traceback" not in done.err, done.err
    return done


def cut(path: Path, share: float) -> None:
    """Takes the end of a file."""
    os.truncate(path, int(path.stat().st_size * share))


# the record -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", first_of(range(3 + many)))
def test_a_record_that_lost_its_last_transactions_is_completed(seed: int, whole: Whole, tmp_path: Path) -> None:
    share = random.Random(seed).random()
    done = resumed(whole.last, tmp_path, lambda w: cut(w / "pgo.db-wal", share))
    assert done.code == 0, done.err
    assert breaking.record(tmp_path) == whole.record


def garbled(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(4096))


RECORD: dict[str, Callable[[Path], object]] = {
    "cut": lambda p: os.truncate(p, p.stat().st_size // 2 + 100),
    "garbled": garbled,
}


@pytest.mark.parametrize("damage", RECORD.values(), ids=RECORD)
def test_a_record_that_cannot_be_read_is_named_and_left_as_it_is(damage: Any, whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.folder / ".pgo-agent", tmp_path / ".pgo-agent")
    path = tmp_path / ".pgo-agent" / "pgo.db"
    damage(path)
    write(tmp_path)
    left = path.read_bytes()
    for args in (("resume",), ("runs",), ("show",), ("show", "last", "c"), breaking.SHORT):
        done = pgo(*args, cwd=tmp_path)
        assert done.code == 3 and "pgo.db is damaged" in done.err and "-> " in done.err, (args, done)
        assert "Traceback" not in done.err
    assert path.read_bytes() == left


# the content store ----------------------------------------------------------------------------------------------------


def damage_shelf(workspace: Path) -> None:
    """Something happens to every object, and rubbish is left beside them."""
    moments = random.Random(1)
    for folder in ("artefacts", "bundles", "builds"):
        for path in sorted((workspace / folder).iterdir()):
            how = moments.choice(("gone", "emptied", "cut", "changed"))
            if how == "gone":
                path.unlink()
            elif how == "changed":
                path.write_bytes(path.read_bytes().replace(b"a", b"b").replace(b"0", b"1"))
            else:
                cut(path, 0.0 if how == "emptied" else moments.random())
        (workspace / folder / f".{'0' * 64}.cubin.part").write_bytes(b"half")
    (workspace / "tmp" / "left").mkdir(parents=True)


@pytest.mark.slow
def test_a_damaged_shelf_is_built_again_and_not_believed(whole: Whole, tmp_path: Path) -> None:
    done = resumed(whole.first, tmp_path, damage_shelf)
    assert done.code == 0, done.err
    assert breaking.record(tmp_path) == whole.record
    contents = ContentStore(tmp_path / ".pgo-agent")
    assert all(contents.whole(p.stem) for p in (whole.folder / ".pgo-agent" / "bundles").iterdir())
    assert list(contents.root.rglob(".*")) == [] and list((contents.root / "tmp").iterdir()) == []


def test_showing_what_is_damaged_says_so_and_what_makes_it_again(whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.folder / ".pgo-agent", tmp_path / ".pgo-agent")
    damage_shelf(tmp_path / ".pgo-agent")
    one = Store(tmp_path / ".pgo-agent", create=False).candidates(Store(tmp_path / ".pgo-agent").runs()[0].id)[0].id
    assert pgo("show", cwd=tmp_path).code == 0
    done = pgo("diff", "shipped", one, cwd=tmp_path)
    assert done.code == 3 and "makes it again" in done.err and "Traceback" not in done.err
