"""What `profile` looks at: a target as it stands, or a candidate of one of its runs, as that run built it.

A candidate is read from the record, and its builds from the content store: no launcher runs again but to say which
lines its kernels are from. Of TTGIR the kernel file is the one whose kernel it replaces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgo_agent.agent.run import ttgir_files
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.target_file import locate
from pgo_agent.sandbox import target
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.coverage import PUBLIC
from pgo_agent.sandbox.target import Target


@dataclass(frozen=True)
class ProfileSubject:
    target: Target
    source: str  # the kernel file whose lines a profile names
    device: str = ""  # that a candidate was built for
    bundle: str = ""  # of a candidate
    configurations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of a candidate: public case -> labels
    chosen: Mapping[str, str] = field(default_factory=dict)  # of these, what its judge chose

    @property
    def untrusted(self) -> bool:
        return bool(self.bundle)

    def fits(self, device: Device) -> None:
        """Raise UsageFault for a candidate that was built for another device."""
        if self.device and self.device != device.key:
            raise UsageFault(f"that candidate was built for {self.device}", f"profile it with --device {self.device}")


def of(file: Path, store: Store, candidate: str | None) -> ProfileSubject:
    """Return the subject. `candidate`: RUN/ID, with the beginning of an id. Raises UsageFault where there is none, or
    it belongs to another file, or was not built."""
    from pgo_agent.agent.run import incumbent  # needs numpy

    subject = target.read(locate(file))
    if candidate is None:
        return ProfileSubject(subject, subject.source)
    of_run, _, name = candidate.partition("/")
    run = store.run(of_run)
    found = store.candidate(run.id, name)
    if run.digest != subject.digest:
        raise UsageFault(f"run {run.id} is of another target than {file} is now", f"its target is {run.target}")
    if not found.has_bundle:
        why = f": {found.build.failures[0].message}" if found.built and found.build.failures else ""
        raise UsageFault(f"candidate {found.id} was not built{why}", "profile one that was")
    built = found.build
    labels = {c: tuple(o.label for o in os) for c, os in built.choices.items() if c.startswith(PUBLIC)}
    source = incumbent.kernel_file(store, run.id, found.id, subject.source)
    source = ttgir_files.launcher(source, found.source, ()) if found.kind == "ttgir" else source
    return ProfileSubject(subject, source, run.device, built.bundle, labels, incumbent.chosen(store, found))
