"""The judge on a real GPU: honest kernels pass, and what cheats, hangs, crashes or errs gets the verdict for it.

Needs a GPU that sandbox/devices.py knows. A hang costs its deadline of 10 s; all else takes seconds.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.agent.evaluation.safety_checks import hazard
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build import variants
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge, visible_gpu
from pgo_agent.sandbox.judge.questions import Against, Confirm, Idle, PeakRates, Peaks, Problem, Race, Sweep, SweepEntry
from pgo_agent.sandbox.judge.references import Side, Whole, bundle_ref, plan_ref
from pgo_agent.sandbox.judge.results import memcheck

ROOT = Path(__file__).parents[2]
PUBLIC, HELD_OUT = "CASES/d64-2k", "HELD_OUT/d64-ragged-causal"
PIPELINED = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}
CASES = """
CASES = {"d64-2k": dict(B=4, H=32, HK=32, S=2048, D=64, causal=False, dtype="float16")}
HELD_OUT = {"d64-ragged-causal": dict(B=1, H=4, HK=2, S=333, D=64, causal=True, dtype="float16")}
"""  # after the file's own: fa_fwd.py with cases that take little time
EDITS = {  # candidate -> what it has instead of a line of fa_fwd.py
    "wrong": ("offs_m[:, None] >= cols[None, :]", "offs_m[:, None] > cols[None, :]"),
    "mutating": (
        "    if EVEN:\n        tl.store(o_ptrs",
        "    tl.store(V + offs_n, tl.zeros([BLOCK_N], tl.float32).to(V.dtype.element_ty))\n"
        "    if EVEN:\n        tl.store(o_ptrs",
    ),
    "spinning": (
        "    block = tl.program_id(0)\n",
        "    block = tl.program_id(0)\n    x = tl.load(LSE)\n"
        "    while x != 12345.0:\n        x = tl.load(LSE, volatile=True)\n",
    ),
    "illegal": ("lse_ptrs = LSE +", "lse_ptrs = LSE + 100000000000 +"),
}


class Gate:
    """A target, its kernel as shipped, and a judge for both."""

    def __init__(self, path: Path, folder: Path, public: str = PUBLIC, held_out: str = HELD_OUT) -> None:
        subject, self.public, self.held_out = target.read(path), public, held_out
        self.contents = ContentStore(folder)
        self.known: dict[tuple[str, int | None], Built] = {}
        self.judge = GpuJudge(subject, gpu=visible_gpu() or "0")
        self.judge.ask(Sweep(()))  # starts the process, which says what GPU it has
        device = devices.named(self.judge.environment.gpu or "")
        if device is None:
            self.judge.close()
            pytest.skip(f"sandbox/devices.py does not know {self.judge.environment.gpu}")
        self.builder = Builder(subject, device, box.choose(), self.contents)

    def build(self, source: str, limit: int | None) -> Built:
        if (source, limit) in self.known:
            return self.known[source, limit]
        built = self.builder.build(source, {"CASES": None, "HELD_OUT": None}, limit, self.builder.cores)
        assert built.ok, built.failures
        return self.known.setdefault((source, limit), built)

    def verdict(self, source: str) -> Judgement:
        """What the judge says of a candidate's first configuration, against the first of the kernel as shipped."""
        bundle = Whole(bundle_ref(self.contents, self.build(source, 1).bundle))
        return self.judge.verdict(questions.Judge.of(bundle, self.against()))

    def confirmed(self, source: str) -> Judgement:
        """What the judge says of it again, with new seeds."""
        return self.judge.verdict(Confirm.of(first_of(self, self.build(source, 1)), self.against()))

    def against(self) -> Against:
        own = first_of(self, self.build(self.builder.target.source, 1))
        return Against(own, own, own, (self.public,), (self.held_out,), None)


def first_of(gate: Gate, built: Built) -> Side:
    """The first configuration of every case."""
    return {c: plan_ref(gate.contents, built.bundle, o[0].label) for c, o in built.choices.items()}


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    folder = tmp_path_factory.mktemp("attention")
    path = folder / "fa_fwd.py"
    path.write_text((ROOT / "kernels" / "fa_fwd.py").read_text() + CASES)
    gate = Gate(path, folder / "shelf")
    yield gate
    gate.judge.close()


def edited(source: str, name: str) -> str:
    """The kernel file with one of EDITS in it."""
    old, new = EDITS[name]
    assert source.count(old) == 1
    return source.replace(old, new)


def is_level(judged: Judgement) -> bool:
    """Whether a candidate came out as fast as the incumbent, to 2 %."""
    assert judged.verdict == Verdict.SLOWER, judged.reason
    return bool(abs((judged.speedup or 0.0) - 1) < 0.02)


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_below_fits_the_kernel_as_it_stands(name: str) -> None:
    assert edited((ROOT / "kernels" / "fa_fwd.py").read_text(), name)


