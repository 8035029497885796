"""The folder between a run and a judge elsewhere: what is in it, and how it is read and written.

    requests/NNNNNN-SHA.json    a request; SHA is the hash of its bytes; NNNNNN: the order
    answers/SHA.json            the answer to that request: a line with the SHA-256 of the rest, and the rest
    bundles/SHA.json            what requests name; also artefacts/SHA.SUFFIX, as in the content store of a workspace
    claims/SHA.json             who works on a request

The hash shows a file that was copied in part: it is ignored. Files are written whole, by a rename. All content is
untrusted: it is read up to a limit, no link is followed, and only names of this form are paths. Does not read what
requests and answers say.
"""

import contextlib
import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault, UsageFault

REQUESTS, ANSWERS, CLAIMS, BUNDLES, ARTEFACTS = FOLDERS = ("requests", "answers", "claims", "bundles", "artefacts")
REQUEST_LIMIT, ANSWER_LIMIT = 32 << 20, 64 << 20  # bytes
_LIMITS = {REQUESTS: REQUEST_LIMIT, ANSWERS: ANSWER_LIMIT, CLAIMS: 4096} | {
    BUNDLES: validate.JSON_LIMIT,
    ARTEFACTS: validate.ARTEFACT_LIMIT,
}
_REQUEST = re.compile(r"(\d{6,12})-([0-9a-f]{64})\.json")
_FILE = re.compile(r"(bundles|artefacts)/([0-9a-f]{64})\.([a-z]{1,20})")
SOONEST, LATEST = 0.02, 0.5  # seconds between looks
Stamp = tuple[int, int, int]  # inode, size, time


def pause(looks: int) -> None:
    """Wait between looks of which so many found nothing: at first shortly, for much is answered at once."""
    time.sleep(min(LATEST, SOONEST * 2 ** min(looks, 10)))


class NotWhole(Exception):
    """A file is absent or incomplete; the text says which, in words that follow its name."""


@dataclass(frozen=True)
class Asked:
    """The file of a request."""

    number: int
    sha: str

    @property
    def name(self) -> str:
        return f"{self.number:06}-{self.sha}.json"


