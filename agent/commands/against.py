"""`check FILE --against BASE`: is a kernel what it was, or right and no slower? The gate of a pull request.

The code of both is compared first, which needs no GPU. Where it differs, a run judges FILE as the one candidate of a
target whose kernel part is BASE's: the judge, its stages and its record are those of every check. It reads texts and
never runs them; both are untrusted, and are built and judged in the box.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.commands import check, optimize, revision
from pgo_agent.agent.commands.revision import Base
from pgo_agent.agent.evaluation import coverage_text, same_code
from pgo_agent.agent.evaluation.same_code import Revision
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import judge_choice, target_file
from pgo_agent.agent.run.events import Emit, Event, Phase, RevisionsCompared
from pgo_agent.agent.run.facts import GivenFile
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.regression import CodeCompared, Outcome, Ratio, Result, outcome
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.views import summary
from pgo_agent.sandbox import json_codec, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import writing
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import TargetFault, UsageFault
from pgo_agent.sandbox.gate.coverage import NOTHING
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.target import Target

FOLDER = "against"  # of a workspace: the targets whose kernel part is a BASE
_ONE_CONTRACT = (
    "a comparison needs one contract: change that in a pull request of its own, and judge its file alone: "
    "check FILE --target FILE"
)


@dataclass(frozen=True)
class Asked:
    """What is asked: a file, what it is compared with, and the target of both."""

    file: Path
    base: str  # a path, or git:REV
    of: Path | None  # None: the file is a target itself


@dataclass(frozen=True)
class Pair:
    """Both kernels, with one contract."""

    subject: Target  # with BASE's kernel part; its path is not written yet
    base: Revision
    new: GivenFile


def start(asked: Asked, settings: RunSettings, store: Store, emit: Emit, tell: Callable[[Result], None]) -> Exit:
    """Compare, judge if that is needed, and `tell` what came out. Raises Faults; a run that began stays resumable."""
    pair = read(asked)
    chosen = box.choose(settings.sandbox, settings.python)
    chosen.admit(untrusted=True)
    judge, device = judge_choice.choose(settings)
    if judge is not None:
        judge.close()  # the run opens its own
    box.expect(pair.subject.source, pair.subject.contract)
    emit(Event(Phase("build", doing=f"comparing the code of {pair.new.name} with that of {pair.base.name}")))
    builder = Builder(pair.subject, device, chosen, store.contents, len(os.sched_getaffinity(0)))
    new = Revision(pair.new.name, pair.new.source)
    code = same_code.compare(builder, pair.base, new, settings.cases)
    result = _same(pair, asked, device, code) if code and code.same else None
    if result is None:
        result, ended = _judged(pair, asked, device, code, settings, store, emit)
        if result is None:
            return ended
    emit(Event(RevisionsCompared(result), result.run))
    tell(result)
    return result.exit


# what is read ---------------------------------------------------------------------------------------------------------


def read(asked: Asked) -> Pair:
    """Return both kernels. Raises UsageFault for a file that is none, or with another contract than the other.

    Where nobody names a target, it is BASE, sidecar included: the judge imports that, and nothing of FILE.
    """
    text = target.text(asked.file)
    for name in (str(asked.file), asked.base):
        if name.endswith(".ttgir"):
            raise UsageFault(f"{name} is the TTGIR of one kernel", "--against compares files with a kernel(): name one")
    base = revision.read(asked.base, asked.file)
    if asked.of is not None:
        subject = target.read(target_file.locate(asked.of))
        source = check.of_text(base.name, base.text, subject, _ONE_CONTRACT).source
        subject = replace(subject, source=source, contract=subject.contract if subject.sidecar else source)
        return Pair(subject, Revision(base.name, source), check.of_text(str(asked.file), text, subject, _ONE_CONTRACT))
    _same_sidecar(base, _own_target(asked.file))
    named = _of_base(base)
    new = check.of_text(str(asked.file), text, named, _ONE_CONTRACT)
    beside = asked.file if base.sidecar is None else revision.sidecar(asked.file)
    return Pair(replace(named, path=asked.file, contract_path=beside), Revision(base.name, base.text), new)


def _own_target(file: Path) -> Target:
    try:
        return target.read(file)
    except TargetFault as e:
        raise UsageFault(f"{file} is no target by itself: {e.message}", f"--target TARGET, or: {e.hint}") from None


def _of_base(base: Base) -> Target:
    """Return BASE as a target, under the name that a person gave it."""
    path = Path(base.name)
    beside = path if base.sidecar is None else Path(f"the contract beside {base.name}")
    try:
        return target.of_texts(path, base.text, beside, base.text if base.sidecar is None else base.sidecar)
    except TargetFault as e:
        hint = "name a target for both: --target TARGET"
        raise UsageFault(f"{base.name} is no target by itself: {e.message.splitlines()[0]}", hint) from None


def _same_sidecar(base: Base, own: Target) -> None:
    ours = own.contract if own.sidecar else None
    if base.sidecar is None and ours is None:
        return
    if base.sidecar is None or ours is None or not target.same_contract(base.sidecar, ours):
        raise UsageFault(f"{base.name} has another contract beside it than {own.contract_path}", _ONE_CONTRACT)


# its run --------------------------------------------------------------------------------------------------------------


def _judged(
    pair: Pair,
    asked: Asked,
    device: Device,
    code: CodeCompared | None,
    settings: RunSettings,
    store: Store,
    emit: Emit,
) -> tuple[Result | None, Exit]:
    """Make a run that judges the new kernel against the old. None: it waits for an answer."""
    runs = list[str]()

    def note(event: Event) -> None:
        if event.type == "run.started":
            runs.append(event.run)
        emit(event)

    home = _written(store, pair.subject)
    try:
        ended = optimize.start(home, settings, store, note, [pair.new], pair.base.name)
    except TargetFault as e:
        said = e.message.replace(f"{home}: ", "").replace(str(home), pair.base.name)
        hint = "compare with a revision that is right, or judge the new file alone: check FILE --target FILE"
        raise UsageFault(f"nothing can be compared with {pair.base.name}: {said}", hint) from None
    if ended == Exit.WAITING:
        return None, ended
    candidate = next(iter(store.candidates(runs[0])), None)
    return _result(pair, asked, device, code, runs[0], candidate, store), ended


def _written(store: Store, subject: Target) -> Path:
    """Write the target with BASE's kernel part into the workspace, where a run finds it again; return its file."""
    folder = store.root / FOLDER / subject.digest[:16]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        texts = {subject.path.name: subject.source}
        texts |= {subject.contract_path.name: subject.contract} if subject.sidecar else {}
        for name, text in texts.items():
            new = folder / f".{os.getpid()}.{name}"
            new.write_text(text, encoding="utf-8")
            new.replace(folder / name)
    return folder / subject.path.name


