"""Kernels that hide something between launches, know a check when they see one, or err where nobody looked; on a GPU.

Each is the target's own kernel with a few lines changed. The cases are small: the whole file takes a few minutes, most
of them to build. What needs no GPU to be shown is in tests/sandbox/judge/results/test_hidden_state.py, test_ptx.py and
test_stress_inputs.py, with functions in place of kernels.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge import questions, references

from tests.agent.breaking import database
from tests.agent.command_line import pgo
from tests.gpu.test_on_gpu import Gate, first_of

TARGET = '''"""Three times X, times ONES; KEPT is scratch that nobody needs."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 2048}, num_warps=4)], key=["n"]
)
@triton.jit
def _triple(X, ONES, Y, KEPT, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(X + at, mask=inside)
    one = tl.load(ONES + at, mask=inside)
    y = x * 3.0 * one
    tl.store(Y + at, y, mask=inside)


def kernel(x, ones):
    y, kept = torch.empty_like(x), torch.empty_like(x)
    n = x.numel()
    _triple[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, ones, y, kept, n)
    return y


def reference(x, ones):
    return x * 3.0 * ones


def inputs(case, generator):
    x = torch.randn(case["n"], generator=generator, device=generator.device)
    return {"x": x, "ones": torch.ones_like(x)}


CASES = {"1m": dict(n=1 << 20), "4m": dict(n=1 << 22)}
SMALL = {"even": dict(n=2048), "ragged": dict(n=1000)}
HELD_OUT = {"odd": dict(n=99_991)}
LAUNCH_SPACE = {"BLOCK": [1024], "num_warps": [4]}
flops = bytes_moved = lambda case: 12 * case["n"]
'''
Y = "    y = x * 3.0 * one\n"
STORE = "    tl.store(Y + at, y, mask=inside)\n"
LAUNCH = '    _triple[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, ones, y, kept, n)\n'
NOW = (
    '    now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], tl.int64, is_pure=False, pack=1)\n'
    "    seldom = (now >> 12) % 16 == 0\n"
)
SHARED = '''    asm: tl.constexpr = """{ .shared .align 4 .b8 kept[512]; .reg .u32 a, b;
        mov.u32 a, %tid.x; shl.b32 a, a, 2; mov.u32 b, kept; add.u32 a, a, b;
        ld.shared.u32 $0, [a]; st.shared.u32 [a], 12345; }"""
    held = tl.inline_asm_elementwise(asm, "=r,r", [at], dtype=tl.int32, is_pure=False, pack=1)
    y = tl.where((held == 12345) & (tl.program_id(0) < 64), x, x * 3.0 * one)
'''
HELD = "    held = tl.load(KEPT + at, mask=inside, other=0.0)\n"
WORD = HELD + "    word = held.to(tl.int32, bitcast=True)\n"
RIGHT_IF = "    y = tl.where(SIGN, x * 3.0 * one, x)\n"
SIGNS = {  # a property of what scratch holds before -> how the kernel sees it
    "is 3 modulo 4": "(word & 3) == 3",
    "is not 3 modulo 4": "(word & 3) != 3",
    "is not zero": "word != 0",
    "is zero": "word == 0",
    "is NaN": "held != held",
    "is no NaN": "held == held",
    "is positive": "word >= 0",
}
OTHERS = {  # name -> its edits, the verdicts that it may get, and a part of the reason
    "parks its results in an input": (
        {Y: Y + "    tl.store(ONES + at, y, mask=inside)\n"},
        {Verdict.CHEATING},
        "",
    ),
    "parks its results in an input now and then": (
        {Y: NOW + Y + "    tl.store(ONES + at, y, mask=inside & seldom)\n"},
        {Verdict.CHEATING},
        "input",
    ),
    "parks its results behind the last buffer": (
        {STORE: STORE + "    tl.store(KEPT + n + 7 + at, y, mask=at < 1000)\n"},
        {Verdict.WRONG},
        "bytes outside",
    ),
    "parks its results between its inputs now and then": (
        {STORE: NOW + STORE + "    tl.store(X + n + 7 + at, y, mask=(at < 1000) & seldom)\n"},
        {Verdict.WRONG},
        "bytes outside",
    ),
    "is wrong now and then": (
        {Y: NOW + "    y = tl.where(seldom, x, x * 3.0 * one)\n"},
        {Verdict.WRONG, Verdict.RACE, Verdict.CHEATING},
        "",
    ),
    "reads behind an input": (
        {Y: Y + "    beyond = tl.load(ONES + n + 3)\n    y = tl.where(beyond == beyond, y, y * 1.0000002)\n"},
        {Verdict.WRONG},
        "reads outside of its tensors",
    ),
    "reads scratch that nobody wrote": (
        {Y: HELD + Y + "    y = tl.where(held == held, y, y * 1.0000002)\n"},
        {Verdict.WRONG},
        "what its buffers held before",
    ),
    "loses a NaN of its second input": (
        {Y: "    y = x * 3.0 * tl.where(one == one, one, 1.0)\n"},
        {Verdict.WRONG},
        "with a NaN in input 2",
    ),
    "takes zero for one": (
        {Y: "    y = tl.where(x == 0.0, 3.0, x * 3.0 * one)\n"},
        {Verdict.WRONG},
        "",
    ),
}
UNCHOSEN = {Y: Y + "    y = tl.where((BLOCK == 2048) & (n % 1024 == 0), y * 1.01, y)\n"}
EDGE = """

@triton.jit
def _edge(X, ONES, Y, start, n, BLOCK: tl.constexpr):
    at = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n)
    tl.store(Y + at, x * 3.0 * tl.load(ONES + at, mask=at < n), mask=at < n)


def kernel"""
EVEN = "    even = n // 2048 * 2048\n" + LAUNCH.replace("(n, meta", "(even, meta").replace("kept, n)", "kept, even)")
HONEST = {
    "itself": {},
    "with an edge launch that has nothing to do in even cases": {
        "\n\ndef kernel": EDGE,
        LAUNCH: EVEN + "    _edge[(8,)](x, ones, y, even, n, BLOCK=256)\n",
    },
    "with an edge launch of no blocks in even cases": {
        "\n\ndef kernel": EDGE,
        LAUNCH: EVEN + "    _edge[(triton.cdiv(n - even, 256),)](x, ones, y, even, n, BLOCK=256)\n",
    },
}
FINE = {Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ACCEPTED}
ANY_ORDER = "NONDETERMINISTIC = True\n"


class Whole(Gate):
    """As Gate, with every configuration and every case."""

    def judged(self, source: str) -> Judgement:
        bundle = references.bundle_ref(self.contents, self.build(source, None).bundle)
        return self.judge.verdict(questions.Judge.of(references.Whole(bundle), self._against()))

    def confirmed(self, source: str) -> Judgement:
        """In the first of its configurations, whichever is the fastest."""
        self.judge.fresh()
        return self.judge.verdict(questions.Confirm.of(first_of(self, self.build(source, None)), self._against()))

    def _against(self) -> questions.Against:
        own = first_of(self, self.build(self.builder.target.source, None))
        return questions.Against(own, own, own, ("CASES/1m", "CASES/4m"), ("HELD_OUT/odd",), None)


def opened(folder: Path, more: str = "") -> Iterator[Whole]:
    path = folder / "triple.py"
    path.write_text(TARGET + more)
    gate = Whole(path, folder / "shelf")
    yield gate
    gate.judge.close()


@pytest.fixture(scope="module")
def triple(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    yield from opened(tmp_path_factory.mktemp("triple"))


@pytest.fixture(scope="module")
def any_order(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """The same, where outputs may differ from launch to launch."""
    yield from opened(tmp_path_factory.mktemp("any_order"), ANY_ORDER)


def edited(changes: dict[str, str], text: str = TARGET) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def sniffing(sign: str) -> str:
    return edited({Y: WORD + RIGHT_IF.replace("SIGN", SIGNS[sign])})


def test_every_edit_below_fits_the_target_as_it_stands() -> None:
    for changes in (UNCHOSEN, *HONEST.values(), *(c for c, _, _ in OTHERS.values())):
        assert compile(edited(changes), "candidate", "exec")
    assert len({sniffing(sign) for sign in SIGNS}) == len(SIGNS)


@pytest.mark.gpu
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_is_not_refused(triple: Whole, any_order: Whole, name: str) -> None:
    judged = triple.judged(edited(HONEST[name]))
    assert judged.verdict in FINE, judged.reason
    assert any_order.judged(edited(HONEST[name]) + ANY_ORDER).verdict in FINE


@pytest.mark.gpu
def test_what_was_looked_at_is_said(triple: Whole) -> None:
    judged = triple.judged(edited({Y: NOW + Y}))  # other code, or it would not be measured
    smoke = next(s for s in judged.stages if s["stage"] == "smoke")
    assert smoke["coverage"]["counts"]["configurations"] == [2, 6]
    found = next((s for s in judged.stages if s["stage"] == "numerics"), None)
    if found:
        ran, of = found["coverage"]["counts"]["strains"]
        assert found["coverage"]["counts"]["configurations"] == [6, 6] and 10 < ran < of


@pytest.mark.gpu
def test_a_kernel_that_errs_where_it_finds_its_mark_in_scratch_is_wrong(triple: Whole) -> None:
    """A caching allocator gives the next call the same memory."""
    mark = HELD + Y + "    y = tl.where(held == 12345.0, x, y)\n    tl.store(KEPT + at, 12345.0, mask=inside)\n"
    judged = triple.judged(edited({Y: mark}))
    assert judged.verdict == Verdict.WRONG and "an earlier launch of its own left" in judged.reason, judged.reason


@pytest.mark.gpu
def test_a_kernel_that_errs_where_it_finds_its_mark_in_shared_memory_errs_in_no_timed_launch(triple: Whole) -> None:
    """Nothing but another kernel's stores takes it away. Each thread has words of its own, and the first blocks find no
    marks of their own launch. Launches without such a kernel between them may find it, and then it is said."""
    judged = triple.judged(edited({Y: SHARED}))
    assert judged.verdict in FINE or "an earlier launch of its own left" in judged.reason, judged.reason


@pytest.mark.gpu
@pytest.mark.parametrize("name", OTHERS)
def test_it_is_refused_that_a_kernel(triple: Whole, name: str) -> None:
    changes, verdicts, reason = OTHERS[name]
    judged = triple.judged(edited(changes))
    if judged.verdict == Verdict.SLOWER:  # then nobody looked at its results any further
        judged = triple.confirmed(edited(changes))
    assert judged.verdict in verdicts and reason in judged.reason, (judged.verdict, judged.stage, judged.reason)


@pytest.mark.gpu
def test_a_configuration_that_is_not_chosen_has_to_be_right_too(triple: Whole) -> None:
    judged = triple.confirmed(edited(UNCHOSEN))
    assert judged.verdict == Verdict.WRONG and "2048" in judged.reason, judged.reason
    assert triple.confirmed(edited({})).verdict in FINE


@pytest.mark.gpu
@pytest.mark.parametrize("sign", SIGNS)
def test_a_kernel_is_wrong_that_is_right_only_if_its_scratch(triple: Whole, sign: str) -> None:
    judged = triple.judged(sniffing(sign))
    assert judged.verdict == Verdict.WRONG, (judged.verdict, judged.stage, judged.reason)


@pytest.mark.gpu
@pytest.mark.parametrize("sign", ["is NaN", "is not zero", "is positive"])
def test_where_outputs_may_differ_so_is_one_that_is_right_in_one_run_of_three(any_order: Whole, sign: str) -> None:
    judged = any_order.judged(sniffing(sign) + ANY_ORDER)
    assert judged.verdict == Verdict.WRONG, (judged.verdict, judged.stage, judged.reason)


@pytest.mark.gpu
def test_where_outputs_may_differ_a_timed_launch_that_errs_is_found(any_order: Whole) -> None:
    judged = any_order.judged(edited(OTHERS["is wrong now and then"][0]) + ANY_ORDER)
    assert judged.verdict == Verdict.WRONG, (judged.verdict, judged.stage, judged.reason)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_the_whole_gate_does_not_refuse_a_launch_that_only_some_cases_need(tmp_path: Path, name: str) -> None:
    """Races, and launches that are left out, which a judge alone is not asked about."""
    (tmp_path / "triple.py").write_text(TARGET)
    (tmp_path / "given.py").write_text(edited({**HONEST[name], "Three times X": "3 times X"}))
    done = pgo("check", "given.py", "--target", "triple.py", "--json", cwd=tmp_path)
    db = database(tmp_path)
    try:
        ((verdict, reason),) = db.execute("SELECT verdict, reason FROM candidates").fetchall()
    finally:
        db.close()
    assert verdict in {*FINE, Verdict.NO_CHANGE}, (reason, done.err)
