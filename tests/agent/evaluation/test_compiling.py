"""Sanitized twins compile side by side, each once, however often judging is begun."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pgo_agent.agent.evaluation import measure
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.build import variants
from pgo_agent.sandbox.build.variants import VariantBuild

CTX = cast(Context, SimpleNamespace(builder=None))


def test_sanitized_builds_of_two_candidates_compile_side_by_side_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    together, made = threading.Barrier(2, timeout=30), list[str]()

    def sanitized(_builder: Any, bundle: str, _labels: Any) -> VariantBuild:
        made.append(bundle)
        together.wait()  # breaks where one waits for the other
        return VariantBuild(bundle, "")

    monkeypatch.setattr(variants, "sanitized", sanitized)
    with ThreadPoolExecutor(2) as pool:
        compiling = measure.Compiling(pool)
        asked = [compiling.sanitized(CTX, bundle, {"CASES/one": "a"}) for bundle in ("x", "y", "x", "y")]
        assert [f.result().bundle for f in asked] == ["x", "y", "x", "y"]
    assert sorted(made) == ["x", "y"]


def test_another_configuration_is_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        variants, "sanitized", lambda _builder, bundle, labels: VariantBuild(bundle + labels["CASES/one"], "")
    )
    with ThreadPoolExecutor(1) as pool:
        compiling = measure.Compiling(pool)
        found = [compiling.sanitized(CTX, "x", {"CASES/one": label}).result().bundle for label in "ab"]
    assert found == ["xa", "xb"]
