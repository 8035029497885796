"""Any script is made or refused with the edit's name, and what is made Triton's own parser and verifier reads."""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise, product
from random import Random

import pytest
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.ttgir import normalize, reader, triton_parser
from pgo_agent.sandbox.ttgir.edits import excerpts
from pgo_agent.sandbox.ttgir.edits.errors import BadEdit
from pgo_agent.sandbox.ttgir.edits.script import BadScript
from pgo_agent.sandbox.ttgir.pseudocode.view import Line

from tests.sandbox import ttgir_samples
from tests.sandbox.editing import SMALL, Kernel, kernel

NAMES = ("odd", "pipelined", "specialized", "small")
SOME = {"pipelined": 3, "specialized": 10}  # every how many lines: they have many, and each takes a tenth of a second
BATCH = 80  # texts that Triton is asked of in one process


@cache
def _kernel(name: str) -> Kernel:
    return SMALL if name == "small" else kernel(triton_parser.bare(ttgir_samples.text(name)))


def _made(seeds: range, edit: Callable[[Kernel, Random], str]) -> list[tuple[Kernel, str]]:
    """What random scripts make of the kernels, those that may be applied. The seeds are the same in every run, so
    that how many may be applied is no matter of luck."""
    found: list[tuple[Kernel, str]] = []
    for name, seed in product(NAMES, seeds):
        before, random = _kernel(name), Random(seed)
        try:
            text = before.apply("\n".join(edit(before, random) for _ in range(random.choice((1, 1, 2, 3)))))
        except (BadEdit, BadScript) as e:
            assert str(e)
        else:
            found.append((before, text))
    return found


def _refused(contents: ContentStore, texts: list[str]) -> list[str]:
    """What Triton says against texts."""
    different = list(dict.fromkeys(texts))
    batches = [different[i : i + BATCH] for i in range(0, len(different), BATCH)]
    answers = [a for batch in batches for a in triton_parser.ask_all(box.choose(), contents, 90, batch)]
    return [
        f"{a.error}\n{t.splitlines()[a.error.line - 1]}" for a, t in zip(answers, different, strict=True) if a.error
    ]


def _near(before: Kernel, random: Random) -> str:
    """A move of a line by a few lines."""
    lines = before.view.lines
    at = random.randrange(len(lines))
    to = min(max(at + random.randint(-6, 6), 0), len(lines) - 1)
    return f"move {lines[at].label} {random.choice(('before', 'after'))} {lines[to].label}"


def _any(before: Kernel, random: Random) -> str:
    """Any edit; what it puts in are copies of lines, so that types are right."""
    ops = [line for line in before.view.lines if line.ops and not line.text.endswith(":")]
    label, other = (random.choice(ops).label for _ in range(2))
    last = random.choice(before.view.lines[-12:]).label
    copy, own = (excerpts.excerpt(before.module, before.view, [at]) for at in (other, label))
    where = random.choice(("before", "before", "after", "past", "at start of", "at end of"))
    edits = {
        "move": f"move {random.choice(before.view.lines).label} {where} {other}",
        "move a range": f"move {label}..{last} {where} {other}",
        "delete": f"delete {label}",
        "set": f"set {label} pendings = {random.randrange(4)}",
        "insert": f"insert {where} {other}:\n```\n{copy}```",
        "insert elsewhere": f"insert {where} {label}:\n```\n{copy}```",
        "replace": f"replace {label} with:\n```\n{own}```",
        "replace by more": f"replace {label} with:\n```\n{copy}{own}```",
    }
    return edits[random.choice(list(edits))]


def test_moves_that_are_made_keep_every_op_and_are_read_by_triton(add_contents: ContentStore) -> None:
    made = _made(range(16), _near)
    assert len(made) > 12
    for before, text in made:
        assert Counter(map(_op, text.splitlines())) == Counter(map(_op, before.text.splitlines()))
    assert _refused(add_contents, [text for _, text in made]) == []


def _op(line: str) -> str:
    """A line without its indent and the names of its values."""
    return " ".join(word.partition("%")[0] for word in line.split())


@pytest.mark.long
def test_whatever_script_is_made_triton_reads(add_contents: ContentStore) -> None:
    made = _made(range(20), _any)
    assert len(made) > 20
    assert _refused(add_contents, [text for _, text in made]) == []


def test_a_move_and_the_move_back_give_the_same_normal_form() -> None:
    tried = 0
    for name, before in ((name, _kernel(name)) for name in NAMES):
        for i, (line, following) in enumerate(pairwise(before.view.lines)):
            if i % SOME.get(name, 1) or not _alone(before, line, following):
                continue
            try:
                moved = before.edited(f"move {following.label} before {line.label}")
            except BadEdit:
                continue
            assert normalize.digest(moved.module) != normalize.digest(before.module)
            back = moved.apply(f"move {moved.view.lines[i].label} past {moved.view.lines[i + 1].label}")
            assert normalize.digest(reader.parse(back)) == normalize.digest(before.module)
            tried += 1
    assert tried >= 6


def _alone(before: Kernel, line: Line, following: Line) -> bool:
    """Whether two different lines stand side by side in the text, and what the second is made of is in no other."""
    if line.depth != following.depth or line.role != following.role or not line.places or not following.places:
        return False
    if str(line.ops[0]).strip() == str(following.ops[0]).strip():
        return False
    inside = sum(1 for _ in line.ops[0].walk())
    between = set(range(line.places[0] + inside, following.places[0]))
    given = [name for op in following.ops[1:] for name in op.results]
    elsewhere = Counter(re.findall(r"%[\w$.-]+", before.text))
    elsewhere.subtract(name for op in following.ops for name in (*op.operands, *op.results))
    return between == set(following.places[1:]) and not any(elsewhere[name] for name in given)
