"""Content-addressed files of a workspace: artefacts and bundles by SHA-256, builds of kernels by what they are of.

Files appear whole or not at all (written aside, then renamed), so a killed process leaves nothing half-written behind.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.errors import EnvironmentFault


@dataclass(frozen=True)
class Shelf:
    root: Path

    @property
    def artefacts(self) -> Path:
        return self.root / "artefacts"

    def put(self, data: bytes, suffix: str) -> str:
        """Stores an artefact, once, and gives its hash. Raises EnvironmentFault when the disk refuses."""
        digest = hashlib.sha256(data).hexdigest()
        self._write(self.artefacts / f"{digest}.{suffix}", data)
        return digest

    def get(self, digest: str, suffix: str) -> bytes:
        return (self.artefacts / f"{digest}.{suffix}").read_bytes()

    def put_bundle(self, manifest: dict[str, Any]) -> str:
        """Stores bundle.json in its canonical form and gives the bundle's id."""
        data = canonical(manifest)
        digest = hashlib.sha256(data).hexdigest()
        self._write(self.bundle(digest), data)
        return digest

    def bundle(self, digest: str) -> Path:
        return self.root / "bundles" / f"{digest}.json"

    def manifest(self, digest: str) -> dict[str, Any]:
        return dict(json.loads(self.bundle(digest).read_bytes()))

    def put_build(self, key: str, record: dict[str, Any]) -> None:
        self._write(self.root / "builds" / f"{key}.json", canonical(record))

    def build(self, key: str) -> dict[str, Any] | None:
        """What compiling this kernel gave before, if it did."""
        path = self.root / "builds" / f"{key}.json"
        return dict(json.loads(path.read_bytes())) if path.is_file() else None

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """A folder for one boxed process, gone afterwards."""
        place = self.root / "tmp"
        self._folder(place)
        try:
            name = tempfile.mkdtemp(dir=place)
        except OSError as e:
            raise _disk(place, e) from None
        try:
            yield name
        finally:
            # rm, because what a boxed process nests may be deeper than Python's stack
            subprocess.run(["rm", "-rf", name], check=False, stderr=subprocess.DEVNULL)

    @staticmethod
    def _folder(path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise _disk(path, e) from None

    def _write(self, path: Path, data: bytes) -> None:
        if path.is_file():
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
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(x, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _disk(path: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"cannot write {path}: {error.strerror}", "free some space or make the folder writable, then `pgo-agent resume`"
    )
