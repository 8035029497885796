"""What a prompt tells of a real run, and what it never tells."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.proposal import prompt as prompting
from pgo_agent.agent.proposal.prompt import collect
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.gate.reason import figure, of_case, plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge

from tests.agent.command_line import ADD, pgo, write
from tests.agent.facts import FULL, GLUON
from tests.agent.loopback import completion, serving
from tests.agent.proposed import proposed

FAILURES = [
    ("numerics", of_case("HELD_OUT/very-odd") + plain(": ") + figure("max error", 0, 0.7, 0.125)),
    ("numerics", quoted("did not end: stopped in 'numerics HELD_OUT/very-odd' at its deadline")),
    ("numerics", quoted("an error on very-odd, with n=9991")),
    ("interpreter", of_case("ragged") + plain(": ") + figure("max error", 0, 0.5, 0.25)),
    ("build", quoted("line one\n\x1b[31mline two")),
]


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """A real run of a target with secrets, in which candidates failed in ways that could tell of them."""
    folder = tmp_path_factory.mktemp("prompt")
    path = write(folder, ('{"odd": dict(n=9_991)}', '{"very-odd": dict(n=9_991)}\nTOLERANCE = {"max_ratio": 1.875}'))
    assert pgo("optimize", "add.py", "--case", "1m", "--minutes", "0", cwd=folder).code == 4
    store = Store(folder / ".pgo-agent")
    run, found, device = store.run("last"), target.read(path), devices.find("h200")
    builder = Builder(found, device, box.choose("auto"), store.contents)
    for i, (stage, why) in enumerate(FAILURES):
        store.add_generation(run.id, i, "shipped", [proposed("s", f"c{i}", move=f"m{i}", author="x")])
        store.set_verdict(run.id, f"c{i}", Judgement(Verdict.WRONG, stage, why), None, 1.0)
    opened = Context(store, run, found, device, builder, None, None, GpuJudge(found, gpu=None), lambda event: None)
    yield opened
    opened.close()
    store.close()


@pytest.fixture(scope="module")
def prompt(ctx: Context) -> str:
    return prompting.render(prompting.gather(ctx, ["the reply changes nothing"]))


def test_the_prompt_tells_the_facts_of_the_run(prompt: str) -> None:
    for fact in ("NVIDIA H200", "132 SMs", "1m, as shipped: ~", "BLOCK=1024 num_warps=4", "GB/s", "20 registers"):
        assert fact in prompt
    assert "64 warps" in prompt and kernel_part(ADD) in prompt
    assert "- m3 (r): wrong in stage interpreter: ragged: output 0: max error 0.5\n" in prompt
    assert "- m4 (r): wrong in stage build: line one [31mline two\n- the reply changes nothing\n" in prompt


def test_it_tells_the_arguments_of_every_public_case(prompt: str) -> None:
    assert "- 1m: x float32[1048576], y float32[1048576]\n" in prompt


def test_strides_are_told_where_a_tensor_is_not_contiguous() -> None:
    given = {
        "a": {"dtype": "float16", "size": [2, 1, 8], "stride": [8, 99, 1]},
        "b": {"dtype": "bfloat16", "size": [4, 8], "stride": [1, 4]},
        "causal": True,
    }
    assert collect._arguments(given) == "a float16[2, 1, 8], b bfloat16[4, 8] strides [1, 4], causal=True"


def test_it_shows_what_the_compiler_made_of_the_kernel_and_how_to_edit_that(prompt: str) -> None:
    assert re.search(r"^L1 +kernel _add\(", prompt, re.M) and "tt.func public @_add" in prompt
    assert "```edits" in prompt and "```ttgir" in prompt


def test_it_offers_the_parameters_that_the_launch_takes(prompt: str) -> None:
    assert re.search(r'^```json\n\[{"BLOCK": \d+, "num_warps": 4', prompt, re.M)


def test_it_says_which_rewrites_do_not_apply_and_why(prompt: str) -> None:
    assert re.search(r"^- .*specialize warps.*: no loop with a dot$", prompt, re.M)


def test_a_kernel_without_dots_is_told_nothing_of_gluon_and_warpgroups(prompt: str) -> None:
    assert "gluon.jit" not in prompt and "Card: when tensor instructions" not in prompt


SECRETS = ("very-odd", "9_991", "9991", "HELD_OUT", "held", "x + y\n\n\ndef", "def reference", "TOLERANCE", "1.875")
SECRETS += ("max_ratio", "SMALL", "inputs(", "0.125", "0.25", "error 0.7")


@pytest.mark.parametrize("secret", SECRETS)
def test_held_out_cases_reference_and_tolerances_are_in_no_prompt(prompt: str, secret: str) -> None:
    assert secret not in prompt


def test_of_a_failure_on_a_held_out_case_no_more_is_told_than_that(prompt: str) -> None:
    assert "- m0 (r): wrong in stage numerics: fails on a case that is not shown\n" in prompt


def test_gathered_twice_it_is_the_same(ctx: Context, prompt: str) -> None:
    assert prompting.render(prompting.gather(ctx, ["the reply changes nothing"])) == prompt


@pytest.mark.slow
def test_what_was_left_out_is_told_while_it_runs_and_by_show(tmp_path: Path) -> None:
    write(tmp_path)
    with serving([completion("I would rather not.")]) as server:
        budget = ("--prompt-tokens", "2600", "--model", "tiny", "--case", "1m", "--candidates", "1", "--json")
        done = pgo("optimize", "add.py", *budget, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
    assert done.code in (0, 1), done.err
    (told,) = [e for e in done.events if e["type"] == "model.prompted"]
    assert told["tokens"] <= 2600 and "skipped" in told["left_out"]
    assert "left out of prompts for want of --prompt-tokens" in pgo("show", cwd=tmp_path).out


def test_a_budget_that_holds_no_prompt_makes_no_run(tmp_path: Path) -> None:
    write(tmp_path)
    asked = ("--model", "tiny", "--prompt-tokens", "100")
    done = pgo("optimize", "add.py", *asked, cwd=tmp_path, OPENAI_BASE_URL="http://127.0.0.1:1/v1", OPENAI_API_KEY="k")
    assert done.code == 2 and "give --prompt-tokens" in done.err
    assert "[]" in pgo("runs", "--json", cwd=tmp_path).out


def test_the_generated_lines_stand_in_the_card_of_gluon() -> None:
    assert all(f"\n- {line}\n" in prompting.render(FULL) for line in GLUON)
