"""Where a model is asked, and with which key: from the environment, loud where that cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pgo_agent.agent.llm.models.openai_server import ServerModel
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.llm.models.test_openai_server import KEY, ask
from tests.agent.loopback import completion, serving, unused_url


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("OPENAI_")]:
        monkeypatch.delenv(name)


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([completion()]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
        assert ServerModel("tiny").complete("hello").text == "done"
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"


def test_a_server_elsewhere_needs_a_key_and_the_message_says_which_variable() -> None:
    for url in (None, "https://models.example/v1", "http://10.0.0.7:8000/v1"):
        with pytest.raises(UsageFault, match="OPENAI_API_KEY"):
            ServerModel("tiny", url)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_a_server_on_this_machine_needs_no_key(host: str) -> None:
    assert ServerModel("tiny", f"http://{host}:8000/v1").url == f"http://{host}:8000/v1"


@pytest.mark.parametrize("url", ["localhost:8000", "8000", "ftp://localhost/", "http://", "http://[::1", "http://a:b/"])
def test_an_address_that_is_none_is_a_usage_fault(url: str) -> None:
    with pytest.raises(UsageFault, match="not a URL"):
        ServerModel("tiny", url, KEY)


def test_an_address_that_only_looks_like_one_is_a_usage_fault() -> None:
    with pytest.raises(UsageFault, match="not an address"):
        ServerModel("tiny", "http://a\x7fb/v1", KEY).complete("hello")


def test_a_password_in_the_address_is_not_shown() -> None:
    model = ServerModel("tiny", "https://me:hunter2@models.example/v1?token=hunter2", KEY)
    assert model.url == "https://models.example/v1" and "hunter2" not in repr(model)


@pytest.mark.parametrize("key", ["a\nb", "schlüssel", "a\x00b"])
def test_a_key_that_cannot_be_one_is_refused_without_telling_it(key: str) -> None:
    with pytest.raises(UsageFault, match="OPENAI_API_KEY holds characters") as caught:
        ServerModel("tiny", "https://models.example/v1", key)
    assert key not in str(caught.value)


def test_a_model_without_a_name_is_a_usage_fault() -> None:
    with pytest.raises(UsageFault, match="no name"):
        ServerModel(" ", "http://localhost:8000/v1")


def test_a_proxy_of_the_environment_is_not_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, unused_url())
    with serving([completion()]) as server:
        assert ask(server).text == "done"


def test_openai_and_jinja_are_not_imported_before_they_are_needed(tmp_path: Path) -> None:
    code = (
        "import sys, pgo_agent.agent.llm.models.openai_server, pgo_agent.agent.llm.replies\n"
        "import pgo_agent.agent.proposal.prompt\n"
        "print([m for m in ('openai', 'httpx2', 'jinja2', 'torch', 'langgraph') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