@pytest.mark.gpu
def test_every_configuration_of_an_honest_kernel_is_right(tmp_path: Path) -> None:
    gate = Gate(ROOT / "tests" / "kernels" / "add.py", tmp_path / "shelf")
    try:
        built = gate.build(gate.builder.target.source, None)
        bundle = bundle_ref(gate.contents, built.bundle)
        entries = tuple(
            SweepEntry(bundle, case, choice.label) for case, choices in built.choices.items() for choice in choices
        )
        answers = gate.judge.ask(Sweep(entries)).entries
    finally:
        gate.judge.close()
    assert len(answers) == len(entries) == 3 * 2
    assert {(a.case, a.choice): a.problem for a in answers if a.problem} == {}
    assert all(a.ms and min(a.ms) > 0 for a in answers)


@pytest.mark.gpu
def test_the_incumbent_itself_is_not_called_faster(attention: Gate) -> None:
    assert is_level(attention.verdict(attention.builder.target.source))


@pytest.mark.gpu
def test_a_reference_that_stops_the_gpu_at_a_nan_is_no_candidates_fault(tmp_path: Path) -> None:
    """Counts that a NaN makes zero are indices -1: an assertion on the GPU, after which its process is lost."""
    text = (ROOT / "kernels" / "fa_fwd.py").read_text() + CASES
    assert text.count("\ndef reference(") == 1
    guarded = (
        "    kept = (q == q).all(dim=-1).long().reshape(-1)\n    torch.ones(2, device=q.device).gather(0, kept - 1)\n"
    )
    head = re.search(r"\ndef reference\(.*?\):\n", text, re.DOTALL)
    assert head
    (tmp_path / "fa_fwd.py").write_text(text[: head.end()] + guarded + text[head.end() :])
    gate = Gate(tmp_path / "fa_fwd.py", tmp_path / "shelf")
    try:
        judged = gate.confirmed(gate.builder.target.source)  # a first look at what is no faster takes no stress inputs
        assert is_level(judged)
        assert {d["strain"].split(" in ")[0] for d in judged.evidence["dropped"]} >= {"a NaN"}
    finally:
        gate.judge.close()


@pytest.mark.gpu
def test_a_wrong_mask_is_wrong(attention: Gate) -> None:
    """Only the held-out case is causal: it is checked although it is never timed."""
    judged = attention.verdict(edited(attention.builder.target.source, "wrong"))
    assert judged.verdict == Verdict.WRONG, judged.reason
    assert "held-out" in judged.reason and "ragged" not in judged.reason


@pytest.mark.gpu
def test_a_candidate_that_changes_its_inputs_is_caught(attention: Gate) -> None:
    judged = attention.verdict(edited(attention.builder.target.source, "mutating"))
    assert judged.verdict in (Verdict.CHEATING, Verdict.WRONG, Verdict.RACE), judged.reason


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), [("spinning", Verdict.TIMEOUT), ("illegal", Verdict.CRASHED)])
def test_after_a_hang_or_a_fault_the_next_verdict_is_normal(attention: Gate, name: str, verdict: Verdict) -> None:
    replaced = attention.judge.replaced
    judged = attention.verdict(edited(attention.builder.target.source, name))
    assert (judged.verdict, attention.judge.replaced) == (verdict, replaced + 1), judged.reason
    assert is_level(attention.verdict(attention.builder.target.source))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("waits", "verdict"), [(None, None), (4, Verdict.RACE)])
def test_the_sanitizer_refuses_a_wait_that_lets_pass_what_it_is_for(
    attention: Gate, waits: int | None, verdict: Verdict | None
) -> None:
    """The three-stage pipeline as it is, and with one wait relaxed: that errs by 0.0055, within a tolerance of 1e-2."""
    source = attention.builder.target.source
    own = attention.build(source, None)
    (choice,) = [o for o in own.choices[PUBLIC] if o.config == PIPELINED]
    kernel = attention.contents.manifest(own.bundle)["kernels"][choice.kernels[0]]
    text = attention.contents.get(kernel["files"]["ttgir"], "ttgir").decode()
    edited_text = f"// replaces: {choice.kernels[0]}\n" + (
        re.sub(r"(async_wait .*num = )2", rf"\g<1>{waits}", text) if waits else text
    )
    cases = {"CASES": None, "HELD_OUT": None}
    built = attention.builder.build(source, cases, None, attention.builder.cores, untrusted=True, ttgir=edited_text)
    assert built.ok, built.failures
    twin = variants.sanitized(attention.builder, built.bundle, {PUBLIC: choice.label})
    assert twin.bundle, twin.problem
    attention.judge.fresh()
    bundle = bundle_ref(attention.contents, twin.bundle)
    judged = attention.judge.verdict(Race(bundle, PUBLIC, choice.label, stress=False, sanitized=True))
    attention.judge.fresh()
    found = hazard(judged)
    assert (found and found.verdict, judged.verdict) == (verdict, Verdict.CRASHED if verdict else Verdict.CHECKED), (
        judged.reason
    )


