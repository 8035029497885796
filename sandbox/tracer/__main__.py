"""`python -m pgo_agent.sandbox.tracer FOLDER`: reads FOLDER/request.json, answers FOLDER/out/result.json.

Runs in the box. The request names files inside the folder, the device, and the cases to trace; the answer holds plans
and, beside it, one .ttgir for each kernel; where the request says `located`, its .located (TTGIR with locations) and
.ttir as well. A request with `in_place` asks what PyTorch's compiler writes for the reference (`inductor/answer.py`),
one with `kernels` for kernels that it wrote somewhere else, as plain Triton (`inductor/given.py`).
Where plans need cubins, it ends with the status NEEDS_CUBINS and no answer: it is to be run again, with `--full`.
Nothing is printed but what the candidate prints.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgo_agent.sandbox.imports import heavy
from pgo_agent.sandbox.tracer import NEEDS_CUBINS

if TYPE_CHECKING:
    from pgo_agent.sandbox.tracer.session import Session


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    full = "--full" in sys.argv
    if full:
        os.environ["TRITON_CACHE_DIR"] += "-full"  # the other one may hold builds that were stopped at TTGIR
    with heavy():
        from pgo_agent.sandbox.tracer.capture_ttgir import NeedsCubin
        from pgo_agent.sandbox.tracer.session import Session  # noqa: F401 (imported here, used below)

    try:
        special = _compiled if "in_place" in request else _given if "kernels" in request else None
        answer = special(folder, request) if special else _answer(folder, request, full)
    except NeedsCubin:
        sys.exit(NEEDS_CUBINS)
    partial = folder / "out" / "result.json.part"
    partial.write_text(json.dumps(answer))
    partial.rename(folder / "out" / "result.json")


def _compiled(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Answer what PyTorch's compiler writes for the target's reference."""
    from pgo_agent.sandbox.tracer.inductor import answer

    try:
        return answer.answer(folder, request)
    except (Exception, SystemExit) as e:
        return {"error": _blame(e, folder)}


def _given(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Answer kernels of PyTorch's compiler as plain Triton kernels."""
    from pgo_agent.sandbox.tracer.inductor import given

    try:
        return given.answer(folder, request)
    except (Exception, SystemExit) as e:
        return {"error": _blame(e, folder)}


def _answer(folder: Path, request: dict[str, Any], full: bool) -> dict[str, Any]:
    from pgo_agent.sandbox.tracer.session import Session

    try:
        files = folder / request["contract"], folder / request["candidate"]
        session = Session(request["device"], *files, full, bool(request.get("located")))
        described = session.describe()
    except (Exception, SystemExit) as e:
        return {"error": _blame(e, folder)}
    traced: dict[str, dict[str, Any]] = {s: {} for s in request["cases"]}
    listed: dict[str, int] = {}  # case -> configurations that it has, of which no more than the limit are traced
    limit = 1 if request.get("again") else request["limit"]
    session.sites.varied = request.get("varied")
    for s, n in _again(request, described) if request.get("again") else _asked(request, described):
        known = request.get("known", {}).get(f"{s}/{n}")
        called = session.trace(described["sets"][s][n], limit, bool(request.get("sample")), known)
        if s in traced:
            traced[s].setdefault(n, []).extend(called)
            listed[f"{s}/{n}"] = session.listed
        _write(session, folder / "out")
    used = _write(session, folder / "out")
    kernels = {key: {"name": k["name"], "options": k["options"]} | _shape(k) for key, k in used.items()}
    return {"described": described, "traced": traced, "kernels": kernels, "listed": listed}


def _asked(request: dict[str, Any], described: dict[str, Any]) -> list[tuple[str, str]]:
    return [(s, n) for s in request["cases"] for n in _names(request, described, s)]


def _again(request: dict[str, Any], described: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the small cases, which are other sizes, and after them those of the request in reverse order, twice."""
    return [("SMALL", n) for n in described["sets"]["SMALL"]] + 2 * _asked(request, described)[::-1]


def _write(session: "Session", out: Path) -> dict[str, dict[str, Any]]:
    """Write the texts of the kernels so far, which shows how far it is; return the kernels by their keys."""
    kernels = {k["key"]: k for k in session.capture.texts.values()}
    for key, kernel in kernels.items():
        for suffix in (s for s in ("ttgir", "located", "ttir") if s in kernel):
            (out / f"{key}.{suffix}").write_text(kernel[suffix])
    return kernels


def _shape(kernel: dict[str, Any]) -> dict[str, Any]:
    return {"shape": kernel["shape"]} if "shape" in kernel else {}


def _names(request: dict[str, Any], described: dict[str, Any], kind: str) -> list[str]:
    chosen = request["cases"][kind]
    names = list(described["sets"][kind])
    return names if chosen is None else [n for n in chosen if n in names]


def _blame(error: BaseException, folder: Path) -> dict[str, Any]:
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent.parent == folder]
    line = frames[-1].lineno if frames else None
    file = Path(frames[-1].filename).name if frames else None
    return {"kind": "raised", "type": type(error).__name__, "message": str(error)[:4000], "line": line, "file": file}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
