"""Starts and resumes runs: collects what the loop needs, and maps how the loop ends to an exit code.

A run stores its target's text. A run whose file changed since cannot be resumed: its verdicts are about another kernel.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from pgo_agent.agent import version
from pgo_agent.agent.evaluation import interpreter
from pgo_agent.agent.exit_codes import Exit, check_code
from pgo_agent.agent.llm.models import model_by_role
from pgo_agent.agent.llm.models.types import OPTIMIZER, Suspended
from pgo_agent.agent.run import cost, judge_choice, submissions
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.events import Emit, Event, Warned
from pgo_agent.agent.run.facts import GivenFile, RunFacts
from pgo_agent.agent.run.models import Opening, open_models
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import FailedRun
from pgo_agent.agent.run.record.settings_json import encode
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import SPOOL, STATES, Changes, RunSettings, default_width
from pgo_agent.agent.run.target_file import locate, unmoved
from pgo_agent.sandbox import target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.judge.cluster.cluster_box import ClusterBox
from pgo_agent.sandbox.judge.cluster.cluster_pool import ClusterPool
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered
from pgo_agent.sandbox.target import Target

UNBOXED = (
    "no sandbox works on this machine: your own file runs unboxed, with your rights. "
    "Candidates from elsewhere would be refused. `pgo-agent doctor` says what to install."
)


def start(
    file: Path, asked: RunSettings, store: Store, emit: Emit, given: Sequence[GivenFile] = (), against: str = ""
) -> Exit:
    """Make a new run of a target. `given`: the candidates to judge, in place of any search. `against`: what the target
    is called, if they are asked not to be slower than it.

    Raises Faults; KeyboardInterrupt leaves the run resumable.
    """
    file = locate(file)
    subject = target.read(file)
    triton = triton_version(asked.python)  # fails early when the interpreter lacks it
    judge, device = judge_choice.choose(asked)
    settings = _resolved(asked, judge)
    facts = RunFacts(triton, version.ours(), model_by_role.roles(asked.models), against=against, given=tuple(given))
    run = f"{subject.name}-{secrets.token_hex(3)}"
    models, facts = open_models(
        Opening(run, subject.name, subject.digest, store, emit), settings, facts
    )  # fails before a run exists
    if OPTIMIZER in models:
        from pgo_agent.agent.proposal import prompt  # imports numpy

        prompt.check(subject.source, device, asked.python, asked.prompt_tokens)
    if not given:
        expected = _estimate(store, subject, device, settings, judge, facts.models)
        facts = replace(facts, expected=expected.middle if expected.runs else None)
    with store.active(run):
        store.add_run(run, file.resolve(), subject.digest, subject.source, device.key, settings, facts, subject.asked)
        return _go(store.run(run), subject, device, judge, models, store, emit)


def expect(file: Path, asked: RunSettings, store: Store) -> cost.Estimate:
    """Return what a run would take; nothing is begun. Raises the Faults of `start` that need no model to be asked."""
    subject = target.read(locate(file))
    judge, device = judge_choice.choose(asked)
    if judge is not None:
        judge.close()
    return _estimate(store, subject, device, _resolved(asked, judge), judge, model_by_role.roles(asked.models))


def _estimate(
    store: Store, subject: Target, device: Device, settings: RunSettings, judge: Judge | None, models: dict[str, str]
) -> cost.Estimate:
    cores = len(os.sched_getaffinity(0))
    return cost.estimate(store, subject.digest, device.key, settings, cores, judge is not None, models)


def open_to(who: str, idle: float, file: Path, asked: RunSettings, store: Store) -> str:
    """Make a new run whose candidates `who` submits, and return its id; `resume` begins it.

    `idle`: seconds without a submission after which it ends. Raises Faults.
    """
    file = locate(file)
    subject = target.read(file)
    triton = triton_version(asked.python)
    box.choose(asked.sandbox, asked.python).admit(untrusted=True)
    judge, device = judge_choice.choose(asked)
    settings, facts = _resolved(asked, judge), RunFacts(triton, version.ours(), open_to=who, idle=idle)
    if judge is not None:
        judge.close()
    run = f"{subject.name}-{secrets.token_hex(3)}"
    store.add_run(run, file.resolve(), subject.digest, subject.source, device.key, settings, facts, subject.asked)
    store.set_state(run, "waiting")
    return run


def _resolved(asked: RunSettings, judge: Judge | None) -> RunSettings:
    """Return the settings with this machine's defaults filled in, valid in any folder."""
    width = asked.width or default_width(len(os.sched_getaffinity(0)))
    folder = f"{SPOOL}{judge.folder.root}" if isinstance(judge, SpoolJudge) else asked.judge
    return replace(asked, width=width, judge=folder)


