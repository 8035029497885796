"""The lines of a trace: of a file or of all files of a folder, plain or compressed by gzip or zstd, one after another.

What is cut short is noted, and its whole lines are given.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from pgo_agent.sandbox.errors import UsageFault

READ = 1 << 16  # bytes at once
PACKED = 1 << 10  # bytes of zstd at once: they may be 32 MiB unpacked
MOST = 1 << 27  # bytes of a line: one is a compilation with all its texts
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
HINT = "record one with `pgo-agent trace -- python train.py`, or with TRITON_TRACE=FOLDER TRITON_TRACE_LAUNCH=1"


def files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if ".ndjson" in p.name)
        if not found:
            raise UsageFault(f"{path} holds no trace: no file named *.ndjson", HINT)
        return found
    if not path.is_file():
        raise UsageFault(f"no such trace: {path}", HINT)
    return [path]


def lines(file: Path, cut: list[str]) -> Iterator[bytes]:
    """Yield whole lines; a last one without its end is whole if it is JSON. `cut` gets the file's name where it ends
    early. A line of more than MOST bytes is empty."""
    try:
        with _opened(file) as chunks:
            for line in _split(chunks):
                if line and not line.endswith(b"\n") and not _json(line):
                    cut.append(file.name)
                elif line.strip() or not line:
                    yield line
    except (EOFError, zlib.error, OSError) as e:
        if isinstance(e, OSError) and not isinstance(e, gzip.BadGzipFile):
            raise UsageFault(f"cannot read {file}: {e.strerror or e}", HINT) from None
        cut.append(file.name)


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends. No more of a line is held than one may have."""
    parts, size = list[bytes](), 0
    for chunk in chunks:
        for part in re.findall(rb"[^\n]*\n|[^\n]+", chunk):
            size += len(part)
            if size <= MOST:
                parts.append(part)
            else:
                parts.clear()
            if part.endswith(b"\n"):
                yield b"".join(parts)
                parts, size = [], 0
    if size:
        yield b"".join(parts)


def _json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@contextmanager
def _opened(file: Path) -> Iterator[Iterable[bytes]]:
    """Give a file's bytes, unpacked, in parts."""
    with file.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == GZIP:
            with gzip.open(raw) as stream:
                yield iter(partial(stream.read1, READ), b"")
        elif magic == ZSTD:
            yield _zstd(file, raw)
        else:
            yield iter(partial(raw.read, READ), b"")


def _zstd(file: Path, raw: IO[bytes]) -> Iterator[bytes]:
    """Yield what zstd's frames hold. Raises EOFError after a last one that is cut."""
    try:
        import zstandard
    except ImportError:
        raise UsageFault(f"{file} is compressed by zstd", "pip install zstandard, or unpack it") from None
    frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
    while data := raw.read(PACKED):
        while data:
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError:
                raise EOFError from None
            data, begun = frame.unused_data if frame.eof else b"", not frame.eof
            frame = zstandard.ZstdDecompressor().decompressobj() if frame.eof else frame
    if begun:
        raise EOFError
