"""Versions of packages that an interpreter has, and what a build is called by them. It builds nothing."""

import hashlib
import importlib.metadata
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from pgo_agent.sandbox.bundle.store import canonical
from pgo_agent.sandbox.errors import EnvironmentFault


def kernel_key(ttgir: bytes, options: Mapping[str, Any], arch: int, version: str) -> str:
    """Return the hash of what a build is made of: TTGIR, options, architecture and compiler."""
    return hashlib.sha256(ttgir + canonical([dict(options), arch, version])).hexdigest()


def triton_version(python: str) -> str:
    return version(python, "triton")


@cache
def version(python: str, package: str) -> str:
    """Return the version of a package that an interpreter has. Raises EnvironmentFault where it has none."""
    if python == sys.executable:
        return importlib.metadata.version(package)
    code = f"import importlib.metadata as m; print(m.version('{package}'))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except OSError as e:
        raise EnvironmentFault(f"{python} cannot be run ({e.strerror})", "give the interpreter's path: --python") from e
    if done.returncode:
        raise EnvironmentFault(f"{python} has no {package}", f"install {package} there, or give another --python")
    return done.stdout.strip()
