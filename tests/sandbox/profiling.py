"""The static profile of all kernels of a case, by the key of their build."""

from pgo_agent.sandbox.profile import static
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile


def profile_static(
    bench: Workbench, source: str, bundle: str, case: str, label: str | None = None, backend: str = "nvidia"
) -> dict[str, StaticProfile | Problem]:
    return static.of_subjects(bench, static.subjects_of(bench, source, bundle, case, label), backend)
