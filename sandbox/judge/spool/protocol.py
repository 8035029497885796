"""The form of requests to a judge elsewhere and of its answers: types and bounds of every field.

A request names bundles by hash and its target by digest; no field is a path or code. An answer of the right form is
trusted; any other is refused before it is used. Relies on `forms.py` and `bundle/decode.py`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, get_args

from pgo_agent.sandbox import devices, json_codec
from pgo_agent.sandbox.bundle.decode import integer, keyed, need, sha, word
from pgo_agent.sandbox.bundle.store import canonical
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.gate import reason
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import JsonObject, Malformed
from pgo_agent.sandbox.judge import by_hash
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.questions import KINDS
from pgo_agent.sandbox.judge.spool.forms import (
    LONGEST,
    MOST,
    Form,
    any_number,
    case_name,
    check_fields,
    count,
    duration,
    flag,
    line,
    list_of,
    map_of,
    number,
    object_of,
    optional,
    path,
    scalar,
    text,
)

VERSION = 1
HELLO = "hello"
MANY = 1 << 40  # bytes from a kernel's start, at most, to what it calls
Kind = Literal["answer", "ended", "fault", "refused"]


@dataclass(frozen=True)
class Request:
    """One command with its fields, for one target and one kind of GPU."""

    run: str
    target: str  # digest
    device: str  # the GPU that it was compiled for, as its driver calls it
    do: str
    fields: Mapping[str, Any]  # as in FIELDS; bundles by their hash
    files: tuple[str, ...]  # what the answering side reads: `bundles/SHA.json`, `artefacts/SHA.cubin`
    process: str = ""  # requests of a run with the same name may share a process; empty: with all such
    again: int = 0  # how often the same was asked before

    def as_bytes(self) -> bytes:
        return canonical({"schema": VERSION} | vars(self) | {"files": list(self.files)})

    @property
    def sha(self) -> str:
        """The hash of its bytes, which is its name."""
        return hashlib.sha256(self.as_bytes()).hexdigest()

    def once_more(self) -> "Request":
        return replace(self, again=self.again + 1)


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    request: str  # its sha
    kind: Kind
    said: Mapping[str, Any]  # by kind: of the command; stage, timed_out, detail; type, message, hint; message, hint
    environment: Environment  # of the machine that answers
    seconds: float  # in which its GPU was held
    artefacts: tuple[str, ...] = ()  # `artefacts/SHA.SUFFIX` that it names

    def as_bytes(self) -> bytes:
        said = {"environment": self.environment.as_json(), "artefacts": list(self.artefacts)}
        return json.dumps({"schema": VERSION} | vars(self) | said).encode()


def request(data: bytes) -> Request:
    """Read a request. Raises BadBundle."""
    names = {"schema", "run", "target", "device", "do", "fields", "files", "process", "again"}
    d = keyed(_json(data, _refuse), names, "request")
    need(type(d["schema"]) is int and d["schema"] == VERSION, "a request of another version")
    do = word(d["do"], "command")
    need(do in FIELDS, f"{do[:40]!r} is no command that may be asked")
    check_fields(d["fields"], FIELDS[do], do)
    run, device = (word(d[name], name) for name in ("run", "device"))
    process = word(d["process"], "process") if d["process"] != "" else ""
    again, files = integer(d["again"], 0, 1 << 30, "again"), list_of(path)(d["files"])
    need({f"bundles/{b}.json" for b in by_hash.bundles(d["fields"])} <= set(files), "a bundle is not among the files")
    fields = json_codec.from_json(JsonObject, d["fields"])
    return Request(run, sha(d["target"]), device, do, fields, tuple(files), process, again)


def answer(data: bytes, to: Request) -> Answer:
    """Read the answer to the request `to`. Raises BadBundle."""
    names = {"schema", "request", "kind", "said", "environment", "seconds", "artefacts"}
    d = keyed(_json(data), names, "answer")
    need(type(d["schema"]) is int and d["schema"] == VERSION, "an answer of another version")
    need(d["request"] == to.sha, "the answer to another request")
    forms: dict[str, Form] = {
        "answer": lambda x: _answer(x, to.do),
        "ended": object_of(stage=text, timed_out=flag, detail=text),
        "fault": object_of(type=text, message=text, hint=text),
        "refused": object_of(message=line, hint=line),
    }
    kinds: tuple[Kind, ...] = get_args(Kind)
    kind = next((k for k in kinds if k == d["kind"]), None)
    if kind is None:
        raise BadBundle("kind of an answer")
    forms[kind](d["said"])
    if kind == "answer":
        _typed(d["said"], to.do)
    said = json_codec.from_json(JsonObject, d["said"])
    seconds, artefacts = number(d["seconds"]), list_of(path)(d["artefacts"])
    return Answer(to.sha, kind, said, _environment(d["environment"]), seconds, tuple(artefacts))


def artefacts(data: bytes) -> list[str]:
    """Return the files that any answer names. Raises BadBundle."""
    content = _json(data)
    need(isinstance(content, dict) and "artefacts" in content, "an answer without its artefacts")
    named: list[str] = list_of(path)(content["artefacts"])
    return named


def mismatch(gpu: object, wanted: str) -> tuple[str, str]:
    """Return the message and the hint for a GPU that answers but is not the one that was compiled for."""
    device = devices.named(gpu) if isinstance(gpu, str) else None
    what = f"the machine that answers has {f'an {gpu}' if gpu else 'no GPU'}, and the run compiles for {wanted}"
    other = f", or start the run again with --device {device.key}" if device else ""
    return what, f"let a machine with an {wanted} answer{other}"


# JSON -----------------------------------------------------------------------------------------------------------------


def _refuse(x: str) -> NoReturn:
    raise BadBundle(f"{x[:40]} is no number")


def _json(data: bytes, constant: Callable[[str], Any] | None = None) -> Any:
    """Read JSON. `constant` replaces NaN and infinities, which the error of a wrong result may be."""
    try:
        return json.loads(data, parse_constant=constant)
    except (RecursionError, ValueError) as e:
        raise BadBundle(f"not JSON: {type(e).__name__}") from None


def _kind(x: Any) -> str:
    need(type(x) is str and x in list(reason.Kind), "what a part of a reason is")
    return str(x)


# requests -------------------------------------------------------------------------------------------------------------

_PICK = object_of(bundle=sha, choice=case_name)
_SIDE = map_of(_PICK, 1)
_CASES = list_of(case_name)
_AGAINST: dict[str, Form] = {
    "incumbent": _SIDE,
    "shipped": _SIDE,
    "tuned": optional(_SIDE),
    "public": _CASES,
    "held_out": _CASES,
    "weights": optional(map_of(number)),
    "no_slower": optional(flag),
}
FIELDS: dict[str, Mapping[str, Form]] = {
    HELLO: {},
    "sweep": {"entries": list_of(object_of(bundle=sha, case=case_name, choice=case_name, own=optional(flag)))},
    "look": {"candidate": object_of(bundle=sha), **_AGAINST},
    "judge": {"candidate": object_of(bundle=sha), **_AGAINST},
    "confirm": {"candidate": _SIDE, **_AGAINST},
    "final": {"sides": map_of(_SIDE, 1), "cases": _CASES, "compile_reference": optional(flag)},
    "race": {"bundle": sha, "case": case_name, "choice": case_name, "stress": flag, "sanitized": optional(flag)},
    "idle": {"case": case_name, "candidate": _SIDE, "shipped": _SIDE},
    "numerics": {"candidate": _SIDE, "stage": case_name},
    "same_bits": {"public": _CASES, "candidate": _SIDE, "own": _SIDE},
    "timeline": {
        "case": case_name,
        "kernel": sha,
        "repeats": count(1, 64),
        "blocks": count(1, 1 << 16),
        "instrumented": _PICK,
        "plain": _PICK,
    },
    "peaks": {"case": case_name},
    "counters": {"case": case_name, "kernel": sha, "plain": _PICK},
}  # every command that a run asks; `open`, whose fields are paths, is the answering side's own

# answers --------------------------------------------------------------------------------------------------------------

_TIMES = map_of(map_of(list_of(duration)))  # case -> side -> ms
_JUDGED_BY_TIME = {Verdict.ACCEPTED, Verdict.NOT_SLOWER, Verdict.SLOWER, Verdict.UNDECIDED}
_PASSED = {Verdict.ACCEPTED, Verdict.NOT_SLOWER}


def _answer(x: Any, do: str) -> None:
    if do not in ANSWERS:
        _verdict(x)
        need(do in ("judge", "confirm") or x["verdict"] not in _PASSED, f"{do} accepts nothing")
        return
    check_fields(x, ANSWERS[do], "answer")
    whole = set(ANSWERS[do]) - {"problem"}
    need(do not in ("timeline", "peaks", "counters") or "problem" in x or set(x) == whole, "half an answer")


def _typed(x: Any, do: str) -> None:
    """Check that what has the form of an answer can be read as one."""
    try:
        json_codec.from_json(KINDS[do].answer, x)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise BadBundle(f"an answer of another type: {e}"[:300]) from None


def _environment(x: Any) -> Environment:
    map_of(scalar)(x)
    try:
        return Environment.from_json(x)
    except Malformed as e:
        raise BadBundle(f"environment: {e}"[:300]) from None


def _verdict(x: Any) -> None:
    """Check a verdict. One on time must name the configurations, and an accepted one its speedup."""
    forms = {"verdict": text, "stage": text, "reason": text, "evidence": map_of(lambda _: None)}
    check_fields(x, forms | {"why": optional(_WHY), "coverage": optional(_COVERAGE)}, "verdict")
    need(x["verdict"] in list(Verdict), "no verdict that is known")
    evidence, timed = x["evidence"], x["stage"] in ("quick", "time", "confirm") and x["verdict"] in _JUDGED_BY_TIME
    if timed:
        map_of(case_name, 1)(evidence.get("choices"))
    for stage in ("quick", "time"):
        optional(_TIMES)(evidence.get(stage))
    speedup = optional(list_of(number, 3))
    speedup(evidence.get("speedup"))
    need(x["verdict"] not in _PASSED or len(evidence.get("speedup") or ()) == 3, f"{x['verdict']} without a speedup")
    optional(list_of(_STAGE))(evidence.get("stages"))


_COVERAGE = object_of(counts=map_of(list_of(count(0, 1 << 62), 2)), skipped=map_of(text))
_WHY = list_of(
    object_of(
        kind=_kind,
        text=text,
        case=optional(text),
        output=optional(count(0, MOST)),
        measured=optional(any_number),
        bound=optional(any_number),
    )
)
_STAGE = object_of(
    stage=text,
    verdict=text,
    reason=text,
    why=optional(_WHY),
    seconds=number,
    found=optional(map_of(lambda _: None)),
    coverage=optional(_COVERAGE),
)
_ENTRY = object_of(
    bundle=sha,
    case=case_name,
    choice=case_name,
    own=optional(flag),
    problem=text,
    ms=list_of(duration),
    check=optional(map_of(lambda _: None)),
    finalist=optional(flag),
)
_COUNT = count(0, 1 << 62)
_SEEN = object_of(offset=count(-MANY, MANY), text=text, executed=_COUNT, stalls=map_of(_COUNT))
_COUNTED = object_of(
    kernel=text, metrics=map_of(object_of(value=any_number, unit=text)), instructions=list_of(_SEEN, LONGEST)
)
_REPEAT = object_of(headers=sha, records=sha, blocks=count(0, 1 << 31), fetched=count(0, 1 << 31))
ANSWERS: dict[str, Mapping[str, Form]] = {
    HELLO: {},
    "sweep": {"entries": list_of(_ENTRY)},
    "final": {"times": _TIMES, "uncompiled": optional(map_of(text)), "libraries": optional(map_of(map_of(text)))},
    "idle": {"idle": list_of(text)},
    "same_bits": {"differs": text},
    "timeline": {
        "problem": optional(text),
        "repeats": optional(list_of(_REPEAT, 64)),
        "block_bytes": optional(count(1, 1 << 31)),
        "warps": optional(count(1, 64)),
        "same_outputs": optional(flag),
        "plain_ms": optional(list_of(duration)),
        "instrumented_ms": optional(list_of(duration)),
    },
    "peaks": {"problem": optional(text), "flops": optional(number), "moved": optional(number)},
    "counters": {"problem": optional(text), "tool": optional(line), "facts": optional(_COUNTED)},
}  # of commands that answer no verdict
