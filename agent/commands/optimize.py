"""Starts and resumes runs: gathers what the loop needs, and maps how it ends to an exit code.

A run remembers its target's text. Resuming one whose file changed since is refused: its verdicts would be about
another kernel.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from pgo_agent.agent import version
from pgo_agent.agent.evaluation import interpreter
from pgo_agent.agent.exit_codes import Exit, check_code
from pgo_agent.agent.llm.models import EMBEDDED, prices, roles
from pgo_agent.agent.llm.models.budget import Budget, Spent
from pgo_agent.agent.llm.models.prices import Price
from pgo_agent.agent.llm.models.types import OPTIMIZER, Asker, Suspended
from pgo_agent.agent.run import profile_visibility
from pgo_agent.agent.run.context import Context, Emit
from pgo_agent.agent.run.record.store import Run, Store
from pgo_agent.agent.run.settings import DEFAULT_DEVICE, OWN, SPOOL, STATES, RunSettings, default_width
from pgo_agent.agent.run.target_file import locate, unmoved
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder, triton_version
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge import gpus
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered


def start(file: Path, wishes: RunSettings, store: Store, emit: Emit) -> Exit:
    """A new run of a target. Raises Faults; KeyboardInterrupt leaves the run resumable."""
    file = locate(file)
    profile_visibility.check(wishes.insight)
    found = target.read(file)
    settings = {f.name: getattr(wishes, f.name) for f in fields(wishes) if f.name not in OWN}
    settings["width"] = wishes.width or default_width(len(os.sched_getaffinity(0)))
    settings["triton"] = triton_version(wishes.python)  # says at once when the interpreter lacks it
    settings["pgo_agent"] = version.ours()
    gpu, device = where(wishes)
    if isinstance(gpu, SpoolJudge):
        settings["judge"] = f"{SPOOL}{gpu.folder.root}"  # good in any folder
    run = f"{found.name}-{secrets.token_hex(3)}"
    settings["models"] = roles.roles(wishes.models)
    cast = _cast(settings, run, found, store, emit, wishes.wait)  # a missing key is said before there is a run
    if OPTIMIZER in cast:
        from pgo_agent.agent.proposal import prompt  # numpy, by way of what a run knows

        prompt.check(found.source, device, wishes.python, wishes.prompt_tokens)
    with store.active(run):
        store.add_run(run, file.resolve(), found.digest, found.source, device.key, settings, found.asked)
        return _go(store.run(run), found, device, gpu, cast, store, emit)


def _cast(settings: dict[str, Any], run: str, found: target.Target, store: Store, emit: Emit, wait: bool) -> roles.Cast:
    """The models of a run by their roles; the settings get their names, good in any folder, and their prices."""

    def tell(kind: str, **fields: object) -> None:
        emit({"type": kind, "run": run, **fields})

    def spent() -> Spent:
        found = store.spent(run)
        return Spent(int(found["tokens"]), found["money"])

    wanted: dict[str, str] = settings["models"]
    asked = any(name != EMBEDDED for name in wanted.values())
    known = (prices.read() if asked else {}) | {name: Price(*p) for name, p in settings.get("prices", {}).items()}
    priced = roles.prices_of(wanted, known, settings.get("money"))
    replies = {role: tuple(c.prompt for c in store.calls(run, role)) for role in wanted}
    askers = {role: Asker(run, found.digest, tell, wait, replies[role], role) for role in wanted}
    purse = Budget(settings.get("tokens"), settings.get("money"), spent)
    cast = roles.opened(wanted, askers, purse, priced)
    settings["models"] = {role: cast[role].name if role in cast else EMBEDDED for role in wanted}
    settings["prices"] = {name: [p.prompt, p.completion] for name, p in priced.items()}
    return cast


def resume(
    name: str,
    store: Store,
    emit: Emit,
    instead: Mapping[str, float | str | None] | None = None,
    wait: bool = True,
) -> Exit:
    """Goes on with an interrupted or suspended run, here and now. `instead`: budgets, gpus, python in place of its own.

    Raises TargetMoved when its file changed.
    """
    run = store.run(name)
    if run.state == "failed":
        raise UsageFault(
            f"run {run.id} failed: {(run.summary or {}).get('error', '')}", "mend that, then start a new run"
        )
    if run.state in STATES:
        raise UsageFault(
            f"run {run.id} is complete", f"`pgo-agent show {run.id}` shows it; start another with `pgo-agent optimize`"
        )
    found = unmoved(run)
    run.settings.update({name: wished for name, wished in (instead or {}).items() if wished is not None})
    run.settings.setdefault("models", roles.roles([run.settings.get("model") or EMBEDDED]))  # of an older run
    wishes = RunSettings(
        run.device,
        sandbox=run.settings["sandbox"],
        judge=run.settings["judge"],
        python=run.settings["python"],
        gpus=run.settings.get("gpus"),
        wait=wait,
    )
    gpu, device = where(wishes)
    cast = _cast(run.settings, run.id, found, store, emit, wait)
    with store.active(run.id):
        store.set_settings(run.id, run.settings)
        store.set_state(run.id, "running")
        return _go(run, found, device, gpu, cast, store, emit)


def _go(
    run: Run, found: target.Target, device: Device, gpu: Judge | None, cast: roles.Cast, store: Store, emit: Emit
) -> Exit:
    python = run.settings["python"]
    triton_version(python)  # says at once when the interpreter lacks it
    chosen = box.choose(run.settings["sandbox"], python)
    builder = Builder(found, device, chosen, store.contents, len(os.sched_getaffinity(0)))
    given = run.settings.get("given") or ()
    model = cast.pop(OPTIMIZER, None)
    if model is not None or given:
        chosen.admit(foreign=True)
    if gpu is not None:
        gpu.target = found
    cpu = GpuJudge(found, python, None, run.settings["sandbox"], device.key)
    ctx = Context(store, run, found, device, builder, gpu, model, cpu, emit, cast)
    interpreter.attach(ctx)
    ctx.emit(
        "run.started",
        target=run.target,
        device=device.name,
        gpu=gpu is not None,
        gpus=[asdict(g) for g in _of_here(gpu)],
        judge=run.settings["judge"],
        sandbox=chosen.kind,
        settings=run.settings | {"given": [g["from"] for g in given]},
        workspace=str(store.root),
    )
    if not chosen.isolates:
        ctx.emit(
            "warning",
            text="no sandbox works on this machine: your own file runs unboxed, with your rights. "
            "Candidates from elsewhere would be refused. `pgo-agent doctor` says what to install.",
        )
    from pgo_agent.agent.search import loop  # takes long to import: what is refused is refused before

    try:
        if isinstance(gpu, SpoolJudge):
            gpu.begin(run.id, store.contents, partial(store.add_answer, run.id), ctx.emit, ctx.unbooked)
        if isinstance(gpu, GpuPool):
            gpu.begin(ctx.emit, partial(store.add_quarantined, run.id), store.quarantined(run.id))
            gpu.prepare(1)  # which imports torch while the kernel is built, and not while a GPU is held
        loop.run(ctx)
    except UsageFault as e:
        store.set_state(run.id, "failed", {"error": str(e)})
        raise
    except Suspended as e:
        store.set_state(run.id, "waiting")
        ctx.emit("run.waiting", request=str(e.request), reply=str(e.reply), why=e.why)
        return Exit.WAITING
    except Unanswered as e:
        store.set_state(run.id, "waiting")
        ctx.emit("run.waiting", request=str(e.request), reply=str(e.reply), why=e.why, how=e.how)
        return Exit.WAITING
    except (KeyboardInterrupt, EnvironmentFault):
        with contextlib.suppress(EnvironmentFault):  # a full disk may refuse this, too; the run stays resumable
            store.set_state(run.id, "interrupted")
        raise
    finally:
        with contextlib.suppress(EnvironmentFault):
            ctx.spend()
        ctx.close()
    state = STATES[store.run(run.id).state]
    return max((check_code(c.verdict) for c in store.candidates(run.id)), default=state) if given else state


def where(wishes: RunSettings) -> tuple[Judge | None, Device]:
    """The judges of this machine's GPUs, or of one elsewhere, if it is to be used, and the device to compile for."""
    if wishes.judge.startswith(SPOOL):
        return _elsewhere(wishes)
    if wishes.judge not in ("auto", "gpu", "cpu"):
        raise UsageFault(f"unknown judge '{wishes.judge}'", "choose one of: auto, gpu, cpu, spool:DIR")
    if wishes.judge == "cpu" and wishes.gpus is not None:
        raise UsageFault("--gpus names GPUs, and --judge cpu uses none", "leave one of them out")
    found = gpus.usable(wishes.gpus) if wishes.judge != "cpu" else []
    if not found:
        if wishes.judge == "gpu" or wishes.gpus is not None:
            wish = f"--gpus {wishes.gpus}" if wishes.gpus is not None else "--judge gpu"
            raise EnvironmentFault(f"{wish}: no GPU is visible here", "check nvidia-smi and CUDA_VISIBLE_DEVICES")
        return None, devices.find(wishes.device or DEFAULT_DEVICE)
    return _here(found, wishes)


