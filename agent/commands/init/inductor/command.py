"""`pgo-agent init --inductor FILE`: writes a target for each kernel in the code that PyTorch's compiler wrote.

FILE is read and never run; its kernels are made plain in the box. Relies on `draft.py` for what a target is made of,
on `target_text.py` for its text, and on `program.py` to try it on stand-in tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pgo_agent.agent.commands.init import command, outcome, program
from pgo_agent.agent.commands.init.inductor import calls, contract, draft, groups, kernels, output_code, target_text
from pgo_agent.agent.commands.init.inductor.draft import Draft
from pgo_agent.agent.commands.init.inductor.fx_text import NoReference
from pgo_agent.agent.commands.init.inductor.groups import Group
from pgo_agent.agent.commands.init.inductor.target_text import Source
from pgo_agent.agent.commands.init.outcome import Outcome, WrittenTarget
from pgo_agent.agent.run.settings import DEFAULT_DEVICE, RunSettings
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Box

TRIED = """
def shapes(values):
    return [tuple(v.shape) for v in (values if isinstance(values, (list, tuple)) else [values])]


for case in (*CASES.values(), *SMALL.values(), *HELD_OUT.values()):
    try:
        wanted = shapes(reference(**inputs(case, torch.Generator())))
    except NotImplementedError:
        break
    given = shapes(kernel(**inputs(case, torch.Generator())))
    assert given == wanted, f"kernel() gives {given}, and reference() {wanted}"
"""  # whether reference and launcher agree on the sizes of all cases, on stand-in tensors


@dataclass(frozen=True)
class Found:
    """A kernel of the file, with those launches that one target serves."""

    drafts: tuple[Draft, ...]
    share: float  # of the bytes that all kernels move, about

    @property
    def name(self) -> str:
        return self.drafts[0].group.name


def write(file: str, kernel: str | None, to: Path | None, force: bool, settings: RunSettings) -> Outcome:
    """Write the targets.

    Raises UsageFault for what is none of Inductor's files, for a kernel that it has not, and for an output that exists.
    """
    path = Path(file)
    modules = output_code.read(path)
    found, refused = _found([g for m in modules for g in groups.groups(m, calls.follow(m))])
    refused += [
        (k.name, f"it is no Triton kernel (async_compile.{k.kind})")
        for m in modules
        for k in m.kernels.values()
        if k.kind != "triton"
    ]
    chosen = _chosen(path, found, refused, kernel)
    if to is not None and len(chosen) > 1:
        names = ", ".join(f.name for f in chosen)
        raise UsageFault(f"-o names one file, and {path.name} has {len(chosen)} kernels: {names}", "add --kernel NAME")
    files = [to or Path(f"{f.name if len(found) > 1 else path.stem}_target.py") for f in chosen]
    for file_ in files:
        command.refuse(file_, path, force)
    inside = box.choose(settings.sandbox, settings.python)
    device = devices.find(settings.device or DEFAULT_DEVICE).key
    made = kernels.plain(inside, device, [f.drafts[0] for f in chosen])
    written = list[WrittenTarget]()
    for one, plain, file_ in zip(chosen, made, files, strict=True):
        if plain.refused:
            refused.append((one.name, plain.refused))
        else:
            drafts = (draft.with_blocks(one.drafts[0], plain.kernels), *one.drafts[1:])
            written.append(_written(Source(path.name, drafts, plain), one, file_, inside, device))
    without = [f"no target for {name}: {why}" for name, why in refused]
    if not written:
        raise UsageFault("; ".join(without), "name another --kernel")
    about = [
        f"kernels that a target can be written for, in code that looks like that of {modules[0].release}: {len(found)}",
        *(f"  {one.share:4.0%} of the bytes: {_told(one)}" for one in found),
    ]
    return Outcome(tuple(written), tuple(about), tuple(without))


def _found(every: Sequence[Group]) -> tuple[list[Found], list[tuple[str, str]]]:
    """Return the kernels that a target can be written for, and the others with reasons."""
    alike: dict[str, list[Draft]] = {}
    refused = dict[str, str]()
    for group in every:
        try:
            one = draft.draft(group)
        except NoReference as e:
            refused[group.name] = str(e)
            continue
        alike.setdefault(one.text_key(), []).append(one)
    moved = {k: sum(map(contract.bytes_seen, of)) for k, of in alike.items()}
    total = sum(moved.values()) or 1
    found = [Found(tuple(of), moved[k] / total) for k, of in alike.items()]
    return sorted(found, key=lambda f: -f.share), list(refused.items())


def _chosen(path: Path, found: Sequence[Found], refused: Sequence[tuple[str, str]], kernel: str | None) -> list[Found]:
    chosen = [f for f in found if kernel is None or any(kernel in d.group.names for d in f.drafts)]
    if chosen:
        return chosen
    reasons = dict(refused)
    if kernel in reasons:
        raise UsageFault(f"no target for {kernel}: {reasons[kernel]}", "name another --kernel")
    names = ", ".join(n for f in found for n in f.drafts[0].group.names) or "none"
    if kernel is None:
        raise UsageFault(
            f"no target for a kernel of {path.name}: {'; '.join(f'{n}: {why}' for n, why in refused)}", output_code.HINT
        )
    raise UsageFault(f"{path.name} has no kernel {kernel}", f"name one of: {names}")


def _written(source: Source, found: Found, to: Path, inside: Box, device: str) -> WrittenTarget:
    """Write a target with free rows, where reference and launcher take other ones; else with the sizes of the call."""
    first, rest, about = source.drafts[0], source.drafts[1:], [_told(found)]
    why = _tried(source, to, inside, device)
    if not why:
        return outcome.written(to, about)
    if first.sizes.rows is None:
        return outcome.written(to, about, [f"the target fails on stand-in tensors: {why}"])
    if not _tried(replace(source, drafts=(draft.everywhere(first), *rest)), to, inside, device):
        return outcome.written(to, about)
    plain = kernels.plain(inside, device, [fixed := draft.fixed(first)])[0]
    failed = _tried(Source(source.path, (fixed,), plain), to, inside, device)
    notes = [f"the target fails on stand-in tensors: {failed}"] if failed else []
    return outcome.written(to, about, [f"small cases have the sizes of the call, for others fail: {why}", *notes])


def _tried(source: Source, to: Path, inside: Box, device: str) -> str:
    """Write a target; return why it fails on stand-in tensors, if it does."""
    text = target_text.write(source)
    target.parse(text, str(to))
    command.save(text, to)
    return program.error_of(inside, device, TRIED, to)


def _told(one: Found) -> str:
    group = one.drafts[0].group
    shapes = ", ".join(
        f"{a.layout.dtype}[{', '.join(a.layout.size)}]" for a in group.inputs.values() if a.layout is not None
    )
    often = f", {len(one.drafts)} launches" if len(one.drafts) > 1 else ""
    return f"{' + '.join(group.names)}: {', '.join(group.atens)} of {shapes}{often}"
