"""A shelf after a power loss: what lost its end, or is gone, is neither believed nor in the way of making it again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox.bundle.store import Shelf
from pgo_agent.sandbox.errors import EnvironmentFault

DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "emptied": lambda p: p.write_bytes(b""),
    "changed": lambda p: p.write_bytes(p.read_bytes()[:-1] + b"?"),
    "gone": lambda p: p.unlink(),
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf")


def _kept(shelf: Shelf) -> tuple[dict[str, Any], str]:
    """A build with its artefact, and a bundle of it."""
    kernel = {"files": {"cubin": shelf.put(b"a cubin", "cubin")}}
    shelf.put_build("key", {"kernel": kernel, "code_id": "abc"})
    return kernel, shelf.put_bundle({"schema": 1, "kernels": {"key": kernel}, "plans": {}})


@every_damage
def test_a_damaged_artefact_is_not_handed_out_and_is_written_anew(shelf: Shelf, damage: Any) -> None:
    digest = shelf.put(b"a cubin", "cubin")
    damage(shelf.artefacts / f"{digest}.cubin")
    with pytest.raises(EnvironmentFault):
        shelf.get(digest, "cubin")
    shelf.put(b"a cubin", "cubin")
    assert shelf.get(digest, "cubin") == b"a cubin"


@every_damage
def test_a_damaged_bundle_is_not_handed_out_and_is_written_anew(shelf: Shelf, damage: Any) -> None:
    _, bundle = _kept(shelf)
    assert shelf.whole(bundle)
    before = shelf.manifest(bundle)
    damage(shelf.bundle(bundle))
    assert not shelf.whole(bundle)
    with pytest.raises(EnvironmentFault):
        shelf.manifest(bundle)
    assert shelf.put_bundle(before) == bundle and shelf.whole(bundle)


@every_damage
def test_a_bundle_with_a_damaged_artefact_is_not_whole(shelf: Shelf, damage: Any) -> None:
    kernel, bundle = _kept(shelf)
    damage(shelf.artefacts / f"{kernel['files']['cubin']}.cubin")
    assert not shelf.whole(bundle)


@every_damage
def test_a_damaged_build_is_unknown_and_is_recorded_anew(shelf: Shelf, damage: Any) -> None:
    _kept(shelf)
    damage(shelf.root / "builds" / "key.json")
    assert shelf.build("key") is None
    shelf.put_build("key", {"code_id": "new"})
    assert shelf.build("key") == {"code_id": "new"}


@every_damage
def test_a_build_with_a_damaged_artefact_is_unknown(shelf: Shelf, damage: Any) -> None:
    kernel, _ = _kept(shelf)
    damage(shelf.artefacts / f"{kernel['files']['cubin']}.cubin")
    assert shelf.build("key") is None


def test_sweeping_takes_what_killed_processes_left_and_nothing_else(shelf: Shelf) -> None:
    _, bundle = _kept(shelf)
    kept = sorted(p for p in shelf.root.rglob("*") if p.is_file())
    (shelf.artefacts / f".{'0' * 64}.cubin.5eed").write_bytes(b"half")
    (shelf.bundle(bundle).with_name(".b.json.5eed")).write_bytes(b"half")
    (shelf.root / "tmp" / "left" / "out").mkdir(parents=True)
    (shelf.root / "tmp" / "left" / "out" / "result.json").write_text("{}")
    shelf.sweep()
    assert sorted(p for p in shelf.root.rglob("*") if p.is_file()) == kept
    assert shelf.whole(bundle)


def test_what_one_workspace_builds_is_there_for_one_that_it_lends_to_wherever_both_move(shelf: Shelf) -> None:
    other = Shelf(shelf.root / "at-once" / "1")
    shelf.lend(other.root)
    _, bundle = _kept(other)
    assert shelf.whole(bundle) and shelf.build("key") == other.build("key") is not None
    moved = shelf.root.rename(shelf.root.with_name("moved"))
    assert Shelf(moved / "at-once" / "1").whole(bundle)


def test_sweeping_leaves_alone_what_another_workspace_may_be_writing(shelf: Shelf, tmp_path: Path) -> None:
    shelf.lend(tmp_path / "other")
    part = shelf.artefacts / f".{'0' * 64}.cubin.5eed"
    part.write_bytes(b"half")
    Shelf(tmp_path / "other").sweep()
    assert part.exists()


def test_a_workspace_keeps_what_it_has_of_its_own(shelf: Shelf, tmp_path: Path) -> None:
    other = Shelf(tmp_path / "other")
    _, bundle = _kept(other)
    shelf.lend(other.root)
    assert other.whole(bundle) and not shelf.bundle(bundle).exists()
