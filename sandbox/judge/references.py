"""How a question names bundles of a workspace and plans in them. Plain data."""

from dataclasses import dataclass

from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.json_codec import Record


@dataclass(frozen=True)
class BundleRef(Record):
    """A bundle of a workspace."""

    id: str
    manifest: str  # path
    artefacts: str  # folder


@dataclass(frozen=True)
class Whole(Record):
    """All plans of a bundle."""

    bundle: BundleRef


@dataclass(frozen=True)
class PlanRef(Record):
    """One plan of a bundle, of the case that it is given for."""

    bundle: BundleRef
    choice: str


Side = dict[str, PlanRef]  # case -> what is launched in it


def bundle_ref(contents: ContentStore, bundle: str) -> BundleRef:
    """Return how a command names a bundle of a workspace."""
    return BundleRef(bundle, str(contents.bundle(bundle).resolve()), str(contents.artefacts.resolve()))


def plan_ref(contents: ContentStore, bundle: str, choice: str) -> PlanRef:
    """Return how a command names a plan of such a bundle."""
    return PlanRef(bundle_ref(contents, bundle), choice)
