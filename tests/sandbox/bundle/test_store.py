"""The content-addressed shelf under killed writers, rivals that write the same thing, and disks that refuse.

Real processes, and where the machine lets us mount one, a real disk that is full or read-only.
"""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.bundle.store import Shelf, canonical
from pgo_agent.sandbox.errors import EnvironmentFault

WRITER = """\
import os, sys
from pathlib import Path
from pgo_agent.sandbox.bundle.store import Shelf
shelf = Shelf(Path(sys.argv[1]))
for i in range(int(sys.argv[2])):
    shelf.put((str(i) if len(sys.argv) > 3 else os.urandom(8).hex()).encode() * (1 << 18), "bin")
    print(i, flush=True)
"""
DIG = """\
import os, sys
os.chdir(sys.argv[1])
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf")


def _visible(shelf: Shelf) -> list[Path]:
    """What a reader can find: files that are not being written aside."""
    return [p for p in shelf.artefacts.iterdir() if not p.name.startswith(".")]


def _writer(shelf: Shelf, *args: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WRITER, str(shelf.root), *args], stdout=subprocess.PIPE)


# artefacts ------------------------------------------------------------------------------------------------------------


def test_what_was_put_can_be_had_by_its_hash(shelf: Shelf) -> None:
    digest = shelf.put(b"cubin", "cubin")
    assert digest == hashlib.sha256(b"cubin").hexdigest()
    assert shelf.get(digest, "cubin") == b"cubin"


def test_an_empty_artefact_is_one(shelf: Shelf) -> None:
    assert shelf.get(shelf.put(b"", "ptx"), "ptx") == b""


def test_the_same_content_is_stored_once(shelf: Shelf) -> None:
    shelf.put(b"cubin", "cubin")
    (path,) = _visible(shelf)
    before = path.stat()
    shelf.put(b"cubin", "cubin")
    assert [p.stat() for p in _visible(shelf)] == [before]


def test_an_artefacts_file_is_named_by_its_content(shelf: Shelf) -> None:
    for i in range(8):
        shelf.put(bytes([i]) * i, "bin")
    assert all(p.stem == hashlib.sha256(p.read_bytes()).hexdigest() for p in _visible(shelf))


def test_a_hash_that_was_never_put_is_not_found(shelf: Shelf) -> None:
    with pytest.raises(EnvironmentFault, match=r"cannot read .*: No such file or directory"):
        shelf.get("0" * 64, "cubin")


# bundles and builds ---------------------------------------------------------------------------------------------------


def test_a_bundle_comes_back_as_it_was_put(shelf: Shelf) -> None:
    manifest = {"schema": 1, "kernels": {}, "plans": {"a": [1, None, "ü"]}}
    digest = shelf.put_bundle(manifest)
    assert shelf.manifest(digest) == manifest
    assert hashlib.sha256(shelf.bundle(digest).read_bytes()).hexdigest() == digest


def test_a_bundles_id_does_not_depend_on_the_order_of_its_fields(shelf: Shelf) -> None:
    assert shelf.put_bundle({"a": 1, "b": {"c": 2, "d": 3}}) == shelf.put_bundle({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_build_comes_back_under_its_key(shelf: Shelf) -> None:
    assert shelf.build("key") is None
    shelf.put_build("key", {"code_id": "abc"})
    assert shelf.build("key") == {"code_id": "abc"}


def test_a_builds_first_record_stays(shelf: Shelf) -> None:
    shelf.put_build("key", {"n": 1})
    shelf.put_build("key", {"n": 2})
    assert shelf.build("key") == {"n": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(value=JSON)
def test_the_canonical_form_reads_back_as_the_same_value(value: Any) -> None:
    assert json.loads(canonical(value)) == value
    assert canonical(json.loads(canonical(value))) == canonical(value)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_cannot_say_has_no_canonical_form(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"x": number})


def test_a_scratch_folder_is_gone_afterwards(shelf: Shelf) -> None:
    with shelf.scratch() as name:
        (Path(name) / "file").write_text("x")
    assert list((shelf.root / "tmp").iterdir()) == []


def test_a_scratch_folder_nested_deeper_than_pythons_recursion_is_gone_afterwards(shelf: Shelf) -> None:
    try:
        with shelf.scratch() as name:
            subprocess.run([sys.executable, "-c", DIG, name], check=True)
        assert list((shelf.root / "tmp").iterdir()) == []
    finally:
        subprocess.run(["rm", "-rf", shelf.root], check=True)


# nothing half-written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 2, 3, 5, 8])
def test_a_killed_writer_leaves_nothing_half_written_to_be_seen(shelf: Shelf, after: int) -> None:
    writer = _writer(shelf, "10000")
    assert writer.stdout is not None
    for _ in range(after):
        writer.stdout.readline()
    time.sleep(0.003 * after)  # somewhere in the next artefact of 4 MiB
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert len(_visible(shelf)) >= after
    assert all(p.stem == hashlib.sha256(p.read_bytes()).hexdigest() for p in _visible(shelf))


def test_a_reader_sees_whole_files_while_a_writer_works(shelf: Shelf) -> None:
    shelf.artefacts.mkdir(parents=True)
    writer, seen = _writer(shelf, "20"), dict[str, bool]()
    while writer.poll() is None:
        for path in _visible(shelf):
            if path.name not in seen:
                seen[path.name] = path.stem == hashlib.sha256(path.read_bytes()).hexdigest()
    writer.communicate()
    assert seen
    assert all(seen.values())


def test_rivals_that_write_the_same_artefacts_all_succeed(shelf: Shelf) -> None:
    writers = [_writer(shelf, "8", "same") for _ in range(4)]
    for writer in writers:
        writer.communicate(timeout=60)
    assert [w.returncode for w in writers] == [0] * 4
    assert len(list(shelf.artefacts.iterdir())) == 8


# disks that refuse ----------------------------------------------------------------------------------------------------


def _put(shelf: Shelf) -> None:
    shelf.put(b"x", "bin")


def _put_bundle(shelf: Shelf) -> None:
    shelf.put_bundle({})


def _put_build(shelf: Shelf) -> None:
    shelf.put_build("key", {})


def _scratch(shelf: Shelf) -> None:
    with shelf.scratch():
        pass


@pytest.mark.parametrize("write", [_put, _put_bundle, _put_build, _scratch])
def test_a_shelf_below_a_file_is_the_environments_fault(tmp_path: Path, write: Any) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentFault, match=r"cannot write .*\n  -> free some space or make the folder writable"):
        write(Shelf(tmp_path / "file" / "shelf"))


ON_A_SMALL_DISK = """\
import os, sys
from pathlib import Path
from pgo_agent.sandbox.bundle.store import Shelf
from pgo_agent.sandbox.errors import EnvironmentFault
shelf = Shelf(Path(sys.argv[1]))
shelf.put(b"fits", "bin")
with shelf.scratch(): pass
if sys.argv[2] == "full":
    def attempt(): shelf.put(os.urandom(1 << 20), "bin")
