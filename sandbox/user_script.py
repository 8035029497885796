"""Runs a user's Python program with some modules' files replaced, and keeps what the program names: by path, alone.

`python user_script.py FOLDER SCRIPT|-m MODULE ARGS`: FOLDER/request.json says which files are replaced by which, which
packages are imported first that take over launches, and the names of the program's variables for its outputs and for
the seconds of its steps. FOLDER then holds `outputs` and answer.json: the seconds, and which of the patches the program
used. It runs with the rights of whoever calls it, in their interpreter, which need not have pgo-agent: nothing but the
standard library is imported, and the torch that the program has.
"""

import importlib.machinery
import importlib.util
import json
import os
import runpy
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType


class Replacing:
    """Finds modules as the others do, and loads those of replaced files from other files."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files, self.used = files, set[str]()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return self._replaced(spec)
        return None

    def _replaced(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        origin = os.path.realpath(spec.origin) if spec.origin else ""
        if origin not in self.files:
            return spec
        self.used.add(origin)
        places = spec.submodule_search_locations
        loader = importlib.machinery.SourceFileLoader(spec.name, self.files[origin])
        new = importlib.util.spec_from_loader(spec.name, loader, origin=self.files[origin], is_package=bool(places))
        assert new is not None
        new.has_location, new.submodule_search_locations = True, places
        return new

    def script(self, path: str) -> str:
        """Return the file to run for a script."""
        real = os.path.realpath(path)
        if real in self.files:
            self.used.add(real)
        return self.files.get(real, path)


def main(folder: Path, words: list[str]) -> None:
    request = json.loads((folder / "request.json").read_text())
    replacing = Replacing(request["files"])
    sys.meta_path.insert(0, replacing)
    module = words[0] == "-m"
    sys.argv = words[1:] if module else words
    sys.path[0] = str(Path.cwd() if module else Path(words[0]).resolve().parent)
    begun = time.perf_counter()
    packages = {folder: _imported(folder) for folder in request["packages"]}
    if module:
        names = runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        names = runpy.run_path(replacing.script(words[0]), run_name="__main__")
    whole = time.perf_counter() - begun
    used = [f for f, package in packages.items() if package.patched is not None and package.patched.launches]
    answer = {
        "used": [*sorted(replacing.used), *used],
        "whole": whole,
        "seconds": _seconds(names.get(request["seconds"])),
    }
    answer["outputs"] = keep(names.get(request["outputs"]), folder / "outputs")
    (folder / "answer.json").write_text(json.dumps(answer))


def _imported(folder: str) -> ModuleType:
    """Import a package that takes over launches, by its folder."""
    sys.path.append(str(Path(folder).parent))
    return importlib.import_module(Path(folder).name)


def _seconds(value: object) -> list[float]:
    return [float(v) for v in value] if isinstance(value, list | tuple) else []


def keep(value: object, path: Path) -> list[str]:
    """Write named tensors and numbers for the comparison, a program without torch as JSON; return the names.

    Raises TypeError for what is neither.
    """
    found = list(_flat("", value if isinstance(value, dict) else {} if value is None else {"outputs": value}))
    named = dict(found)
    if len(named) < len(found):
        raise TypeError("two outputs have one name: a key of a dict must not hold the names of others")
    if named and "torch" in sys.modules:
        import torch

        tensors = dict[str, torch.Tensor]()
        for name, part in named.items():
            try:
                tensors[name] = torch.as_tensor(part).detach().cpu()
            except (TypeError, ValueError, RuntimeError):
                kind = type(part).__name__
                words = "give tensors, numbers, or lists of equal length and dicts of them, and leave out what is None"
                raise TypeError(f"{name} is a {kind}: {words}") from None
        torch.save(tensors, path)
    elif named:
        path.write_text(json.dumps(named))
    return list(named)


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield what stands in dicts, and in lists of tensors, by names like `layers.0.hidden`."""
    if not isinstance(value, dict | list | tuple) or not _holds_tensors(value):
        yield name, value
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _flat(f"{name}.{key}" if name else str(key), part)


def _holds_tensors(value: object) -> bool:
    """Whether it is a tensor of any dimension, or a list of such, or a dict."""
    if isinstance(value, list | tuple):
        return any(map(_holds_tensors, value))
    return isinstance(value, dict) or bool(getattr(value, "shape", ()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
