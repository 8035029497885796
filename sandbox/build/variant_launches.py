"""What a candidate's kernel() launches for variants of cases, traced in the box; nothing is built.

Relies on the tracer. Its answer is untrusted: what does not look like launches is no answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.trace_and_compile import Traced, TracedPlan
from pgo_agent.sandbox.bundle.documents import StepDocument
from pgo_agent.sandbox.errors import BadBundle, Killed
from pgo_agent.sandbox.gate.barriers import launches
from pgo_agent.sandbox.gate.case_variants import Variant, VariantLaunch
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.target import Target
from pgo_agent.sandbox.ttgir import reader

CONFIGURATIONS = 8  # of a variant
KEPT = 16  # answers: a candidate is examined without its held-out cases, and then with them
_OF_CASE = "InputsFault"  # the tracer's name for inputs() that failed


@dataclass(frozen=True)
class Launcher:
    """The kernel() of a source."""

    builder: Builder
    source: str
    cases: Mapping[str, JsonObject]  # case, with its set -> its parameters

    def launches(self, variants: Sequence[Variant]) -> Mapping[Variant, Sequence[VariantLaunch]]:
        """Return what kernel() launches for each variant; without those that could not be traced.

        Raises what `Builder.build` raises for untrusted code.
        """
        return _launches(self.builder, self.source, tuple(variants))


@lru_cache(maxsize=KEPT)
def _launches(builder: Builder, source: str, variants: tuple[Variant, ...]) -> dict[Variant, tuple[VariantLaunch, ...]]:
    builder.box.admit(untrusted=True)
    section = "HELD_OUT" if any(v.secret for v in variants) else "CASES"
    place = builder.box, builder.contents, _with(builder.target, section, variants), builder.device

    def trace(full: bool) -> Traced:
        how = (*place, source, {section: None}, CONFIGURATIONS)
        return trace_and_compile.trace(*how, sample=True, untrusted=True, full=full, report=builder.report)

    try:
        traced = trace(full=False)
        if "error" not in traced and not builder.first_fits(traced):
            traced = trace(full=True)
        return {} if "error" in traced else dict(_read(builder, traced, section, variants))
    except (Killed, BadBundle, KeyError, TypeError, AttributeError, ValueError, IndexError):
        return {}


def _with(target: Target, section: str, variants: Sequence[Variant]) -> Target:
    """Return the target with variants as the cases of a set, named by their places."""
    names = (v.case.split("/", 1)[1] for v in variants)
    entries = (
        f"{str(i)!r}: {{**{section}[{n!r}], **{dict(v.changes)!r}}}"
        for i, (n, v) in enumerate(zip(names, variants, strict=True))
    )
    lines = f"{section} = {{{', '.join(entries)}}}\nWEIGHTS = dict.fromkeys(CASES, 1.0)\n"
    lines += "def flops(case):\n    return 1\nbytes_moved = flops\n"  # theirs may not be made for such numbers
    return target.with_more(lines)


def _read(
    builder: Builder, traced: Traced, section: str, variants: Sequence[Variant]
) -> Iterator[tuple[Variant, tuple[VariantLaunch, ...]]]:
    keys, modules = builder.keys(traced), {n: reader.parse(t.decode()) for n, t in traced["texts"].items()}
    for i, entries in traced["traced"][section].items():
        if any(e.get("error", {}).get("type") == _OF_CASE for e in entries):
            continue
        found: dict[str, VariantLaunch] = {}
        for step in (s for e in entries for s in _steps(e) if "kernel" in s):
            key, module = keys[step["kernel"]], modules[step["kernel"]]
            launches.settled_by(step, module)  # it can be read
            launch = VariantLaunch(key, module, step)
            found.setdefault(f"{key} {step['grid']} {step['args']}", launch)
        yield variants[int(i)], tuple(found.values())


def _steps(entry: TracedPlan) -> Sequence[StepDocument]:
    return entry["plan"]["steps"] if "plan" in entry else entry["launched"]
