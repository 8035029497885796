"""The skill is written whole; its stop hook lets no agent call a kernel faster that this workspace did not accept."""

import json
import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from pgo_agent.agent.commands import skills, verdicts
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.candidate import NewCandidate, candidate_id
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.coverage import Count, Coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.command_line import ADD

FASTER = ADD.replace('"BLOCK": 2048', '"BLOCK": 4096')
HOOK = resources.files("pgo_agent.skills").joinpath("pgo-agent/scripts/stop_hook.py")
OURS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
WITHOUT_US = "/usr/bin:/bin"  # no verdict can be asked for there: every claim is sent back, without a wait
CLAIM, NO_CLAIM, DENIED = "The kernel is 1.8x faster now.", "I renamed a variable.", "The gain is not measured: no GPU."


def judged(workspace: Path, source: str, verdict: Verdict) -> None:
    """Record a verdict on a text."""
    store = Store(workspace)
    store.add_run("run-1", workspace / "add.py", "0", ADD, "h100", RunSettings(), RunFacts())
    candidate = NewCandidate(
        id=candidate_id(source), parent="shipped", kind="source", move="m", rationale="", author="a", source=source
    )
    store.add_generation("run-1", 1, "shipped", [candidate])
    judgement = Judgement(verdict, "confirm", plain("1.8x"), {}, Coverage({"cases": Count(1, 1)}))
    store.set_verdict("run-1", candidate.id, judgement, 1.8, 1.0)
    store.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose kernel was changed after the last commit."""
    for words in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "add.py").write_text(ADD)
    (tmp_path / ".gitignore").write_text(".pgo-agent\n")
    subprocess.run("git add . && git commit -qm a", shell=True, cwd=tmp_path, check=True)
    (tmp_path / "add.py").write_text(FASTER)
    return tmp_path


def stopped(folder: Path, hook: dict[str, str], path: str = OURS) -> subprocess.CompletedProcess[str]:
    given = json.dumps({"cwd": str(folder)} | hook)
    return subprocess.run(
        [sys.executable, str(HOOK)], input=given, capture_output=True, text=True, env=os.environ | {"PATH": path}
    )


def test_a_claim_about_a_text_without_an_accepted_verdict_is_sent_back(repository: Path) -> None:
    judged(repository / ".pgo-agent", FASTER, Verdict.SLOWER)
    done = stopped(repository, {"last_assistant_message": CLAIM})
    assert done.returncode == 2 and "add.py: slower" in done.stderr


def test_a_claim_about_exactly_the_accepted_text_may_stand(repository: Path) -> None:
    judged(repository / ".pgo-agent", FASTER, Verdict.ACCEPTED)
    assert stopped(repository, {"last_assistant_message": CLAIM}).returncode == 0
    (repository / "add.py").write_text(FASTER.replace("4096", "8192"))
    assert stopped(repository, {"last_assistant_message": CLAIM}).returncode == 2


CLAIMS = (
    "It takes half the time.", "It dropped from 2.0 ms to 1.0 ms.", "I sped it up.", "A 1.5-fold gain.",
    "Twice as fast.", "This improves throughput by 25 %.", "The runtime fell by 30%.", "Performance doubled.",
    "It is not slower; it is 2x faster.", "Not only correct but 2x faster.", "No regressions and 2x faster.",
    "It is 12% faster.", "It is 2x faster with no extra memory.", "2x faster, never mind the rest.",
)  # fmt: skip
NONE = (
    "I use a grid of 2 x 4 blocks.",
    "It is not faster.",
    "It may be 2x faster, but it was not timed.",
    "Fixed the time zone.",
)


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_one_in_whatever_words(repository: Path, words: str) -> None:
    assert stopped(repository, {"last_assistant_message": words}, WITHOUT_US).returncode == 2


@pytest.mark.parametrize("how", ["committed", "staged, nothing committed", "no git", "ignored", "another alphabet"])
def test_a_kernel_of_today_is_found_wherever_it_is(repository: Path, how: str) -> None:
    git = ["git", "-C", str(repository)]
    if how == "committed":
        subprocess.run([*git, "commit", "-qam", "b"], check=True)
    elif how == "ignored":
        (repository / ".gitignore").write_text("add.py\n")
        subprocess.run([*git, "rm", "-q", "--cached", "add.py"], check=True)
    elif how == "another alphabet":
        subprocess.run([*git, "checkout", "-q", "add.py"], check=True)
        (repository / "add.py").rename(repository / "k\u00e9rnel.py")
        subprocess.run([*git, "add", "-A"], check=True)
    else:
        shutil.rmtree(repository / ".git")
        if how != "no git":
            subprocess.run("git init -q && git add .", shell=True, cwd=repository, check=True)
    done = stopped(repository, {"last_assistant_message": CLAIM}, WITHOUT_US)
    assert done.returncode == 2 and "'pgo-agent'" in done.stderr, "a verdict on it is asked for"


def test_what_git_brought_and_nobody_changed_for_a_day_needs_no_verdict(repository: Path) -> None:
    dated = os.environ | {"GIT_COMMITTER_DATE": "2026-01-01T00:00:00"}
    subprocess.run(["git", "-C", str(repository), "commit", "-qam", "b"], check=True, env=dated)
    assert stopped(repository, {"last_assistant_message": CLAIM}).returncode == 0


def test_what_cannot_be_found_out_lets_nobody_stop(repository: Path) -> None:
    gone = stopped(repository, {"last_assistant_message": CLAIM, "cwd": str(repository / "gone")})
    assert gone.returncode == 2 and "cannot be asked for" in gone.stderr
    bare = stopped(repository, {"last_assistant_message": CLAIM}, WITHOUT_US)
    assert bare.returncode == 2 and "pgo-agent" in bare.stderr


@pytest.mark.parametrize("words", [NO_CLAIM, DENIED, *NONE])
def test_who_claims_nothing_may_stop(repository: Path, words: str) -> None:
    assert stopped(repository, {"last_assistant_message": words}).returncode == 0


def test_the_last_words_are_found_in_a_transcript(repository: Path) -> None:
    entries = [
        {"message": {"role": "assistant", "content": [{"type": "text", "text": CLAIM}]}},
        {"message": {"role": "user", "content": "thanks"}},
    ]
    transcript = repository / "t.jsonl"
    transcript.write_text("".join(json.dumps(e) + "\n" for e in entries))
    assert stopped(repository, {"transcript_path": str(transcript)}, WITHOUT_US).returncode == 2


def test_a_verdict_holds_for_another_layout_and_for_no_other_statement(tmp_path: Path) -> None:
    judged(tmp_path / "ws", FASTER, Verdict.ACCEPTED)
    store, file = Store(tmp_path / "ws"), tmp_path / "x.py"
    for text, verdict in ((FASTER + "\n# a remark\n", Verdict.ACCEPTED), (FASTER.replace("+ tl", "- tl"), None)):
        file.write_text(text)
        assert verdicts.known(store, file).verdict == verdict
    store.close()


def test_an_edited_skill_is_not_written_over(tmp_path: Path) -> None:
    skill = skills.install(tmp_path, force=False)[0]
    text = skill.read_text()
    assert text.startswith("---\nname: pgo-agent\n") and skills.install(tmp_path, force=False)
    skill.write_text("mine")
    with pytest.raises(UsageFault, match="differs"):
        skills.install(tmp_path, force=False)
    skills.install(tmp_path, force=True)
    assert skill.read_text() == text
