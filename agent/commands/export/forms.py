"""The forms in which a candidate leaves, each as files with their texts: nothing is written here.

- module: one file, NAME.py, whose kernel() takes what the target's takes.
- flashinfer: solution.json, a Solution of flashinfer-bench 0.1.2.
- hf-kernels: a folder as Hugging Face's `kernels` 0.17 loads it, and as `kernel-builder` builds it (`build.toml`).
- launches: a package that takes over a traced kernel's launches in a program that imports it.
- kernelbench: NAME.py with class ModelNew, for a target that `init` made of a problem in KernelBench's form.
"""

import json
import re
from collections.abc import Callable, Mapping

from pgo_agent.agent.commands.export import launches, model_new, standalone
from pgo_agent.agent.commands.export.chosen import Chosen
from pgo_agent.sandbox.errors import UsageFault

AUTHOR = "pgo-agent"
ENTRY = "main.py"
EDITION = 5  # of build.toml
DEFINITION = re.compile(r"^# Definition: (\S+)$", re.M)  # what `init` writes into a target of a definition
Files = Mapping[str, str]  # path in the folder -> text


def module(chosen: Chosen) -> Files:
    return {f"{_python_name(chosen)}.py": standalone.text(chosen)}


def flashinfer(chosen: Chosen) -> Files:
    """Its kernel() is the entry point, and returns its results. The target's name stands for a definition where it was
    made of none."""
    text = standalone.text(chosen)
    defined = DEFINITION.search(chosen.candidate.source)
    solution = {
        "name": f"{_python_name(chosen)}_{chosen.candidate.id[:8]}",
        "definition": defined[1] if defined else chosen.name,
        "author": AUTHOR,
        "spec": {
            "language": "triton",
            "target_hardware": ["cuda"],
            "entry_point": f"{ENTRY}::{standalone.LAUNCHER}",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": ENTRY, "content": text}],
        "description": " ".join(chosen.said),
    }
    return {"solution.json": json.dumps(solution, indent=2) + "\n"}


def hf_kernels(chosen: Chosen) -> Files:
    name, text, licence = _python_name(chosen), standalone.text(chosen), standalone.licence(chosen)
    package = (
        f'"""{chosen.said[0]}"""\n\nfrom .{name} import {standalone.LAUNCHER}\n\n__all__ = ["{standalone.LAUNCHER}"]\n'
    )
    kebab = name.replace("_", "-")
    build = (
        f'[general]\nname = "{kebab}"\nversion = 1\nlicense = {json.dumps(licence)}\nbackends = ["cuda"]\n'
        f"edition = {EDITION}\n\n[torch-noarch]\n"
    )
    metadata = {
        "name": kebab,
        "id": f"{name}_cuda_{chosen.candidate.id[:8]}",
        "version": 1,
        "license": licence,
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    built = "build/torch-cuda"
    return {
        "build.toml": build,
        "README.md": _card(chosen, kebab, licence),
        f"torch-ext/{name}/__init__.py": package,
        f"torch-ext/{name}/{name}.py": text,
        f"{built}/metadata.json": json.dumps(metadata, indent=2) + "\n",
        f"{built}/__init__.py": text,
    }


def kernelbench(chosen: Chosen) -> Files:
    return {f"{_python_name(chosen)}.py": model_new.text(chosen)}


FORMS: Mapping[str, Callable[[Chosen], Files]] = {
    "module": module,
    "flashinfer": flashinfer,
    "hf-kernels": hf_kernels,
    "kernelbench": kernelbench,
    "launches": launches.files,
}


def of(form: str) -> Callable[[Chosen], Files]:
    """Return a form by its name. Raises UsageFault for another."""
    if form not in FORMS:
        raise UsageFault(f"there is no form called {form}", f"choose one of: {', '.join(FORMS)}")
    return FORMS[form]


def _card(chosen: Chosen, kebab: str, licence: str) -> str:
    """Return the page that the Hub shows."""
    lines = [*chosen.said, *standalone.licences(chosen)]
    text = "\n".join(f"- {line}" for line in lines)
    return f"---\nlibrary_name: kernels\nlicense: {json.dumps(licence)}\n---\n\n# {kebab}\n\n{text}\n"


def _python_name(chosen: Chosen) -> str:
    """Return a name that a module may have."""
    name = re.sub(r"\W", "_", chosen.name).lower().strip("_") or "exported"
    return f"k_{name}" if not name[0].isalpha() else name