# what it came to ------------------------------------------------------------------------------------------------------


def _same(pair: Pair, asked: Asked, device: Device, code: CodeCompared) -> Result:
    of = f", in {code.configurations} configurations of {code.cases} cases" if code.cases else ""
    said = f"is the same code as {pair.base.name}: {code.how}{of}"
    return replace(_outcome(pair, asked, device, Outcome.SAME_CODE, said), code=code)


def _outcome(pair: Pair, asked: Asked, device: Device, outcome: str, said: str) -> Result:
    return Result(pair.new.name, pair.base.name, str(asked.of or asked.file), device.name, outcome, said)


def _result(
    pair: Pair,
    asked: Asked,
    device: Device,
    code: CodeCompared | None,
    run: str,
    candidate: Candidate | None,
    store: Store,
) -> Result:
    verdict, stage = (candidate.verdict, candidate.stage or "") if candidate else (None, "")
    evidence = store.evidence(run, candidate.id) if candidate else {}
    covered = coverage_text.of(evidence)
    timed = _timed(evidence)
    found = replace(
        _outcome(pair, asked, device, outcome(verdict), summary.compared(verdict, stage, pair.base.name)),
        reason=(candidate.reason if candidate else None) or "",
        stage=stage,
        code=code,
        covered="" if covered == NOTHING else covered.counted(),
        run=run,
        candidate=candidate.id if candidate else "",
    )
    if timed is None:
        return found
    again = json_codec.from_json(JsonObject, timed.get("again", {}))
    return replace(
        found,
        speedup=_ratio(timed, "speedup"),
        noise=_ratio(timed, "noise"),
        cases={c.split("/", 1)[-1]: r for c, r in json_codec.from_json(dict[str, Ratio], timed["cases"]).items()},
        again=_ratio(again, "speedup") if again else None,
    )


def _timed(evidence: Mapping[str, JsonObject]) -> JsonObject | None:
    """Return the evidence of the stage that timed it; None: none did."""
    return next((body for body in evidence.values() if "noise" in body and "cases" in body), None)


def _ratio(body: JsonObject, name: str) -> Ratio | None:
    found: Ratio | None = json_codec.from_json(Ratio | None, body.get(name))
    return found
