"""The launches of a trace as calls of the launcher that was made of them, as `init` has those of a program."""

from collections.abc import Mapping

from pgo_agent.agent.commands.init.seen import Call
from pgo_agent.agent.commands.traces import scaling
from pgo_agent.agent.commands.traces.arguments import described
from pgo_agent.agent.commands.traces.launcher import Launcher
from pgo_agent.agent.commands.traces.scaling import Scaled
from pgo_agent.sandbox.errors import UsageFault


def shrunk(launcher: Launcher) -> list[str]:
    """What to say of shapes that were made smaller."""
    sizes = {old: new for i in range(len(launcher.form.signatures)) for old, new in _held(launcher, i).sizes.items()}
    listed = ", ".join(f"{old} became {new}" for old, new in sorted(sizes.items()))
    return (
        [f"sizes that the GPU cannot hold with a check's copies in float64 are scaled down: {listed}"] if sizes else []
    )


def calls(launcher: Launcher) -> list[Call]:
    line = next(i for i, text in enumerate(launcher.text.splitlines(), 1) if text.startswith(f"def {launcher.name}("))
    return [_call(launcher, i, line) for i in range(len(launcher.form.signatures))]


def _held(launcher: Launcher, i: int) -> Scaled:
    """Return the tensors of a launch, smaller where the GPU cannot hold them."""
    traced = {n: launcher.form.signatures[i].ranges[n] for n in launcher.form.tensors}
    held = scaling.scaled(traced, launcher.memory) if launcher.memory else Scaled(traced, {})
    if held.sizes and launcher.of_grid:
        raise UsageFault(
            f"{launcher.form.source.function} was launched with shapes that the GPU cannot hold, and its grid is no "
            "function of them",
            "give a --device that holds them",
        )
    return held


def _call(launcher: Launcher, i: int, line: int) -> Call:
    one, storages = launcher.form.signatures[i], {n: k for k, n in enumerate(launcher.form.tensors)}
    held = _held(launcher, i)
    sizes = {s for n in launcher.inputs for s in held.tensors[n].shape}
    tensors = {n: described(held.tensors[n], storages[n], sizes) for n in launcher.form.tensors}
    numbers = {n: getattr(one.first.arguments[n], "value", None) for n in launcher.plain}
    args: dict[str, object] = {n: tensors[n] for n in launcher.inputs}
    args |= {n: {"plain": held.sizes.get(v, v) if type(v) is int else v} for n, v in numbers.items()}
    args |= {g: {"plain": (*one.first.grid, 1, 1)[int(g[4:])]} for g in launcher.of_grid}
    results = [tensors[n] for n in launcher.outputs]
    result: Mapping[str, object] = (
        results[0] if len(results) == 1 else {"list": results, "tuple": True} if results else {"plain": None}
    )
    uses, path = launcher.form.uses, str(launcher.form.source.path)
    launch = {
        "kernel": launcher.form.source.function,
        "file": path,
        "via": [],
        "line": 0,
        "grid": one.first.grid,
        "args": tensors,
        "constants": sorted(launcher.form.source.constants),
        "stored": sorted(launcher.form.stored),
        "loaded": [n for n in uses.loaded if n in tensors] if uses else [],
        "unordered": bool(uses and uses.unordered),
    }
    return Call(path, launcher.name, line, args, dict(result), None, (launch,))
