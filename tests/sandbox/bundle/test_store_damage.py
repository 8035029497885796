"""A shelf after a power loss: what lost its end, or is gone, is neither believed nor in the way of making it again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault

DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "emptied": lambda p: p.write_bytes(b""),
    "changed": lambda p: p.write_bytes(p.read_bytes()[:-1] + b"?"),
    "gone": lambda p: p.unlink(),
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@pytest.fixture
def contents(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "shelf")


def _kept(contents: ContentStore) -> tuple[dict[str, Any], str]:
    """A build with its artefact, and a bundle of it."""
    kernel = {"files": {"cubin": contents.put(b"a cubin", "cubin")}}
    contents.put_build("key", {"kernel": kernel, "code_id": "abc"})
    return kernel, contents.put_bundle({"schema": 1, "kernels": {"key": kernel}, "plans": {}})


@every_damage
def test_a_damaged_artefact_is_not_handed_out_and_is_written_anew(contents: ContentStore, damage: Any) -> None:
    digest = contents.put(b"a cubin", "cubin")
    damage(contents.artefacts / f"{digest}.cubin")
    with pytest.raises(EnvironmentFault):
        contents.get(digest, "cubin")
    contents.put(b"a cubin", "cubin")
    assert contents.get(digest, "cubin") == b"a cubin"


@every_damage
def test_a_damaged_bundle_is_not_handed_out_and_is_written_anew(contents: ContentStore, damage: Any) -> None:
    _, bundle = _kept(contents)
    assert contents.whole(bundle)
    before = contents.manifest(bundle)
    damage(contents.bundle(bundle))
    assert not contents.whole(bundle)
    with pytest.raises(EnvironmentFault):
        contents.manifest(bundle)
    assert contents.put_bundle(before) == bundle and contents.whole(bundle)


@every_damage
def test_a_bundle_with_a_damaged_artefact_is_not_whole(contents: ContentStore, damage: Any) -> None:
    kernel, bundle = _kept(contents)
    damage(contents.artefacts / f"{kernel['files']['cubin']}.cubin")
    assert not contents.whole(bundle)


@every_damage
def test_a_damaged_build_is_unknown_and_is_recorded_anew(contents: ContentStore, damage: Any) -> None:
    _kept(contents)
    damage(contents.root / "builds" / "key.json")
    assert contents.build("key") is None
    contents.put_build("key", {"code_id": "new"})
    assert contents.build("key") == {"code_id": "new"}


@every_damage
def test_a_build_with_a_damaged_artefact_is_unknown(contents: ContentStore, damage: Any) -> None:
    kernel, _ = _kept(contents)
    damage(contents.artefacts / f"{kernel['files']['cubin']}.cubin")
    assert contents.build("key") is None


def test_sweeping_takes_what_killed_processes_left_and_nothing_else(contents: ContentStore) -> None:
    _, bundle = _kept(contents)
    kept = sorted(p for p in contents.root.rglob("*") if p.is_file())
    (contents.artefacts / f".{'0' * 64}.cubin.5eed").write_bytes(b"half")
    (contents.bundle(bundle).with_name(".b.json.5eed")).write_bytes(b"half")
    (contents.root / "tmp" / "left" / "out").mkdir(parents=True)
    (contents.root / "tmp" / "left" / "out" / "result.json").write_text("{}")
    contents.sweep()
    assert sorted(p for p in contents.root.rglob("*") if p.is_file()) == kept
    assert contents.whole(bundle)


def test_what_one_workspace_builds_is_there_for_one_that_it_lends_to_wherever_both_move(contents: ContentStore) -> None:
    other = ContentStore(contents.root / "at-once" / "1")
    contents.lend(other.root)
    _, bundle = _kept(other)
    assert contents.whole(bundle) and contents.build("key") == other.build("key") is not None
    moved = contents.root.rename(contents.root.with_name("moved"))
    assert ContentStore(moved / "at-once" / "1").whole(bundle)


def test_sweeping_leaves_alone_what_another_workspace_may_be_writing(contents: ContentStore, tmp_path: Path) -> None:
    contents.lend(tmp_path / "other")
    part = contents.artefacts / f".{'0' * 64}.cubin.5eed"
    part.write_bytes(b"half")
    ContentStore(tmp_path / "other").sweep()
    assert part.exists()


def test_a_workspace_keeps_what_it_has_of_its_own(contents: ContentStore, tmp_path: Path) -> None:
    other = ContentStore(tmp_path / "other")
    _, bundle = _kept(other)
    contents.lend(other.root)
    assert other.whole(bundle) and not contents.bundle(bundle).exists()
