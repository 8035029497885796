"""Which model has which role, and what its tokens cost: read from the command line, the environment and a file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.llm.models import model_by_role, prices
from pgo_agent.agent.llm.models.prices import Price
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo, write

ALONE = {"profiler": "embedded", "summarizer": "embedded", "optimizer": "embedded"}
SHORT = ("optimize", "add.py", "--case", "1m", "--candidates", "1")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), {}),
        (("tiny",), {"optimizer": "tiny"}),
        (("optimizer=tiny",), {"optimizer": "tiny"}),
        (("tiny", "summarizer=big"), {"optimizer": "tiny", "summarizer": "big"}),
        (("profiler=relay:in box",), {"profiler": "relay:in box"}),
        (("org/model=v2:free",), {"optimizer": "org/model=v2:free"}),
        (("summarizer=a=b:c",), {"summarizer": "a=b:c"}),
        (("optimizer=profiler=x",), {"optimizer": "profiler=x"}),
        (("Profiler=x",), {"optimizer": "Profiler=x"}),
        (("",), {}),
    ],
)
def test_only_a_roles_name_before_the_first_equals_sign_is_one(given: tuple[str, ...], told: dict[str, str]) -> None:
    assert model_by_role.roles(given) == ALONE | told


@given(st.text(min_size=1).filter(lambda t: t.strip() and t.partition("=")[0].strip() not in model_by_role.ROLES))
def test_any_other_name_is_the_optimizers(name: str) -> None:
    assert model_by_role.roles([name]) == ALONE | {"optimizer": name.strip()}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("a", "b"), "two models for the optimizer"),
        (("a", "optimizer=b"), "two models for the optimizer"),
        (("profiler=a", "profiler=a"), "two models for the profiler"),
        (("summarizer=",), "names no model"),
        (("summarizer= ",), "names no model"),
    ],
)
def test_a_role_that_is_named_twice_or_without_a_model_is_a_usage_fault(given: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageFault, match=words):
        model_by_role.roles(given)


def test_the_environment_names_what_the_command_line_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGO_AGENT_MODEL", "relay:in box")
    monkeypatch.setenv("PGO_AGENT_SUMMARIZER_MODEL", "big")
    assert model_by_role.roles([]) == ALONE | {"optimizer": "relay:in box", "summarizer": "big"}
    assert model_by_role.roles(["embedded", "summarizer=small"]) == ALONE | {"summarizer": "small"}


# prices ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "pgo-agent").mkdir()
    return tmp_path / "pgo-agent" / "prices.toml"


def test_prices_are_of_a_million_tokens(table: Path) -> None:
    table.write_text('["org/model:free=0"]\nprompt = 0\ncompletion = 0\n[relay]\nprompt = 1.5\ncompletion = 10\n')
    found = prices.read()
    assert found == {"org/model:free=0": Price(0.0, 0.0), "relay": Price(1.5, 10.0)}
    assert found["relay"].of(2_000_000, 100_000) == 4.0


def test_without_a_file_no_price_is_known(table: Path) -> None:
    assert prices.read() == {}


def test_another_file_may_be_named(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (table.parent / "own.toml").write_text("[tiny]\nprompt = 1\ncompletion = 2\n")
    monkeypatch.setenv("PGO_AGENT_PRICES", str(table.parent / "own.toml"))
    assert prices.read() == {"tiny": Price(1.0, 2.0)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"tiny = 5", "'tiny' is no price"),
        (b"[tiny]\nprompt = 1", "'tiny' is no price"),
        (b"[tiny]\nprompt = 1\ncompletion = 2\nanswer = 3", "'tiny' is no price"),
        (b"[tiny]\nprompt = -1\ncompletion = 2", "'tiny' is no price"),
        (b"[tiny]\nprompt = nan\ncompletion = 2", "'tiny' is no price"),
        (b"[tiny]\nprompt = inf\ncompletion = 2", "'tiny' is no price"),
        (b"[tiny]\nprompt = true\ncompletion = 2", "'tiny' is no price"),
        (b'[tiny]\nprompt = "1"\ncompletion = 2', "'tiny' is no price"),
        (b"[tiny]\nprompt = 10000000\ncompletion = 2", "'tiny' is no price"),
        (b"[tiny", "cannot read the prices in .*prices.toml"),
        (b"\xff", "cannot read the prices in .*prices.toml"),
    ],
)
def test_a_table_with_something_wrong_is_refused_by_name(table: Path, text: bytes, words: str) -> None:
    table.write_bytes(text)
    with pytest.raises(UsageFault, match=words):
        prices.read()


def test_only_models_whose_tokens_are_spent_now_need_a_price() -> None:
    known = {"relay": Price(1.0, 1.0), "other": Price(1.0, 1.0)}
    wanted = {"profiler": "embedded", "summarizer": "replay:a.jsonl", "optimizer": "relay:/inbox"}
    assert model_by_role.prices_of(wanted, known, 5.0) == {"relay": Price(1.0, 1.0)}
    assert model_by_role.prices_of(wanted | {"optimizer": "tiny"}, known, None) == {}


def test_money_for_a_model_without_a_price_makes_no_run_and_says_where_to_write_it(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo(
        *SHORT, "--model", "tiny", "--money", "1", cwd=tmp_path,
        XDG_CONFIG_HOME=str(tmp_path), OPENAI_BASE_URL="http://localhost:9/v1",
    )  # fmt: skip
    assert done.code == 2 and "no price is known of tiny" in done.err
    assert f'{tmp_path}/pgo-agent/prices.toml: ["tiny"], then prompt = 1.25' in done.err
    assert "[]" in pgo("runs", "--json", cwd=tmp_path).out


def test_two_models_of_a_role_make_no_run(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo(*SHORT, "--model", "summarizer=a", "--model", "summarizer=b", cwd=tmp_path)
    assert done.code == 2 and "two models for the summarizer" in done.err
