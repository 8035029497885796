"""Who works on which request: one living process at a time.

A claim is a file whose time its holder renews. It expires when its holder is known to be dead (on the same machine), or
has not renewed it for STALE seconds by the clock of the file system. Relies on file locks, which workers on several
machines share if their file system does.
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.spool.folder import CLAIMS, Folder, NotWhole

STALE, RENEWED = 30.0, 5.0  # seconds


class Claims:
    """The claims of this process."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self._me = folder, _process(os.getpid()) | {"token": uuid.uuid4().hex}

    @contextlib.contextmanager
    def claimed(self, sha: str, answered: Callable[[str], bool]) -> Iterator[bool]:
        """Claim a request if it is neither claimed nor answered; give whether it was free."""
        name = f"{sha}.json"
        with self._alone():  # a holder releases an answered request without this lock: hence this order
            free = not self.held(sha) and not answered(sha)
            if free:
                self.folder.write(CLAIMS, name, json.dumps(self._me).encode())
        if not free:
            yield False
            return
        over = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(name, over), daemon=True)
        renewing.start()
        try:
            yield True
        finally:
            over.set()
            renewing.join()
            with contextlib.suppress(EnvironmentFault):
                self.folder.remove(CLAIMS, name)

    def held(self, sha: str) -> bool:
        """Whether a living process works on a request."""
        name = f"{sha}.json"
        try:
            whose, renewed = json.loads(self.folder.read(CLAIMS, name) or b"null"), self.folder.touched(CLAIMS, name)
        except NotWhole:
            return False
        except (BadBundle, ValueError, RecursionError):
            return False  # not a claim: it is overwritten
        return not _dead(whose) and abs(self._now() - renewed) < STALE

    def _renew(self, name: str, over: threading.Event) -> None:
        while not over.wait(RENEWED):
            with contextlib.suppress(EnvironmentFault):
                self.folder.touch(CLAIMS, name)

    def _now(self) -> float:
        """Return the time in s by the clock of the file system."""
        probe = f".{self._me['token']}.now"
        self.folder.write(CLAIMS, probe, b"")
        try:
            return self.folder.touched(CLAIMS, probe)
        finally:
            self.folder.remove(CLAIMS, probe)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.folder.opened(CLAIMS) as fd:
            lock = os.open("lock", flags, 0o666, dir_fd=fd)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)


def _process(pid: int) -> JsonObject:
    """Return what identifies a process among all, past ones too."""
    return {"host": socket.gethostname(), "pid": pid, "boot": _boot(), "began": _began(pid)}


def _dead(whose: Any) -> bool:
    """Whether a process is surely gone; False for one that cannot be seen from here."""
    if not isinstance(whose, dict) or whose.get("boot") != _boot() or type(whose.get("pid")) is not int:
        return False
    return _began(whose["pid"]) != whose.get("began")


def _boot() -> str:
    """Return an id of this boot of the machine and of this process namespace."""
    with contextlib.suppress(OSError):
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    return uuid.uuid4().hex  # unknown: equal to no other


def _began(pid: int) -> str:
    """Return when a process began, in ticks since boot; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
