"""A model as profiler in a run on a GPU: its choice decides which passes are taken, and is in the record."""

import json
from pathlib import Path

import pytest

from tests.agent.command_line import pgo
from tests.agent.loopback import completion, serving


@pytest.mark.gpu
def test_a_pass_that_the_model_leaves_out_is_not_taken_and_its_reason_is_recorded(tmp_path: Path) -> None:
    done_with_it = completion(json.dumps({"passes": [], "reason": "The code says enough."}))
    with serving([done_with_it]) as server:
        done = pgo(
            "optimize", "fa_fwd", "--case", "d64-4k", "--candidates", "1", "--width", "1", "--model", "profiler=tiny",
            cwd=tmp_path, OPENAI_BASE_URL=server.url,
        )  # fmt: skip
        assert server.requests
    assert done.code in (0, 1), done.err
    found = json.loads(pgo("show", "--json", cwd=tmp_path).out)
    passes = found["profiles"][0]["passes"]
    assert passes["static"] == "" and passes["timeline"] == "The code says enough."
    assert [c["role"] for c in found["calls"]] == ["profiler"]
    assert found["profiles"][0]["author"] is None
