"""`python -m pgo_agent.sandbox.compiler FOLDER`: compiles FOLDER/in/*.ttgir as FOLDER/request.json says.

Runs in the box. For each kernel it leaves out/KEY.json and, if it compiled, .cubin and .ptx; with the option `lines`
also .sass, the code with the lines of the TTGIR that it comes from, and .live, how many registers hold a value at each
instruction. With `"only": "read"` MLIR parses and verifies the text and prints it as .ttgir, and nothing is compiled;
with `"only": "amdgcn"` in/KEY.ttir is compiled for AMD's `target`, which leaves .ttgir, .located and .amdgcn. Each
kernel gets a forked child with a deadline; what MLIR and ptxas print is caught and handed on as the diagnostic. One
child then has nvdisasm list the SASS of many finished kernels, of those that cannot be read without it.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.compiler import error_text

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"

GROUP = 16  # kernels that are listed at a time
DONE, UNLISTED = "json", "unlisted"  # suffixes of a kernel's answer, and of one that lacks its SASS
KERNEL_SECONDS = 120.0  # one kernel; attention takes 1 s, the slowest seen 12 s (60 s with the sanitizer)


@dataclass(frozen=True)
class Job:
    """What a child does for these kernels."""

    keys: tuple[str, ...]
    work: Callable[[], None]
    lists: bool = False  # the SASS of kernels that are compiled

    @property
    def log(self) -> str:
        return f"{self.keys[0]}{'.sass' if self.lists else ''}.log"


Running = dict[int, tuple[Job, float]]  # by process: what it does, and since when
Listing = Callable[[Sequence[str]], Job]


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    from pgo_agent.sandbox.compiler import backend_stages, nvidia_tools, sass_mix, static  # noqa: F401 (imported once, before forking)

    nvidia_tools.find(request["arch"], "nvdisasm")

    running, unlisted = Running(), list[str]()
    waiting = [_job(folder, kernel, request["arch"]) for kernel in request["kernels"]]
    listing = partial(_listing, folder, request["arch"])
    while waiting or running or unlisted:
        while len(running) < request["jobs"] and (job := _next(waiting, unlisted, running, listing)):
            running[_child(folder, job)] = (job, time.monotonic())
        unlisted += _reap(folder, running, waiting, listing)


def _job(folder: Path, kernel: dict[str, Any], arch: int) -> Job:
    work = {"read": _read, "amdgcn": _assemble}.get(kernel.get("only", ""), _compile)
    return Job((kernel["key"],), partial(work, folder, kernel, arch))


def _listing(folder: Path, arch: int, keys: Sequence[str]) -> Job:
    return Job(tuple(keys), partial(_list, folder, keys, arch), lists=True)


def _next(waiting: list[Job], unlisted: list[str], running: Running, listing: Listing) -> Job | None:
    compiling = waiting or any(not job.lists for job, _ in running.values())
    if len(unlisted) >= GROUP or (unlisted and not compiling):
        group = unlisted[:GROUP]
        del unlisted[:GROUP]
        return listing(group)
    return waiting.pop(0) if waiting else None


def _child(folder: Path, job: Job) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()  # so that a deadline takes ptxas with it
    log = os.open(folder / "out" / job.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        job.work()
        code = 0
    except BaseException as e:
        print("".join(traceback.format_exception_only(e)), flush=True)
    finally:
        os._exit(code)


def _read(folder: Path, kernel: dict[str, Any], arch: int) -> None:
    from pgo_agent.sandbox.compiler import backend_stages, proton

    if kernel.get("records"):
        proton.load()
    module, _ = backend_stages.read(folder / "in" / f"{kernel['key']}.ttgir", arch)
    (folder / "out" / f"{kernel['key']}.ttgir").write_text(module.str_nodebug())
    _answer(folder, kernel["key"], {"facts": backend_stages.facts(module)})


def _assemble(folder: Path, kernel: dict[str, Any], _arch: int) -> None:
    from pgo_agent.sandbox.compiler import amd

    key, out = kernel["key"], folder / "out"
    assembled = amd.assemble(folder / "in" / f"{key}.ttir", out / f"{key}.ttgir", kernel["target"], kernel["options"])
    (out / f"{key}.located").write_text(assembled.located)
    (out / f"{key}.amdgcn").write_text(assembled.amdgcn)
    _answer(folder, key, {"facts": assembled.facts})


def _compile(folder: Path, kernel: dict[str, Any], arch: int) -> None:
    from pgo_agent.sandbox.compiler import backend_stages, nvdisasm, sass_mix, static
    from triton import knobs

    started, key, out = time.monotonic(), kernel["key"], folder / "out"
    source = folder / "in" / f"{key}.ttgir"
    lines, records, sanitized = (bool(kernel["options"].get(name)) for name in ("lines", "records", "sanitize"))
    plain = not lines and not records and not sanitized  # nobody asks for the SASS mix of the others
    knobs.compilation.disable_line_info = not lines
    built = backend_stages.finish(source, arch, kernel["options"])
    sys.stdout.flush()
    log = (out / f"{key}.log").read_text(errors="replace")
    (out / f"{key}.cubin").write_bytes(built.cubin)
    (out / f"{key}.ptx").write_text(built.ptx)
    if lines:
        for suffix, text in nvdisasm.listings(out / f"{key}.cubin", knobs.nvidia.nvdisasm.path).items():
            (out / f"{key}.{suffix}").write_text(text)
    facts = static.from_log(log) | {"shared": built.metadata["shared"]}
    if records:
        facts |= {"scopes": built.scopes}
    elif plain:
        facts |= static.from_ttgir(source.read_text())
    mix = sass_mix.of_words(built.cubin, arch) if plain else None
    if mix:
        facts |= {"sass": mix}
    seconds = round(time.monotonic() - started, 3)
    answer = {"metadata": built.metadata, "static": facts, "seconds": seconds}
    _answer(folder, key, answer, DONE if mix or not plain else UNLISTED)


def _list(folder: Path, keys: Sequence[str], arch: int) -> None:
    from pgo_agent.sandbox.compiler import sass_mix
    from triton import knobs

    mixes = sass_mix.mixes([folder / "out" / f"{k}.cubin" for k in keys], arch, knobs.nvidia.nvdisasm.path)
    for key, mix in zip(keys, mixes, strict=True):
        answer = json.loads((folder / "out" / f"{key}.{UNLISTED}").read_text())
        answer["static"] |= {"sass": mix}
        _answer(folder, key, answer)


def _reap(folder: Path, running: Running, waiting: list[Job], listing: Listing) -> list[str]:
    """Take note of a child that has ended, and end one that takes too long. Return what is to be listed now.

    Kernels that could not be listed together wait to be listed one by one: a failure stays with its kernel.
    """
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid in running:
        job, since = running.pop(pid)
        if status == signal.SIGKILL and time.monotonic() - since < KERNEL_SECONDS:
            os._exit(128 + signal.SIGKILL)  # somebody killed it: the whole process is started again
        if status and len(job.keys) > 1:
            waiting += [listing([key]) for key in job.keys]
            return []
        if status:
            log = (folder / "out" / job.log).read_text(errors="replace")
            _answer(folder, job.keys[0], {"error": error_text.describe(log, status, KERNEL_SECONDS)})
            return []
        return [] if job.lists else [k for k in job.keys if (folder / "out" / f"{k}.{UNLISTED}").exists()]
    for pid, (_job, since) in running.items():
        if time.monotonic() - since > KERNEL_SECONDS:
            os.killpg(pid, signal.SIGKILL)
    time.sleep(0.005)
    return []


def _answer(folder: Path, key: str, answer: dict[str, Any], suffix: str = DONE) -> None:
    part = folder / "out" / f"{key}.{suffix}.part"
    part.write_text(json.dumps(answer))
    part.rename(folder / "out" / f"{key}.{suffix}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
