"""Cases with other numbers, and what kernel() launches for them: what a stage of the gate may ask a launcher.

A stage knows the launches of the cases. Where it looks at a kernel with numbers that no case has, it must know whether
kernel() would launch it so. Plain data; `build/variant_launches.py` traces the launcher in the box.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pgo_agent.sandbox.bundle.documents import StepDocument
from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.ttgir.tree import Module


@dataclass(frozen=True)
class Variant:
    """A case with other values of some parameters."""

    case: str  # with its set
    changes: tuple[tuple[str, int], ...]  # parameter, value

    @property
    def secret(self) -> bool:
        """Whether it is of a held-out case."""
        return self.case.startswith(HELD_OUT)

    @property
    def said(self) -> str:
        """The variant in words: `CASES/8k with K = 0`. Nothing of a held-out case."""
        changes = ", ".join(f"{n} = {v}" for n, v in self.changes)
        return "a held-out case with other numbers" if self.secret else f"{self.case} with {changes}"


@dataclass(frozen=True)
class VariantLaunch:
    """A launch of a kernel by kernel() for a variant. Equal launches of several configurations are one."""

    key: str  # of the kernel
    module: Module  # its TTGIR
    step: StepDocument


class Launcher(Protocol):
    """A candidate's kernel(), traced on request."""

    @property
    def cases(self) -> Mapping[str, JsonObject]:
        """Case, with its set -> its parameters, as a candidate's build says: some may be missing."""

    def launches(self, variants: Sequence[Variant]) -> Mapping[Variant, Sequence[VariantLaunch]]:
        """Return what kernel() launches for each variant, in any configuration, until it returns or raises: their
        texts are read, and their steps fit them. The variants are all public, or all held out.

        A variant without an entry could not be traced: its inputs cannot be made, or the tracer failed.
        """