else:
    os.system(f"mount -o remount,ro {shelf.root}")
    if sys.argv[2] == "read-only":
        def attempt(): shelf.put(b"more", "bin")
    else:
        def attempt():
            with shelf.scratch(): pass
try:
    attempt()
except EnvironmentFault as e:
    print(e.message)
print(sorted(p.name[64:] for p in shelf.artefacts.iterdir()))
"""


def _on_a_small_disk(folder: Path, how: str) -> list[str]:
    """Runs the above in a mount namespace of its own, on a disk of 256 KiB; gives what it prints."""
    if not shutil.which("unshare"):
        pytest.skip("needs unshare, to mount a small disk")
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=256k none {folder}"
    probe = subprocess.run([*namespace, "sh", "-c", mount], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"mounting is not possible here: {probe.stderr.strip()}")
    script = f'{mount} && exec "$@"'
    command = [*namespace, "sh", "-c", script, "sh", sys.executable, "-c", ON_A_SMALL_DISK, str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_disk_is_the_environments_fault_and_nothing_is_left_behind(tmp_path: Path) -> None:
    message, left = _on_a_small_disk(tmp_path, "full")
    assert message.endswith("No space left on device")
    assert left == "['.bin']"


def test_a_read_only_disk_is_the_environments_fault(tmp_path: Path) -> None:
    message, left = _on_a_small_disk(tmp_path, "read-only")
    assert message.endswith("Read-only file system")
    assert left == "['.bin']"


def test_a_scratch_folder_on_a_read_only_disk_is_the_environments_fault(tmp_path: Path) -> None:
    message, _ = _on_a_small_disk(tmp_path, "no scratch")
    assert message.endswith("Read-only file system")
