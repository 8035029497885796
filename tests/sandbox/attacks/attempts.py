"""What hostile code in a box tries, one function each: it returns when it got through, and raises OSError when not.

`inside.py` puts this file's text in front of a candidate, and above it `GIVEN` (where to find what lies outside: see
`world.py`) and `OUT` (the box's folder for results); it uses the standard library alone. No attempt does lasting harm
where it gets through: it sets a host name to what it is, opens without writing, looks without taking. Each has a
process of its own.
"""
# ruff: noqa: PTH101, PTH115, PTH120, PTH123, PTH208 (these are about system calls)

import ctypes
import json
import os
import platform
import resource
import signal
import socket
import struct
from pathlib import Path

GIVEN, OUT = globals().get("GIVEN", {}), globals().get("OUT", Path())
_libc = ctypes.CDLL(None, use_errno=True)
_ARM = platform.machine() == "aarch64"
_NUMBERS = {"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "perf_event_open": (298, 241),
            "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "pidfd_open": (434, 434),
            "pidfd_getfd": (438, 438)}  # fmt: skip
SESSION, SEIZE, DETACH, NEW_NAMESPACE, NEW_USER = -3, 0x4206, 17, 0x20000, 0x10000000


def _call(name, *args):
    number = _NUMBERS.get(name)
    result = _libc.syscall(number[_ARM], *args) if number else getattr(_libc, name)(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# network --------------------------------------------------------------------------------------------------------------


def tcp():
    socket.create_connection(("127.0.0.1", GIVEN["tcp"]), 5)


def tcp_with_data_in_its_first_packet():
    with socket.socket() as s:
        s.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", GIVEN["tcp"]))


def tcp_by_several_paths():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as s:  # IPPROTO_MPTCP
        s.connect(("127.0.0.1", GIVEN["tcp"]))


def tcp_server():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        GIVEN["netns"] == os.readlink("/proc/self/ns/net") or _refuse("nobody else can reach it")


def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", ("127.0.0.1", GIVEN["udp"]))
        GIVEN["netns"] == os.readlink("/proc/self/ns/net") or _refuse("it went to nobody")


def unix_socket():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(GIVEN["unix"])


def unix_socket_without_a_file():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + GIVEN["abstract"])


# files ----------------------------------------------------------------------------------------------------------------


def read_a_file_outside():
    _need(Path(GIVEN["file"]).read_text())


def read_a_key_in_the_home():
    _need(Path(GIVEN["home"], ".ssh", "id_ed25519").read_text())


def list_the_home():
    _need(os.listdir(GIVEN["home"]))


def read_through_a_link():
    link = OUT / "link"
    link.symlink_to(GIVEN["file"])
    try:
        _need(link.read_text())
    finally:
        link.unlink()


def read_through_the_root_of_another_process():
    _need(Path(f"/proc/{GIVEN['victim']}/root{GIVEN['file']}").read_text())


def read_who_uses_the_machine():
    _need(Path("/etc/passwd").read_text())


def read_the_checkout():
    _need(Path(GIVEN["checkout"]).read_text())


def read_by_handle():
    """As `shocker` left containers: a file is opened by its inode."""
    handle, mount = ctypes.create_string_buffer(136), ctypes.c_int()
    struct.pack_into("=I", handle, 0, 128)
    _call("name_to_handle_at", -100, os.fsencode(GIVEN["file"]), handle, ctypes.byref(mount), 0)
    at = os.open(os.path.dirname(GIVEN["file"]), os.O_RDONLY)
    os.close(_call("open_by_handle_at", at, handle, os.O_RDONLY))


def write_a_file_outside():
    Path(GIVEN["file"]).open("a").close()


def make_a_file_outside():
    path = Path(GIVEN["file"]).with_name(f"new-{os.getpid()}")
    path.touch()
    path.unlink()


def delete_a_file_outside():
    at = Path(GIVEN["file"]).with_name("spare")
    at.unlink()
    at.touch()


def take_a_file_outside_by_a_second_name():
    os.link(GIVEN["own"], OUT / "second")
    (OUT / "second").unlink()


def change_the_mode_of_the_users_own_file():
    os.chmod(GIVEN["own"], 0o600)


def change_the_time_of_the_users_own_file():
    os.utime(GIVEN["own"])


def change_an_attribute_of_the_users_own_file():
    os.setxattr(GIVEN["own"], "user.pgo", b"x")


def set_how_the_kernel_behaves():
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))


def set_how_the_kernel_manages_memory():
    os.close(os.open("/sys/kernel/mm/ksm/run", os.O_WRONLY))


# processes ------------------------------------------------------------------------------------------------------------


def see_another_process():
    _need(Path(f"/proc/{GIVEN['victim']}/cmdline").read_text())
    GIVEN["pidns"] == os.readlink("/proc/self/ns/pid") or _refuse("it is another process of that number")


