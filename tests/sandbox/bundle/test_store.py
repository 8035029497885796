"""The content-addressed content store under killed writers, rivals that write the same thing, and disks that refuse.

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
from pgo_agent.sandbox.bundle.store import ContentStore, canonical
from pgo_agent.sandbox.errors import EnvironmentFault

WRITER = """\
import os, sys
from pathlib import Path
from pgo_agent.sandbox.bundle.store import ContentStore
shelf = ContentStore(Path(sys.argv[1]))
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
def contents(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "shelf")


def _visible(contents: ContentStore) -> list[Path]:
    """What a reader can find: files that are not being written aside."""
    return [p for p in contents.artefacts.iterdir() if not p.name.startswith(".")]


def _writer(contents: ContentStore, *args: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WRITER, str(contents.root), *args], stdout=subprocess.PIPE)


# artefacts ------------------------------------------------------------------------------------------------------------


def test_what_was_put_can_be_had_by_its_hash(contents: ContentStore) -> None:
    digest = contents.put(b"cubin", "cubin")
    assert digest == hashlib.sha256(b"cubin").hexdigest()
    assert contents.get(digest, "cubin") == b"cubin"


def test_an_empty_artefact_is_one(contents: ContentStore) -> None:
    assert contents.get(contents.put(b"", "ptx"), "ptx") == b""


def test_the_same_content_is_stored_once(contents: ContentStore) -> None:
    contents.put(b"cubin", "cubin")
    (path,) = _visible(contents)
    before = path.stat()
    contents.put(b"cubin", "cubin")
    assert [p.stat() for p in _visible(contents)] == [before]


def test_an_artefacts_file_is_named_by_its_content(contents: ContentStore) -> None:
    for i in range(8):
        contents.put(bytes([i]) * i, "bin")
    assert all(p.stem == hashlib.sha256(p.read_bytes()).hexdigest() for p in _visible(contents))


def test_a_hash_that_was_never_put_is_not_found(contents: ContentStore) -> None:
    with pytest.raises(EnvironmentFault, match=r"cannot read .*: No such file or directory"):
        contents.get("0" * 64, "cubin")


# bundles and builds ---------------------------------------------------------------------------------------------------


def test_a_bundle_comes_back_as_it_was_put(contents: ContentStore) -> None:
    manifest = {"schema": 1, "kernels": {}, "plans": {"a": [1, None, "ü"]}}
    digest = contents.put_bundle(manifest)
    assert contents.manifest(digest) == manifest
    assert hashlib.sha256(contents.bundle(digest).read_bytes()).hexdigest() == digest


def test_a_bundles_id_does_not_depend_on_the_order_of_its_fields(contents: ContentStore) -> None:
    assert contents.put_bundle({"a": 1, "b": {"c": 2, "d": 3}}) == contents.put_bundle({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_build_comes_back_under_its_key(contents: ContentStore) -> None:
    assert contents.build("key") is None
    contents.put_build("key", {"code_id": "abc"})
    assert contents.build("key") == {"code_id": "abc"}


def test_a_builds_first_record_stays(contents: ContentStore) -> None:
    contents.put_build("key", {"n": 1})
    contents.put_build("key", {"n": 2})
    assert contents.build("key") == {"n": 1}


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


def test_a_scratch_folder_is_gone_afterwards(contents: ContentStore) -> None:
    with contents.scratch() as name:
        (Path(name) / "file").write_text("x")
    assert list((contents.root / "tmp").iterdir()) == []


def test_a_scratch_folder_nested_deeper_than_pythons_recursion_is_gone_afterwards(contents: ContentStore) -> None:
    try:
        with contents.scratch() as name:
            subprocess.run([sys.executable, "-c", DIG, name], check=True)
        assert list((contents.root / "tmp").iterdir()) == []
    finally:
        subprocess.run(["rm", "-rf", contents.root], check=True)


# nothing half-written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 2, 3, 5, 8])
def test_a_killed_writer_leaves_nothing_half_written_to_be_seen(contents: ContentStore, after: int) -> None:
    writer = _writer(contents, "10000")
    assert writer.stdout is not None
    for _ in range(after):
        writer.stdout.readline()
    time.sleep(0.003 * after)  # somewhere in the next artefact of 4 MiB
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert len(_visible(contents)) >= after
    assert all(p.stem == hashlib.sha256(p.read_bytes()).hexdigest() for p in _visible(contents))


def test_a_reader_sees_whole_files_while_a_writer_works(contents: ContentStore) -> None:
    contents.artefacts.mkdir(parents=True)
    writer, seen = _writer(contents, "20"), dict[str, bool]()
    while writer.poll() is None:
        for path in _visible(contents):
            if path.name not in seen:
                seen[path.name] = path.stem == hashlib.sha256(path.read_bytes()).hexdigest()
    writer.communicate()
    assert seen
    assert all(seen.values())


def test_rivals_that_write_the_same_artefacts_all_succeed(contents: ContentStore) -> None:
    writers = [_writer(contents, "8", "same") for _ in range(4)]
    for writer in writers:
        writer.communicate(timeout=60)
    assert [w.returncode for w in writers] == [0] * 4
    assert len(list(contents.artefacts.iterdir())) == 8


# disks that refuse ----------------------------------------------------------------------------------------------------


def _put(contents: ContentStore) -> None:
    contents.put(b"x", "bin")


def _put_bundle(contents: ContentStore) -> None:
    contents.put_bundle({})


def _put_build(contents: ContentStore) -> None:
    contents.put_build("key", {})


def _scratch(contents: ContentStore) -> None:
    with contents.scratch():
        pass


@pytest.mark.parametrize("write", [_put, _put_bundle, _put_build, _scratch])
def test_a_shelf_below_a_file_is_the_environments_fault(tmp_path: Path, write: Any) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentFault, match=r"cannot write .*\n  -> free some space or make the folder writable"):
        write(ContentStore(tmp_path / "file" / "shelf"))


ON_A_SMALL_DISK = """\
import os, sys
from pathlib import Path
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault
shelf = ContentStore(Path(sys.argv[1]))
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
