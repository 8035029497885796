"""The recorded trace with changed events, for tests."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded.ndjson.gz")


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]


def edited(folder: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """The trace with each event changed; those for which `edit` gives False are left out."""
    events = [e for e in lines() if edit(e) is not False]
    path = folder / "trace.ndjson"
    path.write_text("".join(json.dumps(e) + "\n" for e in events))
    return path


def of(event: dict[str, Any], *kernels: str) -> bool:
    return bool({event.get("name"), event.get("payload", {}).get("metadata", {}).get("name")} & set(kernels))


def function_only(event: dict[str, Any]) -> None:
    """As where TRITON_FULL_PYTHON_SOURCE is not set."""
    if source := event.get("payload", {}).get("python_source"):
        first, last = source.pop("function_start_line"), source.pop("function_end_line")
        source["code"] = "\n".join(source["code"].splitlines()[first - 1 : last]) + "\n"