def _here(found: Sequence[Gpu], wishes: RunSettings) -> tuple[Judge | None, Device]:
    """A run is for one model of GPU: the wished one, or that of the first GPU."""
    model = devices.find(wishes.device).name if wishes.device is not None else found[0].model
    fit = [g for g in found if g.model == model]
    if not fit:
        if wishes.judge == "gpu":
            there = ", ".join(dict.fromkeys(g.model for g in found))
            raise UsageFault(f"--device {wishes.device}, but this machine has {there}", "leave --device out")
        return None, devices.find(wishes.device or DEFAULT_DEVICE)
    device = devices.named(model)
    if device is None:
        known = ", ".join(d.name for d in devices.DEVICES.values())
        raise EnvironmentFault(
            f"the GPU '{model}' is not in the device table", f"known are: {known}; use --judge cpu to go on without it"
        )
    spares, none = max(1, len(os.sched_getaffinity(0)) // (4 * len(fit))), target.Target(Path(), "", Path(), "")
    return GpuPool([GpuJudge(none, wishes.python, g.uuid, spares=spares, lock=GpuLock(g)) for g in fit]), device


def _of_here(gpu: Judge | None) -> list[Gpu]:
    return [j.lock.gpu for j in gpu.all if j.lock] if isinstance(gpu, GpuPool) else []


def _elsewhere(wishes: RunSettings) -> tuple[Judge, Device]:
    name = wishes.judge.removeprefix(SPOOL)
    if not name:
        raise UsageFault("--judge spool: names no folder", "give it as --judge spool:DIR")
    if wishes.gpus is not None:
        raise UsageFault("--gpus names GPUs of this machine", "give it to the side that answers")
    if wishes.memcheck:
        raise UsageFault("--memcheck runs on the GPU's own machine alone", "leave it out, or check there")
    device = devices.find(wishes.device or DEFAULT_DEVICE)
    judge = SpoolJudge(Path(name).absolute(), device, target.Target(Path(), "", Path(), ""), wishes.wait)
    judge.folder.make()
    return judge, device
