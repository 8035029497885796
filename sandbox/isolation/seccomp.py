"""A seccomp filter: the system calls that no boxed process needs, and that a box by itself would let through.

Relies on prctl through ctypes and on the calling convention of x86-64 and 64-bit ARM; elsewhere there is no filter and
OSError is raised. A refused call fails with EPERM. What it adds to the boxes: keys of the user's session keyring (read
in both without it), sockets of any kind (Landlock refuses plain TCP only: not UDP, not UNIX sockets by path, not TCP
by MSG_FASTOPEN or MPTCP), user namespaces, io_uring, userfaultfd and counters (large parts of the kernel to attack),
limits of other processes, and System V shared memory. It looks at numbers alone: it cannot tell one path from another.
"""

import ctypes
import errno
import os
import platform
import struct

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH_*, column of the tables below
_X32 = 0x40000000  # bit of the calls of x86-64's second convention

# number on x86-64, number on 64-bit ARM (None: it has none)
_REFUSED: dict[str, tuple[int, int | None]] = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "bpf": (321, 280),
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41),
    "mount": (165, 40), "umount2": (166, 39), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265),
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
}  # fmt: skip
# For Landlock, which does not cover them; in bubblewrap the mounts are read-only, and some programs set modes.
_ATTRIBUTES: dict[str, tuple[int, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}  # fmt: skip
_CLONE, _CLONE3, _PRLIMIT = (56, 220), (435, 435), (302, 261)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF, on 32-bit words
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000  # SECCOMP_RET_*
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data (its low word: both are little-endian)
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_REFUSE = _FAIL | errno.EPERM


def program(attributes: bool) -> bytes:
    """Return the filter as an array of struct sock_filter, as bubblewrap's --seccomp reads it.

    `attributes`: also refuse to change modes, owners, times and extended attributes of files. Raises OSError for a
    processor whose numbers are not known here.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no seccomp filter for {machine}")
    arch, column = _ARCHITECTURES[machine]
    tables = [_REFUSED, _ATTRIBUTES] if attributes else [_REFUSED]
    numbers = [n for table in tables for pair in table.values() if (n := pair[column]) is not None]
    lines = [_line(_LOAD, _ARCH), _line(_EQUAL, arch, 1, 0), _line(_RETURN, _KILL), _line(_LOAD, _NUMBER)]
    if machine == "x86_64":
        lines += [_line(_AT_LEAST, _X32, 0, 1), _line(_RETURN, _REFUSE)]
    for number in numbers:
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _REFUSE)]
    # clone3 hides its flags in memory: without it, the C library goes back to clone.
    lines += [_line(_EQUAL, _CLONE3[column], 0, 1), _line(_RETURN, _FAIL | errno.ENOSYS)]
    lines += _where_argument(_CLONE[column], _ANY_BIT, _NEW_NAMESPACES, refuse_if=True)
    lines += _where_argument(_PRLIMIT[column], _EQUAL, 0, refuse_if=False)  # process 0: its own limits
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def install(attributes: bool) -> None:
    """Filter this process and what it becomes, for good. It must have given up new privileges. Raises OSError."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    text = program(attributes)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(Program(len(text) // 8, text)), 0, 0):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _where_argument(number: int, test: int, value: int, refuse_if: bool) -> list[bytes]:
    """Refuse a call where its first argument passes the test, or (refuse_if=False) where it does not."""
    refuse = [_line(_RETURN, _REFUSE), _line(_RETURN, _ALLOW)]
    return [
        _line(_EQUAL, number, 0, 4),
        _line(_LOAD, _FIRST_ARGUMENT),
        _line(test, value, 0 if refuse_if else 1, 1 if refuse_if else 0),
        *refuse,
    ]
