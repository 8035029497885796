"""What a model wrote and what failed goes back to it: shortly, twice at most, with no word that it may not see."""

import ast
import os
from pathlib import Path

import pytest
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.llm.models.relay import RelayModel
from pgo_agent.agent.llm.models.types import Asker, Reply, Suspended
from pgo_agent.agent.proposal import llm as agent_asking
from pgo_agent.agent.proposal import repair, ttgir_view
from pgo_agent.agent.run.record import prompts
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.gate.reason import Reason, figure, of_case, plain, quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.asked import Asked, asking, established
from tests.agent.command_line import ADD
from tests.agent.loopback import code, completion, edit

LINE = "    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside), mask=inside)"
MINUS = LINE.replace(") + tl.load", ") - tl.load")
SWAPPED = LINE.replace("x_ptr", "w_ptr").replace("y_ptr", "x_ptr").replace("w_ptr", "y_ptr")
BROKEN = LINE.replace("tl.load(x_ptr", "tl.loads(x_ptr")
WRONG = f"Less to add.\n{edit(LINE, MINUS)}"
MENDED = f"It must add.\n{edit(MINUS, SWAPPED)}"
SECRETS = ("def reference", "HELD_OUT", "odd", "9_991", " above ", "TOLERANCE")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return established(tmp_path_factory.mktemp("repair"))


def judged(run: Asked, verdict: Verdict, stage: str, why: Reason) -> Candidate:
    """The one candidate of the next generation, with a verdict that some machine came to."""
    (c,) = run.propose()
    run.ctx.store.set_verdict(run.ctx.run.id, c.id, Judgement(verdict, stage, why), None, 1.0)
    return run.ctx.store.candidate(run.ctx.run.id, c.id)


# what was judged ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_wrong_kernel_goes_back_with_the_size_of_its_error_and_what_mends_it_says_so(folder: Path) -> None:
    with asking(folder, [WRONG, MENDED]) as run:
        (wrong,) = run.generation()
        assert wrong.verdict == Verdict.WRONG
        (mended,) = run.generation()
        prompt = run.prompts[1]
        assert (
            "to do: Less to add.\n" in prompt
            and "wrong in stage interpreter" in prompt
            and "max error" in prompt
            and MINUS in prompt
        )
        assert not [s for s in SECRETS if s in prompt]
        assert (mended.verdict, mended.kind, mended.move) == (Verdict.CHECKED, "source", agent_asking.REPAIR)
        assert mended.rationale == f"repairs {wrong.id[:8]}: It must add." and mended.parent == wrong.parent
        assert len(run.prompts) == 2


def test_a_kernel_that_does_not_compile_goes_back_with_the_compilers_words_and_its_line(folder: Path) -> None:
    with asking(folder, [edit(LINE, BROKEN), edit(BROKEN, SWAPPED)]) as run:
        assert run.generation()[0].verdict == Verdict.BUILD_ERROR
        assert run.propose()[0].move == agent_asking.REPAIR
        assert "build_error in stage build" in run.prompts[1] and "loads" in run.prompts[1]
        assert "def reference" not in run.prompts[1]


def test_ttgir_that_triton_refuses_goes_back_with_its_line(folder: Path) -> None:
    with asking(folder, [""]) as run:
        shown = ttgir_view.shown(run.ctx, "shipped")
        assert shown is not None
        text = shown.text.replace("tt.return", "tt.retur")
        run.server.script[:] = [completion(f"No return.\n```ttgir\n{text}```")]
        (refused,) = run.generation()
        assert (refused.kind, refused.verdict) == ("ttgir", Verdict.BUILD_ERROR)
        (question,) = repair.of_judged(run.ctx, (agent_asking.MOVE,))
        prompt = repair.render(run.ctx, question)
        assert "is: tt.retur" in prompt and "+    tt.retur" in prompt
        assert shown.view.text().strip() in prompt and "```edits" in prompt
        assert question.shown is not None and question.shown.text == shown.text


@pytest.mark.parametrize("verdict", [Verdict.SLOWER, Verdict.NO_CHANGE, Verdict.UNDECIDED, Verdict.CHECKED])
def test_what_is_only_slow_or_not_decided_does_not_go_back(folder: Path, verdict: Verdict) -> None:
    with asking(folder, [WRONG, edit(LINE, SWAPPED)]) as run:
        judged(run, verdict, "time", plain("0.98x of the incumbent"))
        assert [c.move for c in run.propose()] == [agent_asking.MOVE]


