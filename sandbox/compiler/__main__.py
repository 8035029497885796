"""`python -m pgo_agent.sandbox.compiler FOLDER`: compiles FOLDER/in/*.ttgir as FOLDER/request.json says.

Runs in the box. For each kernel it leaves out/KEY.json and, if it compiled, .cubin and .ptx; with the option `lines`
also .sass, the code with the lines of the TTGIR that it comes from, and .live, how many registers hold a value at each
instruction. With `"only": "read"` MLIR parses and verifies the text and prints it as .ttgir, and nothing is compiled;
with `"only": "amdgcn"` in/KEY.ttir is compiled for AMD's `target`, which leaves .ttgir, .located and .amdgcn. Each
kernel gets a forked child with a deadline; what MLIR and ptxas print is caught and handed on as the diagnostic.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.compiler import failure

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"

KERNEL_SECONDS = 120.0  # one kernel; attention takes 1 s, the slowest seen 12 s (60 s with the sanitizer)


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    from pgo_agent.sandbox import tools
    from pgo_agent.sandbox.compiler import finish, static  # noqa: F401 (imported once, before the children are forked)

    tools.find(request["arch"], "nvdisasm")

    waiting, running = list(request["kernels"]), dict[int, tuple[dict[str, Any], float]]()
    while waiting or running:
        while waiting and len(running) < request["jobs"]:
            kernel = waiting.pop(0)
            running[_child(folder, kernel, request["arch"])] = (kernel, time.monotonic())
        _reap(folder, running)


def _child(folder: Path, kernel: dict[str, Any], arch: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()  # so that a deadline takes ptxas with it
    log = os.open(folder / "out" / f"{kernel['key']}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        {"read": _read, "amdgcn": _assemble}.get(kernel.get("only", ""), _compile)(folder, kernel, arch)
        code = 0
    except BaseException as e:
        print("".join(traceback.format_exception_only(e)), flush=True)
    finally:
        os._exit(code)


def _read(folder: Path, kernel: dict[str, Any], arch: int) -> None:
    from pgo_agent.sandbox.compiler import finish, records

    if kernel.get("records"):
        records.load()
    module, _ = finish.read(folder / "in" / f"{kernel['key']}.ttgir", arch)
    (folder / "out" / f"{kernel['key']}.ttgir").write_text(module.str_nodebug())
    _answer(folder, kernel["key"], {"facts": finish.facts(module)})


def _assemble(folder: Path, kernel: dict[str, Any], _arch: int) -> None:
    from pgo_agent.sandbox.compiler import amd

    key, out = kernel["key"], folder / "out"
    made = amd.assemble(folder / "in" / f"{key}.ttir", out / f"{key}.ttgir", kernel["target"], kernel["options"])
    (out / f"{key}.located").write_text(made.located)
    (out / f"{key}.amdgcn").write_text(made.amdgcn)
    _answer(folder, key, {"facts": made.facts})


def _compile(folder: Path, kernel: dict[str, Any], arch: int) -> None:
    from pgo_agent.sandbox.compiler import finish, listing, static
    from triton import knobs

    started, key, out = time.monotonic(), kernel["key"], folder / "out"
    source = folder / "in" / f"{key}.ttgir"
    lines = bool(kernel["options"].get("lines"))
    knobs.compilation.disable_line_info = not lines
    built = finish.finish(source, arch, kernel["options"])
    sys.stdout.flush()
    log = (out / f"{key}.log").read_text(errors="replace")
    (out / f"{key}.cubin").write_bytes(built.cubin)
    (out / f"{key}.ptx").write_text(built.ptx)
    if lines:
        for suffix, text in listing.listings(out / f"{key}.cubin", knobs.nvidia.nvdisasm.path).items():
            (out / f"{key}.{suffix}").write_text(text)
    found = static.from_log(log) | {"shared": built.metadata["shared"]}
    if kernel["options"].get("records"):
        found |= {"scopes": built.scopes}
    elif not kernel["options"].get("sanitize"):  # long to disassemble, and no news
        found |= static.from_ttgir(source.read_text())
        found |= {"sass": static.from_sass(out / f"{key}.cubin", knobs.nvidia.nvdisasm.path)}
    seconds = round(time.monotonic() - started, 3)
    _answer(folder, key, {"metadata": built.metadata, "static": found, "seconds": seconds})


def _reap(folder: Path, running: dict[int, tuple[dict[str, Any], float]]) -> None:
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid in running:
        kernel, since = running.pop(pid)
        if status == signal.SIGKILL and time.monotonic() - since < KERNEL_SECONDS:
            os._exit(128 + signal.SIGKILL)  # somebody killed it: the whole process is started again
        if status:
            log = (folder / "out" / f"{kernel['key']}.log").read_text(errors="replace")
            _answer(folder, kernel["key"], {"error": failure.told(log, status, KERNEL_SECONDS)})
        return
    for pid, (_kernel, since) in running.items():
        if time.monotonic() - since > KERNEL_SECONDS:
            os.killpg(pid, signal.SIGKILL)
    time.sleep(0.005)


def _answer(folder: Path, key: str, answer: dict[str, Any]) -> None:
    part = folder / "out" / f"{key}.json.part"
    part.write_text(json.dumps(answer))
    part.rename(folder / "out" / f"{key}.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
