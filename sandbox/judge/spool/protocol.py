"""The form of requests to a judge elsewhere and of its answers: types and bounds of every field.

A request names bundles by hash and its target by digest; no field is a path or code. An answer of the right form is
trusted; any other is refused before it is used. Each form reads exactly one value and raises BadBundle for anything
else. Relies on `sandbox/bundle/decode.py`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from pgo_agent.sandbox import devices
from pgo_agent.sandbox.bundle.decode import integer, keyed, need, sha, word
from pgo_agent.sandbox.bundle.store import canonical
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.gate import reason
from pgo_agent.sandbox.gate.verdict import Verdict

VERSION = 1
HELLO = "hello"
MOST, LONGEST = 8192, 1 << 16  # limits: entries of a list or an object; characters of a text
Form = Callable[[Any], object]
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
    environment: Mapping[str, Any]  # of the machine that answers
    seconds: float  # in which its GPU was held
    artefacts: tuple[str, ...] = ()  # `artefacts/SHA.SUFFIX` that it names

    def as_bytes(self) -> bytes:
        return json.dumps({"schema": VERSION} | vars(self) | {"artefacts": list(self.artefacts)}).encode()


def request(data: bytes) -> Request:
    """Read a request. Raises BadBundle."""
    names = {"schema", "run", "target", "device", "do", "fields", "files", "process", "again"}
    d = keyed(_json(data, _refuse), names, "request")
    need(type(d["schema"]) is int and d["schema"] == VERSION, "a request of another version")
    do = word(d["do"], "command")
    need(do in FIELDS, f"{do[:40]!r} is no command that may be asked")
    _fields(d["fields"], FIELDS[do], do)
    for name in ("run", "device", *(["process"] if d["process"] != "" else [])):
        word(d[name], name)
    again, files = integer(d["again"], 0, 1 << 30, "again"), _list(_path)(d["files"])
    need({f"bundles/{b}.json" for b in bundles(d["fields"])} <= set(files), "a bundle is not among the files")
    return Request(d["run"], sha(d["target"]), d["device"], do, d["fields"], tuple(files), d["process"], again)


def answer(data: bytes, to: Request) -> Answer:
    """Read the answer to the request `to`. Raises BadBundle."""
    names = {"schema", "request", "kind", "said", "environment", "seconds", "artefacts"}
    d = keyed(_json(data), names, "answer")
    need(type(d["schema"]) is int and d["schema"] == VERSION, "an answer of another version")
    need(d["request"] == to.sha, "the answer to another request")
    forms: dict[str, Form] = {
        "answer": lambda x: _answer(x, to.do),
        "ended": _object(stage=_text, timed_out=_flag, detail=_text),
        "fault": _object(type=_text, message=_text, hint=_text),
        "refused": _object(message=_line, hint=_line),
    }
    need(type(d["kind"]) is str and d["kind"] in forms, "kind of an answer")
    forms[d["kind"]](d["said"])
    _map(_scalar)(d["environment"])
    seconds, artefacts = _number(d["seconds"]), _list(_path)(d["artefacts"])
    return Answer(d["request"], d["kind"], d["said"], d["environment"], seconds, tuple(artefacts))


def artefacts(data: bytes) -> list[str]:
    """Return the files that any answer names. Raises BadBundle."""
    content = _json(data)
    need(isinstance(content, dict) and "artefacts" in content, "an answer without its artefacts")
    named: list[str] = _list(_path)(content["artefacts"])
    return named


def bundles(fields: Any) -> Iterator[str]:
    """Give every bundle that a request's fields name."""
    if isinstance(fields, dict):
        for key, value in fields.items():
            if key == "bundle" and isinstance(value, str):
                yield value
            else:
                yield from bundles(value)
    elif isinstance(fields, list):
        for value in fields:
            yield from bundles(value)


def mismatch(gpu: object, wanted: str) -> tuple[str, str]:
    """Return the message and the hint for a GPU that answers but is not the one that was compiled for."""
    device = devices.named(gpu) if isinstance(gpu, str) else None
    what = f"the machine that answers has {f'an {gpu}' if gpu else 'no GPU'}, and the run compiles for {wanted}"
    other = f", or start the run again with --device {device.key}" if device else ""
    return what, f"let a machine with an {wanted} answer{other}"


