"""The lines of a trace: of a file or of all files of a folder, plain or compressed by gzip or zstd, one after another.

What is cut short is noted, and its whole lines are given.
"""

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from pgo_agent.sandbox.errors import UsageFault

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
    early."""
    try:
        with _opened(file) as stream:
            for line in stream:
                if not line.endswith(b"\n") and not _json(line):
                    cut.append(file.name)
                elif line.strip():
                    yield line
    except (EOFError, gzip.BadGzipFile, OSError) as e:
        if isinstance(e, OSError) and not isinstance(e, gzip.BadGzipFile):
            raise UsageFault(f"cannot read {file}: {e.strerror or e}", HINT) from None
        cut.append(file.name)


def _json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    with file.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == GZIP:
            with gzip.open(raw) as stream:
                yield cast(IO[bytes], stream)
        elif magic == ZSTD:
            with _zstd(file, raw) as stream:
                yield stream
        else:
            yield raw


@contextmanager
def _zstd(file: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    try:
        import zstandard
    except ImportError:
        raise UsageFault(f"{file} is compressed by zstd", "pip install zstandard, or unpack it") from None
    with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
        try:
            yield cast(IO[bytes], io.BufferedReader(stream))
        except zstandard.ZstdError:
            raise EOFError from None