def signal_another_process():
    os.kill(GIVEN["victim"], signal.SIGCONT)


def trace_another_process():
    _call("ptrace", SEIZE, GIVEN["victim"], None, None)


def read_anothers_memory():
    for line in Path(f"/proc/{GIVEN['victim']}/maps").read_text().splitlines():
        if " rw-p " in line:
            at = int(line.split("-")[0], 16)
            break
    room = ctypes.create_string_buffer(8)
    mine = struct.pack("PN", ctypes.addressof(room), 8)
    _call("process_vm_readv", GIVEN["victim"], mine, 1, struct.pack("PN", at, 8), 1, 0)


def read_anothers_environment():
    _need(Path(f"/proc/{GIVEN['victim']}/environ").read_text())


def read_anothers_open_file():
    _need(Path(f"/proc/{GIVEN['victim']}/fd/0").read_text())


def take_anothers_open_file():
    at = _call("pidfd_open", GIVEN["victim"], 0)
    os.close(_call("pidfd_getfd", at, 0, 0))


def limit_another_process():
    resource.prlimit(GIVEN["victim"], resource.RLIMIT_CPU, resource.prlimit(GIVEN["victim"], resource.RLIMIT_CPU))


def read_memory_that_others_share():
    at = _call("shmget", GIVEN["shared"], 0, 0)
    _libc.shmat.restype = ctypes.c_void_p
    found = _libc.shmat(at, None, 0o10000)
    if found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    _need(ctypes.string_at(found, 3).decode())


# secrets that a process carries ---------------------------------------------------------------------------------------


def find_a_key_in_an_environment():
    _need([p for p in Path("/proc").glob("[0-9]*/environ") if GIVEN["secret"].encode() in _bytes(p)])


def find_an_inherited_file():
    _need([n for n in os.listdir("/proc/self/fd") if GIVEN["inherited"] in _target(f"/proc/self/fd/{n}")])


def read_a_key_of_the_keyring():
    at = _call("request_key", b"user", GIVEN["key"].encode(), None, 0)
    room = ctypes.create_string_buffer(64)
    _need(_call("keyctl", 11, at, room, 64, 0))  # KEYCTL_READ


# powers of the kernel -------------------------------------------------------------------------------------------------


def become_root():
    os.setuid(0)


def set_the_host_name():
    name = socket.gethostname()
    GIVEN["utsns"] == os.readlink("/proc/self/ns/uts") or _refuse("it is nobody else's")
    socket.sethostname(name)


def make_a_user_namespace():
    _call("unshare", NEW_USER)


def mount_a_file_system():
    _call("unshare", NEW_NAMESPACE)
    _call("mount", b"none", b"/", None, 0x44000, None)  # private, all below
    _call("mount", b"none", os.fsencode(OUT), b"tmpfs", 0, None)


def enter_anothers_namespace():
    with open(f"/proc/{GIVEN['victim']}/ns/mnt") as file:
        _call("setns", file.fileno(), 0)


def use_io_uring():
    os.close(_call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def use_userfaultfd():
    os.close(_call("userfaultfd", 1))  # UFFD_USER_MODE_ONLY


def use_performance_counters():
    about = ctypes.create_string_buffer(128)
    struct.pack_into("=IIQ", about, 0, 1, 128, 1)  # the task clock
    struct.pack_into("=Q", about, 40, 1 << 5)  # of this process, without the kernel
    os.close(_call("perf_event_open", about, 0, -1, -1, 0))


def load_a_program_into_the_kernel():
    about = ctypes.create_string_buffer(128)
    struct.pack_into("=IIII", about, 0, 2, 4, 4, 1)  # an array of one
    os.close(_call("bpf", 0, about, 128))


def read_the_kernels_log():
    _call("klogctl", 3, ctypes.create_string_buffer(64), 64)


# how they are tried ---------------------------------------------------------------------------------------------------


def _refuse(why):
    raise PermissionError(1, why)


def _need(found):
    if not found:
        _refuse("nothing was found")


def _bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _target(link):
    try:
        return os.readlink(link)
    except OSError:
        return ""


ATTEMPTS = [f for n, f in list(globals().items()) if hasattr(f, "__code__") and not n.startswith("_")]


def _tried(attempt):
    """What came of it: 'got through', or why not."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            attempt()
            said = "got through"
        except OSError as e:
            said = f"refused: {e}"
        except BaseException as e:
            said = f"failed: {type(e).__name__}: {e}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        said = answer.read()
    _, status = os.waitpid(pid, 0)
    return said or f"died: {status}"


def _report():
    (OUT / "report.json").write_text(json.dumps({f.__name__: _tried(f) for f in ATTEMPTS}))
