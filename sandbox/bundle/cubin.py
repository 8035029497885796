"""Reads a cubin's ELF: sections, the parameter block of its kernel, and an identity of what the GPU executes.

Needs no CUDA tool and trusts nothing: bounds are checked, and whatever does not parse raises BadBundle. The layout of
`.nv.info` is that of NVIDIA's EIATTR records as cuobjdump prints them (attribute 0x17, KPARAM_INFO).
"""

import hashlib
import struct
from dataclasses import dataclass

from pgo_agent.sandbox.errors import BadBundle

_MACHINE_CUDA = 190
_NOBITS = 8
_KPARAM_INFO, _FORMAT_SIZED = 0x17, 4
_LIBDEVICE_CONSTANT = b"__CUDA_FTZ\0"  # the argument of __nvvm_reflect, left behind when libdevice is linked
_EXECUTED = (".text.", ".nv.info", ".nv.constant", ".nv.shared", ".nv.global")


@dataclass(frozen=True)
class Section:
    name: str
    data: bytes  # empty for a section that occupies no file space
    kind: int  # sh_type
    size: int  # bytes in memory


def sections(image: bytes) -> list[Section]:
    """The sections of a 64-bit CUDA ELF. Raises BadBundle for anything else (PTX would be compiled by the driver)."""
    if image[:4] != b"\x7fELF" or len(image) < 64 or image[4] != 2:
        raise BadBundle("not a cubin: no 64-bit ELF")
    if struct.unpack_from("<H", image, 18)[0] != _MACHINE_CUDA:
        raise BadBundle("not a cubin: an ELF for another machine")
    try:
        return _sections(image)
    except (struct.error, ValueError, IndexError) as e:
        raise BadBundle(f"not a cubin: damaged ELF ({e})") from None


def _sections(image: bytes) -> list[Section]:
    (start,) = struct.unpack_from("<Q", image, 0x28)
    entry, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * entry) for i in range(count)]
    found = []
    for header in headers:
        at = headers[names][4] + header[0]
        name = image[at : image.index(b"\0", at)].decode("ascii")
        _, kind, _, _, offset, size, *_ = header
        if kind != _NOBITS and offset + size > len(image):
            raise ValueError(f"section {name[:40]!r} beyond the end")
        found.append(Section(name, b"" if kind == _NOBITS else image[offset : offset + size], kind, size))
    return found


def entries(image: bytes) -> list[str]:
    """Names of the kernels in it."""
    return [s.name[9:] for s in sections(image) if s.name.startswith(".nv.info.")]


def parameter_sizes(image: bytes, kernel: str) -> list[int]:
    """Bytes of each kernel parameter, in order, as the driver will read them."""
    info = next((s.data for s in sections(image) if s.name == f".nv.info.{kernel}"), None)
    if info is None:
        raise BadBundle(f"the cubin holds no kernel called {kernel}")
    sizes, at = {}, 0
    try:
        while at + 4 <= len(info):
            form, attribute, length = info[at], info[at + 1], struct.unpack_from("<H", info, at + 2)[0]
            at += 4
            if form == _FORMAT_SIZED:
                if attribute == _KPARAM_INFO:
                    _, ordinal, _, bits = struct.unpack_from("<IHHI", info, at)
                    sizes[ordinal] = bits >> 18
                at += length
    except struct.error:
        raise BadBundle("the cubin's parameter table is damaged") from None
    return [sizes[k] for k in sorted(sizes)]


def keeps_state(image: bytes) -> bool:
    """Whether it has device variables: memory that outlives a launch. (libdevice's own 11-byte constant is none.)"""
    found = [s for s in sections(image) if s.name.startswith(".nv.global") and s.size]
    return any(s.data != _LIBDEVICE_CONSTANT for s in found)


def code_id(image: bytes) -> str:
    """SHA-256 of what the GPU executes: equal for builds that differ in paths, line numbers and file times only."""
    digest = hashlib.sha256()
    for s in sorted((s.name, s.data, s.size) for s in sections(image) if s.name.startswith(_EXECUTED)):
        digest.update(f"{s[0]}\0{s[2]}\0".encode() + s[1])
    return digest.hexdigest()