@dataclass
class Folder:
    """The folder at `root`. Its methods raise EnvironmentFault when the disk refuses."""

    root: Path
    _stamps: dict[str, Stamp] = field(default_factory=dict)  # of files whose hash was checked

    @property
    def contents(self) -> ContentStore:
        """The store of bundles and artefacts."""
        return ContentStore(self.root)

    def make(self) -> None:
        """Make the folder if need be, for its owner alone. Raises UsageFault where it is no folder."""
        try:
            for path in (self.root, *(self.root / name for name in FOLDERS)):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError as e:
            raise UsageFault(f"{e.filename} is no folder", "name one, as --judge spool:DIR") from None
        except OSError as e:
            raise self._refuses(e) from None

    # requests and answers ---------------------------------------------------------------------------------------------

    def requests(self) -> list[Asked]:
        """Return the requests, oldest first."""
        matches = (_REQUEST.fullmatch(name) for name in self.names(REQUESTS))
        return sorted((Asked(int(m[1]), m[2]) for m in matches if m), key=lambda a: (a.number, a.sha))

    def request(self, asked: Asked) -> bytes:
        """Return the bytes of a request. Raises NotWhole, and BadBundle for what can never be one."""
        data = self._read(REQUESTS, asked.name)
        if _sha(data) != asked.sha:
            raise NotWhole("is not whole")
        return data

    def ask(self, data: bytes) -> None:
        """Write a request, once."""
        sha, there = _sha(data), self.requests()
        if not any(a.sha == sha for a in there):
            number = max((a.number for a in there), default=0) + 1
            self.write(REQUESTS, Asked(number, sha).name, data)

    def answered(self) -> set[str]:
        """Return the requests that have an answer file, whatever its content."""
        return {name.removesuffix(".json") for name in self.names(ANSWERS)}

    def answer(self, sha: str) -> bytes:
        """Return the answer to a request. Raises NotWhole, and BadBundle for what can never be one."""
        head, _, body = self._read(ANSWERS, f"{sha}.json").partition(b"\n")
        if head.decode(errors="replace") != _sha(body):
            raise NotWhole("is not whole")
        return body

    def give(self, sha: str, body: bytes) -> None:
        """Write the answer to a request."""
        self.write(ANSWERS, f"{sha}.json", _sha(body).encode() + b"\n" + body)

    # bundles and artefacts --------------------------------------------------------------------------------------------

    def put(self, file: str, data: bytes) -> None:
        """Write `bundles/SHA.json` or `artefacts/SHA.SUFFIX`, unless it is there whole."""
        with contextlib.suppress(NotWhole, BadBundle):
            self.whole(file)
            return
        self.write(*_parts(file), data)

    def whole(self, file: str) -> None:
        """Check a file's hash. Raises NotWhole where it is absent or incomplete; BadBundle for what is no file."""
        folder, name = _parts(file)
        if self._stamps.get(file) == (stamp := self._stamp(folder, name)):
            return
        if _sha(self._read(folder, name)) != name[:64]:
            raise NotWhole("is not whole")
        self._stamps[file] = stamp

    def get(self, file: str) -> bytes:
        """Return the bytes of a file. Raises as `whole`."""
        folder, name = _parts(file)
        data = self._read(folder, name)
        if _sha(data) != name[:64]:
            raise NotWhole("is not whole")
        return data

    # files ------------------------------------------------------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        """Return the names of all files in one of the folders."""
        with self.opened(folder) as fd:
            return os.listdir(fd)  # noqa: PTH208 (of an open folder)

    def read(self, folder: str, name: str) -> bytes | None:
        """Return a file's bytes, or None. Raises BadBundle for what is no plain file, or too large."""
        try:
            return self._read(folder, name)
        except NotWhole:
            return None

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write a file whole, in place of any other."""
        part = f".{uuid.uuid4().hex}.part"
        with self.opened(folder) as fd:
            try:
                file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=fd)
                with os.fdopen(file, "wb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
                os.rename(part, name, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=fd)
                raise

    def remove(self, folder: str, name: str) -> None:
        """Remove a file if it is there."""
        with self.opened(folder) as fd, contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)

    def touched(self, folder: str, name: str) -> float:
        """Return when a file was changed last, in s, by the clock of its file system. Raises NotWhole."""
        return self._stamp(folder, name)[2] / 1e9

    def touch(self, folder: str, name: str) -> None:
        """Set a file's time to now, if it is there."""
        with self.opened(folder) as fd, contextlib.suppress(FileNotFoundError):
            os.utime(name, dir_fd=fd, follow_symlinks=False)

    def _read(self, folder: str, name: str) -> bytes:
        self._stamp(folder, name)
        with self.opened(folder) as fd:
            return validate.read(Path(name), _LIMITS[folder], fd)

    def _stamp(self, folder: str, name: str) -> Stamp:
        with self.opened(folder) as fd:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                raise NotWhole("is not there") from None
        if not stat.S_ISREG(status.st_mode):
            raise BadBundle(f"{folder}/{name} is no plain file")
        return status.st_ino, status.st_size, status.st_mtime_ns

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Open one of the folders, never through a link. Within, an OSError becomes EnvironmentFault."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with contextlib.ExitStack() as closing:
            try:
                fd = -1
                for part, more in ((str(self.root), 0), (name, os.O_NOFOLLOW)):
                    fd = os.open(part, flags | more, dir_fd=None if fd < 0 else fd)
                    closing.callback(os.close, fd)
                yield fd
            except OSError as e:
                raise self._refuses(e) from None

    def _refuses(self, e: OSError) -> EnvironmentFault:
        hint = "make the folder whole and writable, or free some space; `pgo-agent resume` goes on from here"
        return EnvironmentFault(f"cannot use the spool {self.root}: {e.strerror} ({e.filename})", hint)


def _parts(file: str) -> tuple[str, str]:
    match = _FILE.fullmatch(file)
    if match is None:
        raise BadBundle(f"{file[:80]!r} is no name of a bundle or an artefact")
    return match[1], f"{match[2]}.{match[3]}"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
