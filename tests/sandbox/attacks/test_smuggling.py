"""What a candidate smuggles into places that others read: C in a signature, libraries in a compile cache.

Candidates are real and traced by the product; bundles are real ones with one thing forged.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pgo_agent.sandbox.errors import BadBundle

from tests.sandbox import tracing
from tests.sandbox.attacks.inside import HONEST

if TYPE_CHECKING:
    from tests.sandbox.conftest import Forgery

# C in a signature -----------------------------------------------------------------------------------------------------

SMUGGLED = (
    '*fp16 a) { system("touch FILE"); } //',
    'i32; } __attribute__((constructor)) void f() { system("touch FILE"); } //',
    '*fp16\n#include "/etc/passwd"',
    'tensordesc<fp16[64,64],"); system("touch FILE"); //>',
    "tensordesc<fp16[64,64]>; system(1); //",
    "constexpr /**/",
    "fp16\0",
)


@pytest.mark.parametrize("text", SMUGGLED)
def test_c_smuggled_through_a_signature_is_refused(forgery: "Forgery", text: str) -> None:
    forgery.edit({"step.signature.0": text})
    with pytest.raises(BadBundle, match="argument type is not allowed"):
        forgery.load()


PACKED = """
import sys
from pgo_agent.sandbox.judge.launches import cuda_driver
print(len(cuda_driver.pack([sys.argv[1]], [0])))
"""
LAUNCHER = """
import os, sys
from triton.backends.nvidia import driver
driver.make_launcher
print(driver.compile_module_from_src(
    src="#include <Python.h>\\nstatic struct PyModuleDef d = {PyModuleDef_HEAD_INIT, \\"x\\", 0, -1, 0};\\n"
        "PyMODINIT_FUNC PyInit_x(void) { /* " + sys.argv[1] + " */ return PyModule_Create(&d); }",
    name="x", library_dirs=[], include_dirs=[], libraries=[]))
"""


@pytest.mark.parametrize(("code", "calls"), [(PACKED, False), (LAUNCHER, True)], ids=["ours", "Triton's"])
def test_our_launcher_asks_no_compiler_where_tritons_does(code: str, calls: bool, tmp_path: Path) -> None:
    """A compiler that would be asked to build C of a signature leaves a file behind."""
    for name in ("gcc", "cc", "clang"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    env.pop("CC", None)
    subprocess.run([sys.executable, "-c", code, "*fp16"], env=env, capture_output=True, check=False)
    assert (tmp_path / "called").exists() == calls


# a library in a compile cache -----------------------------------------------------------------------------------------

PLANT = """
import os as _os
from pathlib import Path as _Path

for _folder in (_os.environ["TRITON_CACHE_DIR"], _os.environ["HOME"] + "/.triton/cache"):
    for _name in ("A" * 52, "planted"):
        _place = _Path(_folder, _name)
        _place.mkdir(parents=True, exist_ok=True)
        for _file in ("cuda_utils.so", "__triton_launcher.so", "_copy.cubin", "_copy.ttgir"):
            (_place / _file).write_bytes(b"planted")
print("planted in", _os.environ["TRITON_CACHE_DIR"], flush=True)
"""
LOOK = """
import os as _os
_found = [_os.path.join(d, f) for r in (_os.environ["TRITON_CACHE_DIR"], _os.environ["HOME"])
          for d, _, fs in _os.walk(r) for f in fs if open(_os.path.join(d, f), "rb").read() == b"planted"]
if _found:
    raise RuntimeError(f"here is {_found}")
"""


@pytest.mark.slow
def test_a_library_planted_in_a_compile_cache_is_not_there_for_the_next_process(tmp_path: Path) -> None:
    """Not for another candidate, not for the same one's compiler, and not in the user's own cache."""
    own = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
    before = set(own.rglob("*")) if own.exists() else set()
    made = tracing.write(tmp_path, HONEST)
    b = tracing.builder(tmp_path, made)
    first = b.build(f"{PLANT}\n{made.source}", {"CASES": None}, None)
    second = b.build(f"{LOOK}\n{made.source}", {"CASES": None}, None)
    assert first.ok and second.ok, (first.failures, second.failures)
    assert second.codes == first.codes
    assert (set(own.rglob("*")) if own.exists() else set()) == before


def test_in_a_cache_that_they_share_it_would_be(tmp_path: Path) -> None:
    env = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PLANT], env=env, check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-c", LOOK], env=env, capture_output=True, text=True, check=False)
    assert "RuntimeError: here is" in done.stderr