# forms ----------------------------------------------------------------------------------------------------------------


def _refuse(x: str) -> NoReturn:
    raise BadBundle(f"{x[:40]} is no number")


def _json(data: bytes, constant: Callable[[str], Any] | None = None) -> Any:
    """Read JSON. `constant` replaces NaN and infinities, which the error of a wrong result may be."""
    try:
        return json.loads(data, parse_constant=constant)
    except (RecursionError, ValueError) as e:
        raise BadBundle(f"not JSON: {type(e).__name__}") from None


def _text(x: Any, most: int = LONGEST) -> str:
    need(type(x) is str and len(x) <= most, "a text")
    return str(x)


def _line(x: Any) -> str:
    need(_text(x).isprintable(), "one printable line")
    return str(x)


def _flag(x: Any) -> bool:
    need(type(x) is bool, "true or false")
    return bool(x)


def _number(x: Any) -> float:
    need(type(x) in (int, float) and 0 <= x < 1e30, "a number")
    return float(x)


def _any_number(x: Any) -> float:
    need(type(x) in (int, float), "a number")
    return float(x)


def _kind(x: Any) -> str:
    need(type(x) is str and x in list(reason.Kind), "what a part of a reason is")
    return str(x)


def _ms(x: Any) -> float:
    need(_number(x) > 0, "a time")
    return float(x)


def _scalar(x: Any) -> None:
    need(x is None or type(x) in (bool, int, float) or (type(x) is str and _line(x) == x), "a scalar")


def _case(x: Any) -> str:
    return word(x, "case")


def _path(x: Any) -> str:
    return _text(x, 200)


def _many(low: int, high: int) -> Form:
    return lambda x: integer(x, low, high, "a count")


def _list(form: Callable[[Any], Any], most: int = MOST) -> Callable[[Any], list[Any]]:
    def read(x: Any) -> list[Any]:
        need(type(x) is list and len(x) <= most, f"a list of at most {most}")
        return [form(v) for v in x]

    return read


def _map(form: Form, least: int = 0) -> Form:
    def read(x: Any) -> None:
        need(type(x) is dict and least <= len(x) <= MOST, f"an object of {least} to {MOST}")
        for key, value in x.items():
            _text(key, 400)
            form(value)

    return read


def _object(**forms: Form) -> Form:
    return lambda x: _fields(x, forms, "object")


def _maybe(form: Form) -> Form:
    return lambda x: None if x is None else form(x)


def _fields(x: Any, forms: Mapping[str, Form], what: str) -> None:
    """Check an object of these fields; those whose form takes None may be absent."""
    need(type(x) is dict and set(x) <= set(forms), f"{what} has other fields than {', '.join(forms)}")
    for name, form in forms.items():
        try:
            form(x.get(name))
        except BadBundle as e:
            raise BadBundle(f"{name}: {e}"[:300]) from None


# requests -------------------------------------------------------------------------------------------------------------

_PICK = _object(bundle=sha, choice=_case)
_SIDE = _map(_PICK, 1)
_CASES = _list(_case)
_AGAINST: dict[str, Form] = {
    "incumbent": _SIDE,
    "shipped": _SIDE,
    "tuned": _maybe(_SIDE),
    "public": _CASES,
    "held_out": _CASES,
    "weights": _maybe(_map(_number)),
}
FIELDS: dict[str, Mapping[str, Form]] = {
    HELLO: {},
    "sweep": {"entries": _list(_object(bundle=sha, case=_case, choice=_case, own=_maybe(_flag)))},
    "look": {"candidate": _object(bundle=sha), **_AGAINST},
    "judge": {"candidate": _object(bundle=sha), **_AGAINST},
    "confirm": {"candidate": _SIDE, **_AGAINST},
    "final": {"sides": _map(_SIDE, 1), "cases": _CASES},
    "race": {"bundle": sha, "case": _case, "choice": _case, "stress": _flag, "sanitized": _maybe(_flag)},
    "idle": {"case": _case, "candidate": _SIDE, "shipped": _SIDE},
    "numerics": {"candidate": _SIDE, "stage": _case},
    "same_bits": {"public": _CASES, "candidate": _SIDE, "own": _SIDE},
    "timeline": {
        "case": _case,
        "kernel": sha,
        "repeats": _many(1, 64),
        "blocks": _many(1, 1 << 16),
        "instrumented": _PICK,
        "plain": _PICK,
    },
    "peaks": {"case": _case},
}  # every command that a run asks; `open`, whose fields are paths, is the answering side's own