@pytest.mark.parametrize(
    ("verdict", "stage", "move"),
    [
        (Verdict.CRASHED, "smoke", agent_asking.REPAIR),
        (Verdict.TIMEOUT, "smoke", agent_asking.REPAIR),
        (Verdict.TIMEOUT, "interpreter", agent_asking.MOVE),
    ],
)
def test_a_kernel_that_crashes_or_hangs_goes_back_and_one_that_interprets_slowly_does_not(
    folder: Path, verdict: Verdict, stage: str, move: str
) -> None:
    with asking(folder, [WRONG, MENDED if move == agent_asking.REPAIR else edit(LINE, SWAPPED)]) as run:
        judged(run, verdict, stage, quoted("CUDA error: an illegal memory access was encountered"))
        assert [c.move for c in run.propose()] == [move]
        assert (f"{verdict} in stage smoke: CUDA error" in run.prompts[1]) == (move == agent_asking.REPAIR)


@pytest.mark.parametrize(
    ("stage", "why", "said"),
    [
        (
            "numerics",
            of_case("HELD_OUT/odd") + plain(": ") + figure("max error", 0, 0.7, 0.125),
            "fails on a case that is not shown",
        ),
        ("numerics", quoted("an error on odd, with n=9_991"), "fails on a case that is not shown"),
        (
            "numerics",
            of_case("CASES/1m") + plain(": ") + figure("max error", 0, 0.7, 0.125),
            "1m: output 0: max error 0.7\n",
        ),
        ("race", quoted("Triton's concurrency sanitizer: Buffer race: line 12 and line 14"), "line 12 and line 14"),
    ],
)
def test_a_message_hides_what_a_prompt_hides(folder: Path, stage: str, why: Reason, said: str) -> None:
    with asking(folder, [WRONG, MENDED]) as run:
        judged(run, Verdict.WRONG if stage == "numerics" else Verdict.RACE, stage, why)
        run.propose()
        assert said in run.prompts[1]
        assert not [s for s in SECRETS if s in run.prompts[1]]


def test_a_candidates_kin_gets_two_messages_and_no_third(folder: Path) -> None:
    thirds = [edit(MINUS, MINUS.replace("inside)", "inside, other=0.0)", n)) for n in (1, 2)]
    second = edit(MINUS.replace("inside)", "inside, other=0.0)", 1), MINUS.replace("inside)", "inside, other=1.0)", 1))
    with asking(folder, [WRONG, thirds[0], second, edit(LINE, SWAPPED)]) as run:
        moves = [judged(run, Verdict.WRONG, "interpreter", plain("even: output 0: max error 3")).move for _ in range(3)]
        assert moves == [agent_asking.MOVE, agent_asking.REPAIR, agent_asking.REPAIR]
        (last,) = run.propose()
        assert last.move == agent_asking.MOVE
        assert kernel_part(ADD) in run.prompts[3] and "failed" not in run.prompts[3].splitlines()[0]


def test_messages_come_before_the_fresh_prompt_and_no_more_than_four(folder: Path) -> None:
    texts = [LINE.replace("inside)", f"inside, other={n}.0)", 1) for n in range(1, 5)]
    four = "".join(f"## Candidate {n}\n{edit(LINE, text)}\n" for n, text in enumerate(texts, 1))
    with asking(folder, [four, "No."], width=4) as run:
        failed = run.propose()
        assert len(failed) == 4
        for c in failed:
            run.ctx.store.set_verdict(
                run.ctx.run.id, c.id, Judgement(Verdict.WRONG, "quick", plain("1m: NaN")), None, 1.0
            )
        run.propose()
        about = [e["mends"] for e in run.events if e["type"] == "model.replied"]
        assert about == ["", *(c.id for c in failed), ""] and repair.A_GENERATION == 4


def test_messages_about_messages_count_among_the_four(folder: Path) -> None:
    with asking(folder, [edit("no", "such").replace("no", f"no {n}") for n in range(9)]) as run:
        run.propose()
        assert len(run.prompts) == 1 + repair.MOST
        four = "".join(f"## Candidate {n}\n{edit(f'not {n}', '')}\n" for n in range(1, 5))
        run.server.script[:] = [completion(four)]
        run.propose()
        asked = prompts.asked(run.ctx.store, run.ctx.run.id, 2)
        assert asked[0] == "" and len(asked) == 1 + repair.A_GENERATION


# what could not be read -----------------------------------------------------------------------------------------------


def test_an_edit_that_fits_nowhere_goes_back_at_once_with_the_text_that_it_is_for(folder: Path) -> None:
    with asking(folder, [edit("    no such line", LINE), f"So.\n{edit(LINE, SWAPPED)}"]) as run:
        (c,) = run.propose()
        assert c.move == agent_asking.REPAIR and c.rationale.endswith(": So.")
        assert "SEARCH text of edit 1 is not found: no such line" in run.prompts[1]
        assert "    no such line" in run.prompts[1].split("What you wrote:")[1] and kernel_part(ADD) in run.prompts[1]


