"""`python -m pgo_agent.sandbox.tracer.user_program FOLDER`: runs a user's program on fake CUDA tensors, and watches it.

Runs in the box. FOLDER/request.json names the device, the program, the folder to run it in and the file to watch;
FOLDER/out/result.json gets what `user_calls.py` saw. A program that fails ends the watching, and not what was seen.
"""

import contextlib
import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.imports import heavy


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    with heavy():
        import torch  # noqa: F401 (imported here, used below)
    answer = _watched(folder, request)
    partial = folder / "out" / "result.json.part"
    partial.write_text(json.dumps(answer))
    partial.rename(folder / "out" / "result.json")


def _watched(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    import torch
    from pgo_agent.sandbox import devices
    from pgo_agent.sandbox.tracer import autotune, fake_addresses, fake_cuda_api, fake_gpu, stand_in_backward
    from pgo_agent.sandbox.tracer.capture_ttgir import Capture
    from pgo_agent.sandbox.tracer.user_calls import Watch

    files = {str(folder / name) if not name.startswith("/") else name for name in request["watched"]}
    package = [str(folder / name) if not name.startswith("/") else name for name in request["packages"]]
    program = str(folder / request["cwd"] / request["args"][0]) if request["program"] == "script" else ""

    def around(file: str) -> bool:
        return (
            file.startswith(tuple(f"{p}/" for p in package))
            and file != program
            and not Path(file).name.startswith("test_")
        )

    folders = tuple(f.removesuffix("__init__.py") for f in files if f.endswith("/__init__.py"))

    def watched(file: str) -> bool:
        """Of a package that is named itself, every file is watched: it gives what its modules define."""
        return file in files or (file.startswith(folders) and around(file))

    refusals, addresses = fake_cuda_api.Refusals(), fake_addresses.Addresses()
    watch = Watch(watched, around, addresses, request["launcher"])

    capture = Capture(full=False)

    def launched(launcher: Any, grid: tuple[int, int, int], handle: int, args: tuple[Any, ...]) -> None:
        signature = launcher.src.signature
        facts = watch.aside(_facts, capture.kernel(handle)["ttgir"], signature)
        constants = [n for n, kind in signature.items() if str(kind) == "constexpr"]
        watch.launched(launcher.src.fn, grid, dict(zip(signature, args, strict=True)), constants, facts)

    fake_gpu.install(devices.find(request["device"]), refusals, addresses, launched, capture.resources)
    capture.install()
    autotune.Sites([]).install()
    watch.checks.install()
    stand_in_backward.install()
    torch.nn.Module._apply = fake_gpu.moved
    for owner, names in (
        (torch, ["manual_seed"]),
        (torch.cuda, ["manual_seed", "manual_seed_all", "reset_peak_memory_stats"]),
    ):
        for name in names:
            setattr(owner, name, lambda *a, **k: None)
    torch.Generator = fake_gpu.AnyGenerator
    torch.compile = fake_cuda_api.compiled(lambda function: function)
    os.chdir(folder / request["cwd"])
    if request["program"] == "pytest":
        with contextlib.suppress(ImportError):  # which is told when it runs
            importlib.import_module("pytest")  # under the watch that takes three times as long
    error = ""
    try:
        with fake_gpu.FakeMode(allow_non_fake_inputs=True), watch:
            run(request["program"], request["args"], files)
    except SystemExit as e:
        error = "" if e.code in (None, 0) else f"the program ended with exit code {e.code}"
    except BaseException as e:
        line = [
            f
            for f in traceback.extract_tb(e.__traceback__)
            if f.filename.startswith(str(folder)) or f.filename in files
        ]
        where = f"{Path(line[-1].filename).name}, line {line[-1].lineno}: " if line else ""
        error = f"{where}{type(e).__name__}: {e}"[:2000]
    return watch.as_json() | {"error": error}


def _facts(ttgir: str, signature: dict[str, Any]) -> dict[str, Any]:
    """Return what a kernel's text says: the arguments that it writes through (`stored`, None where it cannot be read)
    and reads through (`loaded`), whether it writes at addresses that it is given as numbers (`behind`), and whether it
    adds floats to memory in any order (`unordered`)."""
    from pgo_agent.sandbox.ttgir import argument_uses

    names = [n for n, kind in signature.items() if str(kind).startswith(("*", "tensordesc", "nvTmaDesc"))]
    uses = argument_uses.of(ttgir, names)
    if uses is None:
        return {"stored": None, "loaded": [], "behind": False, "unordered": False}
    stored = None if uses.stored is None else list(uses.stored)
    return {"stored": stored, "loaded": list(uses.loaded), "behind": uses.behind, "unordered": uses.unordered}


def run(program: str, args: list[str], files: set[str]) -> None:
    """Run a script, a module, pytest, or statements that use what the watched file defines, in the current folder."""
    sys.path.insert(0, str(Path.cwd()))
    if program == "call":
        (text,) = args
        (file,) = files
        names = runpy.run_path(file, run_name=Path(file).stem) if not _importable(file) else vars(_imported(file))
        exec(compile(text, "<call>", "exec"), {**names, "torch": importlib.import_module("torch")})
    elif program == "pytest":
        with contextlib.suppress(ImportError):
            import pytest

            # This plugin comes with our langgraph; its import, under the watch, takes seconds.
            sys.exit(pytest.main(["-p", "no:cacheprovider", "-p", "no:langsmith_plugin", "-q", "-x", *args]))
        raise RuntimeError("pytest is not installed for this interpreter")
    elif program == "module":
        sys.argv = args
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        script = Path(args[0]).resolve()
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")


def _importable(file: str) -> bool:
    return (Path(file).parent / "__init__.py").exists()


def _imported(file: str) -> Any:
    path, names = Path(file), list[str]()
    folder = path.parent
    while (folder / "__init__.py").exists():
        names, folder = [folder.name, *names], folder.parent
    sys.path.insert(0, str(folder))
    return importlib.import_module(".".join([*names, path.stem]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