# answers --------------------------------------------------------------------------------------------------------------

_TIMES = _map(_map(_list(_ms)))  # case -> side -> ms
_JUDGED_BY_TIME = {Verdict.ACCEPTED, Verdict.SLOWER, Verdict.UNDECIDED}


def _answer(x: Any, do: str) -> None:
    if do not in ANSWERS:
        _verdict(x)
        need(do in ("judge", "confirm") or x["verdict"] != Verdict.ACCEPTED, f"{do} accepts nothing")
        return
    _fields(x, ANSWERS[do], "answer")
    whole = set(ANSWERS[do]) - {"problem"}
    need(do not in ("timeline", "peaks") or "problem" in x or set(x) == whole, "half an answer")


def _verdict(x: Any) -> None:
    """Check a verdict. One on time must name the configurations, and an accepted one its speedup."""
    forms = {"verdict": _text, "stage": _text, "reason": _text, "evidence": _map(lambda _: None)}
    _fields(x, forms | {"why": _maybe(_WHY), "coverage": _maybe(_COVERAGE)}, "verdict")
    need(x["verdict"] in list(Verdict), "no verdict that is known")
    evidence, timed = x["evidence"], x["stage"] in ("quick", "time", "confirm") and x["verdict"] in _JUDGED_BY_TIME
    if timed:
        _map(_case, 1)(evidence.get("choices"))
    for stage in ("quick", "time"):
        _maybe(_TIMES)(evidence.get(stage))
    speedup = _maybe(_list(_number, 3))
    speedup(evidence.get("speedup"))
    need(x["verdict"] != Verdict.ACCEPTED or len(evidence.get("speedup") or ()) == 3, "accepted without a speedup")
    _maybe(_list(_STAGE))(evidence.get("stages"))


_COVERAGE = _object(counts=_map(_list(_many(0, 1 << 62), 2)), skipped=_map(_text))
_WHY = _list(
    _object(
        kind=_kind,
        text=_text,
        case=_maybe(_text),
        output=_maybe(_many(0, MOST)),
        measured=_maybe(_any_number),
        bound=_maybe(_any_number),
    )
)
_STAGE = _object(
    stage=_text,
    verdict=_text,
    reason=_text,
    why=_maybe(_WHY),
    seconds=_number,
    found=_maybe(_map(lambda _: None)),
    coverage=_maybe(_COVERAGE),
)
_ENTRY = _object(
    bundle=sha,
    case=_case,
    choice=_case,
    own=_maybe(_flag),
    problem=_text,
    ms=_list(_ms),
    check=_maybe(_map(lambda _: None)),
    finalist=_maybe(_flag),
)
_REPEAT = _object(headers=sha, records=sha, blocks=_many(0, 1 << 31), fetched=_many(0, 1 << 31))
ANSWERS: dict[str, Mapping[str, Form]] = {
    HELLO: {},
    "sweep": {"entries": _list(_ENTRY)},
    "final": {"times": _TIMES},
    "idle": {"idle": _list(_text)},
    "same_bits": {"differs": _text},
    "timeline": {
        "problem": _maybe(_text),
        "repeats": _maybe(_list(_REPEAT, 64)),
        "block_bytes": _maybe(_many(1, 1 << 31)),
        "warps": _maybe(_many(1, 64)),
        "same_outputs": _maybe(_flag),
        "plain_ms": _maybe(_list(_ms)),
        "instrumented_ms": _maybe(_list(_ms)),
    },
    "peaks": {"problem": _maybe(_text), "flops": _maybe(_number), "moved": _maybe(_number)},
}  # of commands that answer no verdict
