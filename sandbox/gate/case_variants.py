"""Public cases with other numbers, and what kernel() launches for them: what a stage of the gate may ask a launcher.

A stage knows the launches of the cases. Where it looks at a kernel with numbers that no case has, it must know whether
kernel() would launch it so. Plain data; `build/variant_launches.py` traces the launcher in the box.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pgo_agent.sandbox.bundle.documents import StepDocument
from pgo_agent.sandbox.json_codec import JsonObject


@dataclass(frozen=True)
class Variant:
    """A public case with other values of some parameters."""

    case: str  # without its set
    changes: tuple[tuple[str, int], ...]  # parameter, value; a bool stays one

    @property
    def said(self) -> str:
        """The variant in words: `8k with K = 0`."""
        return f"{self.case} with {', '.join(f'{n} = {v}' for n, v in self.changes)}"


@dataclass(frozen=True)
class VariantLaunch:
    """A launch of a kernel by kernel() for a variant. Equal launches of several configurations are one."""

    key: str  # of the kernel
    text: str  # its TTGIR
    step: StepDocument


class Launcher(Protocol):
    """A candidate's kernel(), traced on request."""

    @property
    def cases(self) -> Mapping[str, JsonObject]:
        """Public case, without its set -> its parameters."""

    def launches(self, variants: Sequence[Variant]) -> Mapping[Variant, Sequence[VariantLaunch]]:
        """Return what kernel() launches for each variant, in any configuration, until it returns or raises.

        A variant without an entry could not be traced: its inputs cannot be made, or the tracer failed.
        """