def resume(name: str, store: Store, emit: Emit, changes: Changes | None = None) -> Exit:
    """Go on with an interrupted or suspended run, here and now. `changes`: settings in place of its own.

    Raises TargetMoved when its file changed, and UsageFault for a run that cannot be resumed.
    """
    run = store.run(name)
    _refuse_ended(run)
    subject = unmoved(run)
    settings = run.settings.changed(changes or {})
    other = settings.judge != run.settings.judge
    judge, device = judge_choice.choose(replace(settings, device=run.device) if other else settings)
    if other:
        _refuse_without_gpu(run, judge)
    settings = _resolved(settings, judge)
    models, facts = open_models(Opening(run.id, subject.name, subject.digest, store, emit), settings, run.facts)
    _warn_of_unknown(run, emit)
    with store.active(run.id):
        store.set_settings(run.id, settings, facts)
        store.set_state(run.id, "running")
        return _go(replace(run, settings=settings, facts=facts), subject, device, judge, models, store, emit)


def _warn_of_unknown(run: Run, emit: Emit) -> None:
    if run.unknown:
        text = f"settings that another version recorded are ignored: {', '.join(run.unknown)}"
        emit(Event(Warned(text), run.id))


def _refuse_without_gpu(run: Run, judge: Judge | None) -> None:
    """Raise UsageFault where a run that measured is to go on without a GPU: nothing could be compared any more."""
    if judge is None and run.baseline is not None and run.baseline.environment is not None:
        problem = f"run {run.id} was measured on an {run.baseline.environment.gpu}, and no GPU is used here"
        raise UsageFault(problem, "give --judge a GPU of that model, here or elsewhere, or start a new run")


def _refuse_ended(run: Run) -> None:
    if run.state == "failed":
        raise UsageFault(f"run {run.id} failed: {run.error}", "fix that, then start a new run")
    if run.state in STATES:
        raise UsageFault(
            f"run {run.id} is complete", f"`pgo-agent show {run.id}` shows it; start another with `pgo-agent optimize`"
        )
    if run.damaged:
        raise UsageFault(
            f"run {run.id}: its record is damaged, or of another version: {', '.join(run.damaged)} cannot be read",
            "start a new run",
        )


def _go(
    run: Run, subject: Target, device: Device, judge: Judge | None, models: model_by_role.Cast, store: Store, emit: Emit
) -> Exit:
    """Run the loop to its end, or as far as it gets."""
    triton_version(run.settings.python)  # fails early when the interpreter lacks it
    chosen = _box(run.settings, judge)
    if OPTIMIZER in models or run.facts.given or run.facts.open_to:
        chosen.admit(untrusted=True)
    ctx = _context(run, subject, device, judge, models, store, emit, chosen)
    _announce(ctx, chosen)
    try:
        code = _loop(ctx)
    finally:
        with contextlib.suppress(EnvironmentFault):
            ctx.spend()
        ctx.close()
    return _end(ctx) if code is None else code