@pytest.mark.gpu
def test_a_stress_run_of_an_honest_kernel_gives_the_same_bits_every_time(attention: Gate) -> None:
    built = attention.build(attention.builder.target.source, 1)
    bundle = bundle_ref(attention.contents, built.bundle)
    judged = attention.judge.verdict(Race(bundle, PUBLIC, built.choices[PUBLIC][0].label, stress=True))
    assert judged.verdict == Verdict.CHECKED, judged.reason


# what is looked at beside the clock -----------------------------------------------------------------------------------

ADD = ROOT / "tests" / "kernels" / "add.py"
TWICE = '    _add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, z, x.numel())\n'
OUTSIDE = "tl.load(y_ptr + at, mask=inside), mask=inside"


@pytest.fixture(scope="module")
def addition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gate = Gate(ADD, tmp_path_factory.mktemp("addition") / "shelf")
    yield gate
    gate.judge.close()


def side(gate: Gate, source: str) -> Side:
    return first_of(gate, gate.build(source, 1))


@pytest.mark.gpu
def test_a_launch_that_the_outputs_do_not_need_is_found_by_leaving_it_out(addition: Gate) -> None:
    own = addition.builder.target.source
    assert own.count(TWICE) == 1
    shipped, candidate = side(addition, own), side(addition, own.replace(TWICE, 2 * TWICE))
    assert addition.judge.ask(Idle("CASES/1m", candidate, shipped)).idle == ("_add", "_add")
    assert addition.judge.ask(Idle("CASES/1m", shipped, shipped)).idle == ()


@pytest.mark.gpu
def test_the_peaks_are_those_of_hardware_and_are_measured_once(addition: Gate) -> None:
    first, device = addition.judge.environment, addition.builder.device
    addition.judge.fresh()
    addition.judge.ask(Sweep(()))
    assert addition.judge.environment.peaks == first.peaks
    assert first.tflops and first.gbps
    assert 0.5 * device.fp16_tflops < first.tflops < 1.05 * device.fp16_tflops
    assert 0.6 * device.gbps < first.gbps < 1.05 * device.gbps
    told = addition.judge.ask(Peaks("CASES/1m"))
    assert isinstance(told, PeakRates)
    assert (round(told.flops / 1e12, 1), round(told.moved / 1e9, 1)) == (first.tflops, first.gbps)
    assert isinstance(addition.judge.ask(Peaks("CASES/none")), Problem)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("beyond", "found"), [(0, False), (1, True)])
def test_compute_sanitizer_sees_a_read_outside_that_changes_nothing(
    addition: Gate, tmp_path: Path, beyond: int, found: bool
) -> None:
    """Past the last element lies nothing that a result would show: guard zones cannot tell, a checker of memory can."""
    own = addition.builder.target.source
    read = f"tl.load(x_ptr + n - 1 + {beyond})"
    source = own.replace(
        OUTSIDE, f"tl.load(y_ptr + at, mask=inside) + tl.where({read} == 12345.678, 1.0, 0.0), mask=inside"
    )
    assert source != own
    log = tmp_path / "log"
    judge = replace(addition.judge, under=(*memcheck.command(), "--log-file", str(log)))
    chosen = side(addition, source)["CASES/1m"]
    try:
        judge.verdict(Race(chosen.bundle, "CASES/1m", chosen.choice, stress=False, unguarded=True))
    finally:
        judge.close()
    assert ("Invalid __global__ read" in memcheck.problem(log)) == found, log.read_text()[-2000:]


@pytest.mark.gpu
@pytest.mark.slow
def test_after_twenty_hangs_in_a_row_the_gpu_is_as_it_was(attention: Gate) -> None:
    source = edited(attention.builder.target.source, "spinning")
    attention.verdict(attention.builder.target.source)
    free, started = memory_left(), time.monotonic()
    assert [attention.verdict(source).verdict for _ in range(20)] == [Verdict.TIMEOUT] * 20
    lost = (time.monotonic() - started) / 20
    assert is_level(attention.verdict(attention.builder.target.source))
    print(f"{lost:.1f} s a hang; memory left before {free}, after {memory_left()} MiB")
    assert lost < 8
    assert abs(memory_left() - free) < 512


def memory_left() -> int:
    """MiB of the first GPU that nobody holds."""
    command = ["nvidia-smi", "-i", visible_gpu() or "0", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
