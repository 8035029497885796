"""Content-addressed files of a workspace: artefacts and bundles by SHA-256, builds of kernels by what they are of.

Files appear whole or not at all (written aside, then renamed), so a killed process leaves nothing half-written behind.
A power loss may still take files, or their ends: what is read is checked against its hash, and what is damaged counts
as missing and is written anew. It does not defend against a user who may write here.
"""

import contextlib
import errno
import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.bundle.documents import BuildDocument, KernelDocument, Manifest
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.temporary_folders import remove

ROOM = 64 << 20  # bytes that a disk must have free for a failure on it to mean anything
PASSES = "passes"  # folder of what the profiler's passes gave
RECORDS = "records"  # suffix of artefacts that hold what the blocks of an instrumented build recorded, by zlib
KEPT = ("artefacts", "bundles", "builds", PASSES)  # folders whose files are there for good
_FREE = "free some space or make the folder writable, then `pgo-agent resume`"
_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


@dataclass(frozen=True)
class ContentStore:
    root: Path

    @property
    def artefacts(self) -> Path:
        return self.root / "artefacts"

    def put(self, data: bytes, suffix: str) -> str:
        """Store an artefact, once, and return its hash. Raises EnvironmentFault when the disk refuses."""
        digest = _hash(data)
        self._write(self.artefacts / f"{digest}.{suffix}", data)
        return digest

    def get(self, digest: str, suffix: str) -> bytes:
        """Return an artefact's bytes. Raises EnvironmentFault when it is missing or damaged."""
        return _read(self.artefacts / f"{digest}.{suffix}", digest)

    def put_bundle(self, manifest: Manifest) -> str:
        """Store bundle.json in its canonical form and return the bundle's id."""
        data = canonical(manifest)
        digest = _hash(data)
        self._write(self.bundle(digest), data)
        return digest

    def bundle(self, digest: str) -> Path:
        return self.root / "bundles" / f"{digest}.json"

    def manifest(self, digest: str) -> Manifest:
        """Return a bundle's manifest. Raises EnvironmentFault when it is missing or damaged."""
        manifest: Manifest = json.loads(_read(self.bundle(digest), digest))
        return manifest

    def whole(self, bundle: str) -> bool:
        """Return whether a bundle and every artefact that it names are there and undamaged."""
        try:
            self._look(self.manifest(bundle)["kernels"].values())
        except EnvironmentFault:
            return False
        return True

    def _look(self, kernels: Iterable[KernelDocument]) -> None:
        for kernel in kernels:
            for suffix, digest in kernel["files"].items():
                self.get(digest, suffix)

    def put_build(self, key: str, build: BuildDocument) -> None:
        """Store what compiling a kernel gave. The first record stays, as long as all of it is undamaged."""
        if self.build(key) is None:
            self.put_record("builds", key, build)

    def build(self, key: str) -> BuildDocument | None:
        """Return what compiling this kernel gave before, if it did and nothing of it is damaged."""
        build: BuildDocument | None = self._record("builds", key)
        try:
            self._look([build["kernel"]] if build and "kernel" in build else [])
        except (EnvironmentFault, KeyError, TypeError, AttributeError):
            return None
        return build

    def put_record(self, folder: str, key: str, record: Mapping[str, object]) -> None:
        """Store a record beside its hash, in place of any other of that key."""
        text = canonical(record)
        stored = {"record": text.decode(), "sha256": _hash(text)}
        self._write(self.root / folder / f"{key}.json", canonical(stored))

    def record(self, folder: str, key: str) -> JsonObject | None:
        """Return the record of that key; None when there is none, or it is damaged."""
        record: JsonObject | None = self._record(folder, key)
        return record

    def _record(self, folder: str, key: str) -> Any:
        try:
            stored = json.loads((self.root / folder / f"{key}.json").read_bytes())
            if stored["sha256"] != _hash(stored["record"].encode()):
                return None
            return dict(json.loads(stored["record"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def lend(self, workspace: Path) -> None:
        """Let another workspace keep here what it builds, unless it has something of its own. Both move together.

        Raises EnvironmentFault when the disk refuses.
        """
        for name in KEPT:
            ours, theirs = self.root / name, workspace / name
            self._folder(ours)
            self._folder(workspace)
            try:
                with contextlib.suppress(FileExistsError):
                    theirs.symlink_to(os.path.relpath(ours, workspace))
            except OSError as e:
                raise _disk(theirs, e) from None

    def sweep(self) -> None:
        """Remove what killed processes left, in the workspace's own folders. The caller must hold the workspace
        alone."""
        for folder in (f for name in KEPT if not (f := self.root / name).is_symlink()):
            for part in folder.glob(".*"):
                part.unlink(missing_ok=True)
        if (self.root / "tmp").exists():
            remove(self.root / "tmp")

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """Yield a folder for one boxed process, removed afterwards. Raises EnvironmentFault when the disk refuses."""
        place = self.root / "tmp"
        self._folder(place)
        try:
            name = tempfile.mkdtemp(dir=place)
        except OSError as e:
            raise _disk(place, e) from None
        try:
            with writing(Path(name)):
                yield name
        finally:
            remove(Path(name))

    @staticmethod
    def _folder(path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise _disk(path, e) from None

    def _write(self, path: Path, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                return
        self._folder(path.parent)
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
        except OSError as e:
            with contextlib.suppress(OSError):
                part.unlink()
            raise _disk(path, e) from None


def canonical(x: Any) -> bytes:
    """Return JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(x, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def room(folder: Path) -> None:
    """Raise EnvironmentFault where the disk is full: then what failed there says nothing about a candidate."""
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < ROOM or (disk.f_files and disk.f_favail < 100):
        raise cannot_write(folder, f"the disk has less than {ROOM >> 20} MiB free")


def cannot_write(folder: Path, why: str) -> EnvironmentFault:
    return EnvironmentFault(f"cannot write in {folder}: {why}", _FREE)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a disk's refusal into EnvironmentFault."""
    try:
        yield
    except OSError as e:
        if e.errno in _REFUSES:
            raise _disk(folder, e) from None
        raise


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, digest: str) -> bytes:
    again = "the next `pgo-agent optimize` or `pgo-agent resume` that needs it makes it again"
    try:
        data = path.read_bytes()
    except OSError as e:
        raise EnvironmentFault(f"cannot read {path}: {e.strerror}", again) from None
    if _hash(data) != digest:
        raise EnvironmentFault(f"{path} is damaged", again)
    return data


def _disk(path: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"cannot write {path}: {error.strerror}", _FREE)
