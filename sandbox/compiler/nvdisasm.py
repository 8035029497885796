"""Listings of a cubin by nvdisasm: its SASS with line numbers, and with the number of live registers.

nvdisasm prints one or the other. Its analysis of live ranges refuses a kernel that declares 255 registers ("Invalid
register count", 12.8), the most there can be: such a one is shown a copy that declares 254. The declaration is all that
is changed, and it does not enter the analysis: 254 and 128 gave the same listing, also of kernels that it takes as
they are.
"""

import struct
import tempfile
from pathlib import Path

from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.compiler import nvidia_tools

_REGCOUNT = bytes([4, 0x2F, 8, 0])  # a record of .nv.info: form, attribute, size; then symbol and count, 32 bits each
_REFUSED, _TAKEN = 255, 254


def listings(path: Path, nvdisasm: str) -> dict[str, str]:
    """Return the listings `sass` and `live` of a cubin; a listing is empty where nvdisasm fails."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.cubin"
        copy.write_bytes(redeclared(path.read_bytes()))
        return {
            "sass": nvidia_tools.output([nvdisasm, "-g", "-c", str(path)]),
            "live": nvidia_tools.output([nvdisasm, "-c", "-plr", "-lrm", "count", str(copy)]),
        }


def redeclared(image: bytes) -> bytes:
    """Return the cubin with 254 registers declared where it declares 255. Not to be run. Raises BadBundle for no
    cubin."""
    table = next((s.data for s in elf.sections(image) if s.name == ".nv.info"), b"")
    start, changed, at = image.find(table), bytearray(image), table.find(_REGCOUNT)
    while table and at >= 0:
        (count,) = struct.unpack_from("<I", table, at + 8)
        if count == _REFUSED:
            struct.pack_into("<I", changed, start + at + 8, _TAKEN)
        at = table.find(_REGCOUNT, at + 12)
    return bytes(changed)
