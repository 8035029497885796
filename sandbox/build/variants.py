"""Variants of a bundle: the same launches of the same TTGIR, compiled another way. Never timed or recorded as code.

`lined` says which line of its TTGIR each instruction comes from. `sanitized` has Triton's concurrency sanitizer in it:
ConSan watches at run time which buffer is read or written while a copy or a dot still uses it, and whether all threads
wait. Version traps (research on triton 3.6 to 3.9): 3.7 and 3.8 do not compile it for plain wgmma kernels.
`reassembled` goes through another release of ptxas: the one that Triton brings is known to miscompile some wgmma with
operands in registers. `recorded` stores clock reads that were put into the text of one kernel
(`sandbox/profile/timeline/`). A variant that does not compile says so, and proves nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder, limits_of
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.documents import (
    BuildDocument,
    KernelDocument,
    Manifest,
    Options,
    PlanDocument,
    StepDocument,
    launch_options,
)
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle

_BARRIERS = re.compile(
    r"(?P<U>__triton_consan_update_barrier_state)|(?P<A>mbarrier\.arrive)|(?P<C>cp\.async\.bulk\.tensor\S*shared::\S*global)"
)
Labels = Mapping[str, str]  # case -> the configuration of it


@dataclass(frozen=True)
class VariantBuild:
    bundle: str  # id; empty when it does not compile
    problem: str  # why not, in one line


def sanitized(builder: Builder, bundle: str, labels: Labels) -> VariantBuild:
    """Build with the sanitizer. Its messages stand in device variables, which no other bundle may have.

    Raises what the compiler's box raises.
    """
    return _build(builder, bundle, labels, {"sanitize": True})


def miscounts(contents: ContentStore, sanitized_build: VariantBuild) -> bool:
    """Return whether the sanitizer took every copy for an arrival where several complete on one barrier.

    Then its picture of that barrier turns twice while the barrier turns once, and that all threads wait for good in it
    proves nothing. So does triton 3.6.0; triton-lang/triton#9046 fixes it. The variant's own PTX shows it: one copy,
    an update of the picture, and the next copy with no arrival between them.
    """
    texts = (
        contents.get(k["files"]["ptx"], "ptx").decode()
        for k in contents.manifest(sanitized_build.bundle)["kernels"].values()
    )
    return any("CUC" in "".join(m.lastgroup or "" for m in _BARRIERS.finditer(t)) for t in texts)


def reassembled(builder: Builder, bundle: str, labels: Labels) -> VariantBuild:
    """Build with the ptxas of the package nvidia-cuda-nvcc, where the interpreter has it. Raises as `sanitized`
    does."""
    return _build(builder, bundle, labels, {"reassemble": True})


def lined(builder: Builder, bundle: str, labels: Labels) -> VariantBuild:
    """Build with line information: lines of each kernel's TTGIR in the content store. Raises as `sanitized` does.

    ptxas mostly makes the same code of it: 19 or 20 of 21 builds of the shipped kernels, by the path that the lines
    name; the others take all 255 registers. So its code is compared before a figure of it is used for the original.
    """
    return _build(builder, bundle, labels, {"lines": True})


def recorded(
    builder: Builder, bundle: str, labels: Labels, kernel: str, text: str, records: Mapping[str, Any]
) -> VariantBuild:
    """Build with `text`, which holds records, in place of one kernel's own; the other builds stay.

    `records` is what `sandbox/compiler/proton.py` takes. Such a variant has profile scratch, which no other bundle
    may have. It has line information, too: what runs between two records is read from its code. Raises as `sanitized`
    does.
    """
    return _build(builder, bundle, labels, {"records": records, "lines": True}, {kernel: text.encode()})


def _build(
    builder: Builder,
    bundle: str,
    labels: Labels,
    how: Options,
    replaced: Mapping[str, bytes] | None = None,
) -> VariantBuild:
    """Build a variant of every kernel that is launched, or of those for which a text is given."""
    contents = builder.contents
    manifest = contents.manifest(bundle)
    plans = {case: {label: manifest["plans"][case][label]} for case, label in labels.items()}
    launched = {
        s["kernel"] for choices in plans.values() for p in choices.values() for s in p["steps"] if "kernel" in s
    }
    names, texts, options = {}, {}, {}
    for key in launched if replaced is None else launched & replaced.keys():
        kernel = manifest["kernels"][key]
        variant_options = _options(builder, key, kernel) | how
        text = replaced[key] if replaced else contents.get(kernel["files"]["ttgir"], "ttgir")
        names[key] = builder.key(text, variant_options)
        texts[names[key]], options[names[key]] = text, variant_options
    trace_and_compile.compile_missing(builder.box, contents, builder.device, texts, options, builder.cores)
    lost: BuildDocument = {"error": "it left no build"}
    builds = {k: contents.build(k) or lost for k in texts}
    broken = next((str(b["error"]) for b in builds.values() if "error" in b), "")
    if broken:
        return VariantBuild("", _line(broken))
    variant: Manifest = {
        "schema": manifest["schema"],
        "kernels": {k: manifest["kernels"][k] for k in launched - names.keys()}
        | {k: b["kernel"] for k, b in builds.items()},
        "plans": {c: {n: _renamed(p, names) for n, p in choices.items()} for c, choices in plans.items()},
    }
    return _checked(builder, contents.put_bundle(variant), how)


def _options(builder: Builder, key: str, kernel: KernelDocument) -> Options:
    """Return what it was compiled with; by its manifest, where the build was made by a version that did not keep
    that."""
    stored = (builder.contents.build(key) or {}).get("options")
    return dict(stored) if stored else launch_options(kernel)


def _renamed(plan: PlanDocument, names: Mapping[str, str]) -> PlanDocument:
    def renamed(step: StepDocument) -> StepDocument:
        return {**step, "kernel": names.get(step["kernel"], step["kernel"])} if "kernel" in step else step

    return {**plan, "steps": [renamed(step) for step in plan["steps"]]}


def _checked(builder: Builder, name: str, how: Options) -> VariantBuild:
    limits = replace(limits_of(builder.device), variables="sanitize" in how, records="records" in how)
    try:
        validate.load(builder.contents.bundle(name), builder.contents.artefacts, limits)
    except BadBundle as e:
        return VariantBuild("", str(e))
    return VariantBuild(name, "")


def _line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no reason given")[:300]
