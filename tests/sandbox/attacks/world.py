"""What lies outside a box and is worth attacking: servers, files, a home with a key, a process, keys, shared memory.

Everything belongs to the test that made it, or to the user that the box runs its process as, and is gone afterwards.
"""

import contextlib
import ctypes
import os
import platform
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
_libc = ctypes.CDLL(None, use_errno=True)
_ADD_KEY, _KEYCTL = (217, 219) if platform.machine() == "aarch64" else (248, 250)
_SESSION, _REVOKE = -3, 3  # KEY_SPEC_SESSION_KEYRING, KEYCTL_REVOKE


@contextlib.contextmanager
def made(uid: int) -> Iterator[dict[str, Any]]:
    """Where to find it all, as attempts take it. `uid`: whom the box runs its process as."""
    with contextlib.ExitStack() as stack:
        secret = f"sk-{secrets.token_hex(8)}"
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgo-outside-")))
        file = stack.enter_context(_files(place, secret, uid))
        yield {
            "file": str(place / "file"),
            "own": str(place / "own"),
            "home": str(place / "home"),
            "checkout": str(ROOT / "pyproject.toml"),
            "secret": secret,
            "inherited": place.name,
            "inherit": file,
            "victim": stack.enter_context(_victim(uid, place / "file", secret)),
            "key": stack.enter_context(_key(secret)),
            "shared": stack.enter_context(_shared()),
            **stack.enter_context(_servers(place)),
            **{f"{n}ns": str(Path(f"/proc/self/ns/{n}").readlink()) for n in ("net", "uts", "pid")},
        }


@contextlib.contextmanager
def _files(place: Path, secret: str, uid: int) -> Iterator[int]:
    """Files that everybody may read and write, one that the user owns, a home; gives an open one, to be inherited."""
    place.chmod(0o777)
    (place / "home" / ".ssh").mkdir(parents=True)
    for path in (place / "file", place / "spare", place / "own", place / "home" / ".ssh" / "id_ed25519"):
        path.write_text(secret)
        path.chmod(0o666)
    if os.geteuid() == 0:
        os.chown(place / "own", uid, uid)
    with (place / "file").open() as file:
        os.set_inheritable(file.fileno(), True)
        yield file.fileno()


@contextlib.contextmanager
def _victim(uid: int, file: Path, secret: str) -> Iterator[int]:
    """A process of the same user, with a secret in its environment and a file on its standard input."""
    env = {"PATH": "/usr/bin:/bin", "TOKEN": secret}
    whose: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 else {}
    with file.open() as opened, subprocess.Popen(["sleep", "300"], stdin=opened, env=env, **whose) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def _servers(place: Path) -> Iterator[dict[str, Any]]:
    name = f"pgo-{secrets.token_hex(8)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(place / "socket"))
        (place / "socket").chmod(0o777)
        abstract.bind(f"\0{name}")
        unix.listen()
        abstract.listen()
        ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        yield ports | {"unix": str(place / "socket"), "abstract": name}


@contextlib.contextmanager
def _key(secret: str) -> Iterator[str]:
    """The name of a key in the keyring of this session; whoever has no keyrings gets the name alone."""
    name = f"pgo-{secrets.token_hex(8)}"
    key = _libc.syscall(_ADD_KEY, b"user", name.encode(), secret.encode(), len(secret), _SESSION)
    try:
        yield name
    finally:
        if key > 0:
            _libc.syscall(_KEYCTL, _REVOKE, key)


@contextlib.contextmanager
def _shared() -> Iterator[int]:
    """The key of a System V segment that everybody may read."""
    key = secrets.randbits(30) | 1
    at = _libc.shmget(key, 4096, 0o1666)
    _libc.shmat.restype = ctypes.c_void_p
    if at >= 0:
        where = _libc.shmat(at, None, 0)
        ctypes.memmove(where, b"abc", 4)
        _libc.shmdt(ctypes.c_void_p(where))
    try:
        yield key
    finally:
        if at >= 0:
            _libc.shmctl(at, 0, None)
