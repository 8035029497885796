"""Questions for a judge on another machine: bundles are named by hash, and their files travel beside the question.

What a spool and a cluster share. Paths of one machine mean nothing on another, so the fields that name bundles hold
their hash on the way. Relies on the content store; knows no way of travel.
"""

from collections.abc import Iterator
from typing import Any

from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore, canonical
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.questions import Question
from pgo_agent.sandbox.judge.references import bundle_ref

BUNDLES = "bundles/"  # names of files: bundles/SHA.json, artefacts/SHA.SUFFIX
TAKEN = {"cubin"}  # suffixes of the artefacts that a judge reads


def fields(question: Question[Any]) -> JsonObject:
    """Return what a question asks, with bundles by their hash; where answers are put is the other side's."""
    named: JsonObject = _named({k: v for k, v in question.as_json().items() if k != "shelf"})
    return named


def bundles(x: Any) -> Iterator[str]:
    """Yield every bundle that fields of a request name."""
    if isinstance(x, dict):
        for key, value in x.items():
            if key == "bundle" and isinstance(value, str):
                yield value
            else:
                yield from bundles(value)
    elif isinstance(x, list):
        for value in x:
            yield from bundles(value)


def files(contents: ContentStore, named: JsonObject) -> list[str]:
    """Return the names of the files that a question with these fields needs."""
    return sorted({f for bundle in bundles(named) for f in _files(contents, bundle)})


def data(contents: ContentStore, file: str) -> bytes:
    """Return the bytes of such a file. Raises EnvironmentFault for what the content store lost."""
    sha, _, suffix = file.partition("/")[2].partition(".")
    return canonical(contents.manifest(sha)) if file.startswith(BUNDLES) else contents.get(sha, suffix)


def located(x: Any, contents: ContentStore) -> Any:
    """Return the fields of a request for a judge process, with bundles as paths of a content store."""
    if isinstance(x, dict):
        named = {k: bundle_ref(contents, v).as_json() for k, v in x.items() if k == "bundle" and isinstance(v, str)}
        return {k: located(v, contents) for k, v in x.items()} | named
    return [located(v, contents) for v in x] if isinstance(x, list) else x


def records(answer: JsonObject) -> list[str]:
    """Return the names of the files that an answer names: the records of an instrumented build."""
    listed = answer.get("repeats")
    repeats = listed if isinstance(listed, list) else []
    return [f"artefacts/{r[part]}.{RECORDS}" for r in repeats for part in ("headers", "records")]


def _named(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: v["id"] if k == "bundle" and isinstance(v, dict) else _named(v) for k, v in x.items()}
    return [_named(v) for v in x] if isinstance(x, list | tuple) else x


def _files(contents: ContentStore, bundle: str) -> Iterator[str]:
    yield f"{BUNDLES}{bundle}.json"
    for kernel in contents.manifest(bundle)["kernels"].values():
        yield from (f"artefacts/{sha}.{suffix}" for suffix, sha in kernel["files"].items() if suffix in TAKEN)
