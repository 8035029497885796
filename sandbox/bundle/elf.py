"""Reads a cubin's ELF: sections, the parameter block of its kernel, and an identity of what the GPU executes.

Needs no CUDA tool and trusts nothing: bounds are checked, and whatever does not parse raises BadBundle. The layout of
`.nv.info` is that of NVIDIA's EIATTR records as cuobjdump prints them (attribute 0x17, KPARAM_INFO).
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.sandbox.errors import BadBundle

_MACHINE_CUDA = 190
_NOBITS = 8
_SYMBOL_BYTES, _FUNCTION = 24, 2  # an entry of .symtab; its type STT_FUNC
_KPARAM_INFO, _FORMAT_SIZED = 0x17, 4
# What libdevice leaves behind where it is linked: arguments of __nvvm_reflect (the second for any sqrt), and digits of
# 2/pi by which sin, cos and tan reduce large arguments. Each stands at most once, on a multiple of at most 4 bytes.
_LIBDEVICE = (
    b"__CUDA_FTZ\0",
    b"__CUDA_PREC_SQRT\0",
    struct.pack("<6I", 0x3C439041, 0xDB629599, 0xF534DDC0, 0xFC2757D1, 0x4E441529, 0xA2F9836E),
)
_HEADER_BYTES, _MOST_SECTIONS = 64, 256
_EXECUTED = (".text.", ".nv.info", ".nv.constant", ".nv.shared", ".nv.global", ".rel", ".nv.rel", ".nv.callgraph")


@dataclass(frozen=True)
class Section:
    name: str
    data: bytes  # empty for a section that occupies no file space
    kind: int  # sh_type
    size: int  # bytes in memory
    flags: int  # sh_flags
    info: int  # sh_info: for code, its registers among others
    align: int  # sh_addralign


def sections(image: bytes) -> list[Section]:
    """Return the sections of a 64-bit CUDA ELF. Raises BadBundle for anything else (PTX would be compiled by the
    driver)."""
    if image[:4] != b"\x7fELF" or len(image) < 64 or image[4] != 2:
        raise BadBundle("not a cubin: no 64-bit ELF")
    if struct.unpack_from("<H", image, 18)[0] != _MACHINE_CUDA:
        raise BadBundle("not a cubin: an ELF for another machine")
    try:
        return _sections(image)
    except (struct.error, ValueError, IndexError, OverflowError) as e:
        raise BadBundle(f"not a cubin: damaged ELF ({e})") from None


def code(image: bytes) -> list[bytes]:
    """Return the instructions, section by section. Raises BadBundle as `sections` does."""
    return [s.data for s in sections(image) if s.name.startswith(".text")]


def _sections(image: bytes) -> list[Section]:
    (start,) = struct.unpack_from("<Q", image, 0x28)
    entry, count, names = struct.unpack_from("<HHH", image, 0x3A)
    if entry != _HEADER_BYTES or count > _MOST_SECTIONS:
        raise ValueError(f"{count} section headers of {entry} bytes")
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * entry) for i in range(count)]
    result = []
    for header in headers:
        at = headers[names][4] + header[0]
        name = image[at : image.index(b"\0", at)].decode("ascii")
        _, kind, flags, _, offset, size, _, info, align, _ = header
        if kind != _NOBITS and offset + size > len(image):
            raise ValueError(f"section {name[:40]!r} beyond the end")
        data = b"" if kind == _NOBITS else image[offset : offset + size]
        result.append(Section(name, data, kind, size, flags, info, align))
    return result


def entries(image: bytes) -> list[str]:
    """Return the names of the kernels in it."""
    return [s.name[9:] for s in sections(image) if s.name.startswith(".nv.info.")]


def parameter_sizes(image: bytes, kernel: str) -> list[int]:
    """Return the bytes of each kernel parameter, in order, as the driver will read them."""
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
    """Return whether it has device variables: memory that outlives a launch. libdevice's constants do not count."""
    variables = [s for s in sections(image) if s.name.startswith(".nv.global") and s.size]
    return any(not _of_libdevice(s.data) for s in variables)


def _of_libdevice(data: bytes) -> bool:
    left = list(_LIBDEVICE)
    while data:
        data = data.lstrip(b"\0") if len(data) - len(data.lstrip(b"\0")) < 4 else data
        table = next((c for c in left if data.startswith(c)), None)
        if table is None:
            return False
        left.remove(table)
        data = data.removeprefix(table)
    return bool(len(left) < len(_LIBDEVICE))


def calls(image: bytes) -> set[str]:
    """Return the functions that it calls and does not hold: the driver's own (vprintf, __assertfail, malloc, ...)."""
    parts = sections(image)
    symbols = b"".join(s.data for s in parts if s.name == ".symtab")
    names = b"".join(s.data for s in parts if s.name == ".strtab")
    result = set()
    for i in range(0, len(symbols) - _SYMBOL_BYTES + 1, _SYMBOL_BYTES):
        name, info, _, section = struct.unpack_from("<IBBH", symbols, i)
        if section == 0 and info & 0xF == _FUNCTION:
            result.add(names[name:].split(b"\0", 1)[0].decode("ascii", "replace"))
    return result


def code_id(image: bytes, named: bool = True) -> str:
    """Return the SHA-256 of what the GPU executes: equal for builds that differ in paths, line numbers and file times
    only.

    Code, constants, relocations and kernel tables, with their headers, and where the kernel's symbol points. If it is
    not to be `named`, it is equal for builds whose kernels have other names, too.
    """
    parts = sections(image)
    called = {} if named else {f".{n}": f".{i}" for i, n in enumerate(entries(image))}
    digest = hashlib.sha256(image[4:24] + image[48:52])  # class, machine and e_flags
    executed = [(_called(s.name, called), s) for s in parts if s.name.startswith(_EXECUTED)]
    for name, s in sorted(executed, key=lambda e: (e[0], e[1].data)):
        digest.update(f"{name}\0{s.kind} {s.size} {s.flags} {s.info} {s.align}\0".encode() + s.data)
    for s in (s for s in parts if s.name == ".symtab"):
        digest.update(b"".join(s.data[i + 4 : i + 24] for i in range(0, len(s.data) - 23, 24)))  # all but the names
    return digest.hexdigest()


def _called(section: str, names: Mapping[str, str]) -> str:
    """Return the section's name with another one for its kernel; the longest that fits, for one may end like
    another."""
    fit = max((n for n in names if section.endswith(n)), key=len, default="")
    return section.removesuffix(fit) + names.get(fit, "")