def _context(
    run: Run,
    subject: Target,
    device: Device,
    judge: Judge | None,
    models: model_by_role.Cast,
    store: Store,
    emit: Emit,
    chosen: Box,
) -> Context:
    if judge is not None:
        judge.target = subject
    box.expect(subject.source, subject.contract)
    cores = max(len(os.sched_getaffinity(0)), judge.cluster.cpus if isinstance(judge, ClusterPool) else 0)
    builder = Builder(subject, device, chosen, store.contents, cores)
    cpu = GpuJudge(subject, run.settings.python, None, run.settings.sandbox, device.key)
    others = {role: model for role, model in models.items() if role != OPTIMIZER}
    ctx = Context(store, run, subject, device, builder, judge, models.get(OPTIMIZER), cpu, emit, others)
    interpreter.attach(ctx)
    return ctx


def _box(settings: RunSettings, judge: Judge | None) -> Box:
    """Return the box: of this machine, or of the hosts of the cluster that judges."""
    chosen = box.choose(settings.sandbox, settings.python)
    return ClusterBox(chosen.kind, chosen.python) if isinstance(judge, ClusterPool) else chosen


def _announce(ctx: Context, chosen: Box) -> None:
    run = ctx.run
    ctx.emit(
        "run.started",
        target=run.target,
        device=ctx.device.name,
        gpu=ctx.gpu is not None,
        gpus=[asdict(g) for g in judge_choice.gpus_of(ctx.gpu)],
        judge=run.settings.judge,
        sandbox=chosen.kind,
        settings=encode(run.settings, run.facts) | {"given": [g.name for g in run.facts.given]},
        workspace=str(ctx.store.root),
    )
    if not chosen.isolates:
        ctx.emit("warning", text=UNBOXED)


def _loop(ctx: Context) -> Exit | None:
    """Run the loop. Returns None when it completed, else the exit code."""
    from pgo_agent.agent.search import loop  # takes long to import, so refusals come first

    try:
        _open_judge(ctx)
        loop.run(ctx)
    except UsageFault as e:
        ctx.store.set_state(ctx.run.id, "failed", FailedRun(str(e)))
        raise
    except Suspended as e:
        return _waiting(ctx, {"request": str(e.request), "reply": str(e.reply), "why": e.why})
    except submissions.Yielded:
        ctx.store.set_state(ctx.run.id, "waiting")
        return Exit.WAITING
    except Unanswered as e:
        return _waiting(ctx, {"request": str(e.request), "reply": str(e.reply), "why": e.why, "how": e.how})
    except (KeyboardInterrupt, EnvironmentFault):
        with contextlib.suppress(EnvironmentFault):  # a full disk may refuse this, too; the run stays resumable
            ctx.store.set_state(ctx.run.id, "interrupted")
        raise
    return None


def _open_judge(ctx: Context) -> None:
    store, run, judge = ctx.store, ctx.run.id, ctx.gpu
    if isinstance(judge, SpoolJudge):
        judge.begin(run, store.contents, partial(store.add_answer, run), ctx.emit, ctx.unbooked)
    if isinstance(judge, ClusterPool):
        judge.store(store.contents)
    if isinstance(judge, GpuPool):
        judge.begin(ctx.emit, partial(store.add_quarantined, run), store.quarantined(run))
        judge.prepare(1)  # which imports torch while the kernel is built, and not while a GPU is held


def _waiting(ctx: Context, fields: Mapping[str, str]) -> Exit:
    ctx.store.set_state(ctx.run.id, "waiting")
    ctx.emit("run.waiting", **fields)
    return Exit.WAITING


def _end(ctx: Context) -> Exit:
    """Return the exit code of a completed run; for given candidates the worst of theirs."""
    state = STATES[ctx.store.run(ctx.run.id).state]
    if not ctx.run.facts.given:
        return state
    against = ctx.run.facts.against
    return max((check_code(c.verdict, against) for c in ctx.store.candidates(ctx.run.id)), default=state)
