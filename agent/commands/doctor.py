"""`doctor`: tries what this machine can do, and says what to install for more."""

import importlib.metadata
import json
import platform
import shutil
from dataclasses import asdict, dataclass

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.llm.models import EMBEDDED, model_by_role, prices
from pgo_agent.agent.llm.models.openai_server import ServerModel
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.compiler import ptxas
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault, UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge import gpus
from rich.console import Console
from rich.markup import escape


@dataclass(frozen=True)
class Finding:
    what: str
    fine: bool
    detail: str
    needed: bool = False  # without it nothing works


def examine(as_json: bool) -> Exit:
    """Print the findings. Returns ENVIRONMENT when something that every command needs is missing."""
    findings = [*_versions(), *_sandboxes(), _gpu(), _assembler(), _model(), _prices(), _disk()]
    if as_json:
        print(json.dumps([asdict(f) for f in findings]))
    else:
        out = Console()
        for f in findings:
            mark = (
                "[green]ok[/green]     " if f.fine else "[red]missing[/red]" if f.needed else "[yellow]no[/yellow]     "
            )
            out.print(f"{mark} {f.what:<12} {escape(f.detail)}", highlight=False)
        if not any(f.fine for f in findings if f.what in ("bubblewrap", "landlock")):
            out.print("No sandbox works: your own kernels run unboxed, candidates from elsewhere are refused.")
    return Exit.ENVIRONMENT if any(f.needed and not f.fine for f in findings) else Exit.DONE


def _versions() -> list[Finding]:
    findings = [Finding("python", True, platform.python_version(), True)]
    for package in ("torch", "triton", "langgraph", "numpy"):
        try:
            findings.append(Finding(package, True, importlib.metadata.version(package), True))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(package, False, f"pip install {package}", True))
    return findings


def _sandboxes() -> list[Finding]:
    problems = {k: box.problem_with(k) for k in box.KINDS if k != "none"}
    return [
        Finding(k, not p, (p.splitlines() or ["works: candidates run without network, keys or your files"])[0])
        for k, p in problems.items()
    ]


def _gpu() -> Finding:
    try:
        usable = gpus.usable()
    except EnvironmentFault as e:
        return Finding("gpu", False, e.message)
    if not usable:
        return Finding(
            "gpu", False, "none here: kernels are compiled, checked in Triton's interpreter and ranked, not measured"
        )
    models = {m: [g.index for g in usable if g.model == m] for m in dict.fromkeys(g.model for g in usable)}
    text = "; ".join(f"{m} ({', '.join(indices)})" for m, indices in models.items())
    device = devices.named(usable[0].model)
    return Finding("gpu", device is not None, text if device else f"{text}: not in the device table; use --judge cpu")


def _assembler() -> Finding:
    try:
        return Finding("assembler", True, f"a second ptxas for `check --second-assembler`: {ptxas.second()}")
    except BadBundle:
        wanted = "`check --second-assembler` needs one: pip install 'pgo-agent[assembler]'"
        return Finding("assembler", False, wanted)


def _model() -> Finding:
    """Report which server `--model NAME` would ask. No request is sent."""
    try:
        server = ServerModel("any")
    except UsageFault as e:
        return Finding("model", False, f"`--model NAME`: {e.message}; {e.hint}. relay: and replay: need none")
    named = [f"{role} {name}" for role, name in model_by_role.roles([]).items() if name != EMBEDDED]
    text = ", ".join(named) or "none unless --model names one"
    return Finding("model", True, f"`--model NAME` asks {server.url}; by the environment: {text}")


def _prices() -> Finding:
    try:
        by_model = prices.read()
    except UsageFault as e:
        return Finding("prices", False, f"{e.message}; {e.hint}")
    text = f"of {', '.join(by_model)}" if by_model else f"none known: --money needs them in {prices.file()}"
    return Finding("prices", bool(by_model), text)


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    return Finding("disk", free > 1 << 30, f"{free / (1 << 30):.1f} GiB free here")