def test_a_script_at_fault_goes_back_with_the_view_and_the_ttgir_of_its_lines(folder: Path) -> None:
    with asking(folder, ["```edits\nmove L6 before L4\n```", "```edits\nmove L5 before L4\n```"]) as run:
        (c,) = run.propose()
        assert c.kind == "ttgir" and c.move == agent_asking.REPAIR
        assert "edit 1" in run.prompts[1] and "// L6\n" in run.prompts[1] and "arith.addf" in run.prompts[1]
        assert c.source.startswith("// replaces: ")


def test_the_readable_candidates_of_a_reply_do_not_wait_for_a_message_about_the_other(folder: Path) -> None:
    both = f"## Candidate 1\n{edit('no', 'such')}\n## Candidate 2\n{edit(LINE, SWAPPED)}"
    with asking(folder, [both, edit(LINE, MINUS)], width=2) as run:
        assert [c.move for c in run.propose()] == [agent_asking.MOVE, agent_asking.REPAIR]
        assert "candidate 1: " in run.prompts[1] and SWAPPED not in run.prompts[1].split("The kernel:")[0]


def test_prose_and_refusals_get_no_message(folder: Path) -> None:
    with asking(folder, ["I cannot help with that."]) as run:
        run.propose()
        assert len(run.prompts) == 1


# after a kill ---------------------------------------------------------------------------------------------------------


def test_a_killed_run_asks_nothing_again_and_comes_to_the_same(folder: Path) -> None:
    script = [edit("    no such line", LINE), edit("nor", "this"), f"So.\n{edit(LINE, SWAPPED)}"]
    with asking(folder, script) as run:
        first = [
            (p.source, p.parent) for p in agent_asking.propose_fresh(run.ctx)
        ]  # proposed, and killed before it is recorded
        assert len(run.prompts) == 3 and len(run.ctx.store.remarks(run.ctx.run.id)) == 2
        again = [(p.source, p.parent) for p in agent_asking.propose_fresh(run.ctx)]
        assert again == first and len(run.prompts) == 3
        (c,) = run.propose()
        assert c.source == first[0][0] and len(run.prompts) == 3
        assert prompts.repairs(run.ctx.store, run.ctx.run.id, c.id) == 2


def test_a_run_that_is_killed_before_the_reply_asks_the_very_prompt_again(folder: Path) -> None:
    with asking(folder, [edit(LINE, SWAPPED)]) as run:
        prompt = repair.render(run.ctx, repair.fresh(run.ctx))
        prompts.keep(run.ctx.store, run.ctx.run.id, 1, "", prompt)
        run.ctx.store.add_call(run.ctx.run.id, Reply("no", None, None, 0.0, "m"), "h", "another", "a remark since")
        assert repair.render(run.ctx, repair.fresh(run.ctx)) != prompt
        run.propose()
        assert run.prompts == [prompt]


def test_where_nobody_waits_all_that_a_generation_asks_is_asked_before_the_run_is_suspended(folder: Path) -> None:
    with asking(folder, [WRONG]) as run:
        judged(run, Verdict.WRONG, "interpreter", plain("even: output 0: max error 3"))
        relay = folder / run.ctx.run.id
        run.ctx.model = RelayModel(relay, Asker(run.ctx.run.id, "add", run.ctx.run.digest, run.ctx.emit, wait=False))
        with pytest.raises(Suspended):
            run.propose()
        message, fresh = sorted(relay.glob("*-request.md"))
        assert "failed" in message.read_text() and kernel_part(ADD) in fresh.read_text()
        for request, text in ((message, MENDED), (fresh, "No.")):
            reply = request.with_name(request.name.replace("request", "reply"))
            reply.write_text(text)
            os.utime(reply, (1e9, 1e9))  # it stands still
        assert [c.move for c in run.propose()] == [agent_asking.REPAIR]


# gluon ----------------------------------------------------------------------------------------------------------------

GLUON = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _add(x_ptr, y_ptr, z_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    inside = at < n
    z = gl.load(x_ptr + at, mask=inside) + gl.load(y_ptr + at, mask=inside)
    gl.store(z_ptr + at, z, mask=inside)


def kernel(x, y):
    z = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024, num_warps=4)
    return z
"""


def test_a_gluon_kernel_is_built_and_it_is_said_that_nothing_here_runs_it(folder: Path) -> None:
    with asking(folder, [f"By hand.\n{code(GLUON)}"]) as run:
        (c,) = run.generation()
        assert (c.kind, c.verdict, c.stage) == ("gluon", Verdict.BUILT, "interpreter")
        assert "a Gluon kernel" in (c.reason or "") and "compared on a GPU alone" in (c.reason or "")
        assert {s.verdict for s in c.build.stages} == {None}
        assert ast.parse(c.source)
