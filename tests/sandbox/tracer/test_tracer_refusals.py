"""What a recorded plan cannot hold is refused with its line, and the refusal stands."""

import pytest
from pgo_agent.sandbox.build.result import Built

from tests.sandbox.tracing import Traced, builder, trace, write

SNIPPET = """
import contextlib

KEPT = torch.empty(4096, device="cuda", dtype=torch.float16)
SEEN = {}


def _run(x, n=4096):
    y = torch.empty_like(x)
    _copy[(4,)](x, y, n, BLOCK=1024)
    return y


def overridden(x):
    y = torch.empty_like(x)
    with contextlib.suppress(Exception):
        _copy[(4,)](x, y, 4096, BLOCK=1024, ir_override="other.ptx")  # overridden
    _copy[(4,)](x, y, 4096, BLOCK=1024)
    return y


def flushed(x):
    y = torch.empty_like(x)
    _copy[(4,)](x, y, 4096, BLOCK=1024, enable_reflect_ftz=False)  # flushed
    return y


def item(x):
    return _run(x, int(x.sum().item()))  # item


def boolean(x):
    return _run(x) if x[0] > 0 else _run(-x)  # boolean


def listed(x):
    return _run(x, int(x[:3].tolist()[0]))  # listed


def counted(x):
    return _run(x, len(x.nonzero()))  # counted


def stream(x):
    with torch.cuda.stream(torch.cuda.Stream()):  # stream
        return _run(x)


def event(x):
    torch.cuda.Event(enable_timing=True).record()  # event
    return _run(x)


def graph(x):
    torch.cuda.CUDAGraph()  # graph
    return _run(x)


def captured(x):
    with torch.cuda.graph(None):  # captured
        return _run(x)


def annotated(x):
    def on(stream: torch.cuda.Stream | None, graph: torch.cuda.CUDAGraph | None):
        return x if isinstance(stream, torch.cuda.Stream) else _run(x)

    return on(None, None)


def compiled(x):
    return torch.compile(_run)(x)  # compiled


def benchmarked(x):
    triton.testing.do_bench(lambda: _run(x))  # benchmarked
    return _run(x)


def numbered(x):
    y = torch.empty_like(x)
    _copy[(4,)](x, y, x.data_ptr(), BLOCK=1024)
    return y


def table(x):
    y = torch.empty_like(x)
    pointers = torch.tensor([x.data_ptr(), y[1024:].data_ptr()], pin_memory=True).to(x.device, non_blocking=True)
    _copy[(4,)](pointers, y, 2, BLOCK=1024)
    return y


class Part:
    # A buffer as libraries have their own: Triton asks it for its type and its address.
    def __init__(self, base, offset):
        self.base, self.dtype, self.shape, self.offset = base, base.dtype, base.shape, offset

    def data_ptr(self):
        return self.base.data_ptr() + self.offset


def reinterpreted(x):
    y = torch.empty_like(x)
    _copy[(4,)](triton.reinterpret(x, tl.bfloat16), Part(y, 64), 4096, BLOCK=1024)
    return y


def within(x):
    y = torch.empty_like(x)
    _copy[(4,)](x, Part(y, 1), 4096, BLOCK=1024)  # within
    return y


def foreign(x):
    y = torch.empty_like(x)
    pointers = torch.tensor([x.data_ptr(), KEPT.data_ptr()], device=x.device)  # foreign
    _copy[(4,)](pointers, y, 2, BLOCK=1024)
    return y


def beyond(x):
    y = torch.empty_like(x)
    _copy[(4,)](x, y, x.data_ptr() + 4 * 4096 + 4, BLOCK=1024)  # beyond
    return y


def kept(x):
    y = torch.empty_like(x)
    _copy[(4,)](KEPT, y, 4096, BLOCK=1024)  # kept
    return y


def tall(x):
    y = torch.empty_like(x)
    _copy[(1, 70000)](x, y, 4096, BLOCK=1024)  # tall
    return y


def many(x):
    y = torch.empty_like(x)
    _copy[(1 << 20, 1 << 10)](x, y, 4096, BLOCK=1024)  # many
    return y


def empty(x):
    y = torch.empty_like(x)
    _copy[(0,)](x, y, 0, BLOCK=1024)
    _copy[(4,)](x, y, 4096, BLOCK=1024)
    return y


def host(x):
    y = torch.empty_like(x)
    _copy[(4,)](torch.ones(4096, dtype=x.dtype), y, 4096, BLOCK=1024)  # host
    return y


def swallowed(x):
    n = 4096
    try:
        n = int(x.sum().item())  # swallowed
    except Exception:
        pass
    return _run(x, n)


def suppressed(x):
    with contextlib.suppress(Exception):
        torch.cuda.Stream()  # suppressed
    return _run(x)


def remembers(x):
    return _run(SEEN.setdefault("x", x))


def remembered(x):
    y = torch.empty_like(x)
    _copy[(4,)](SEEN["x"], y, 4096, BLOCK=1024)  # remembered
    return y


def raising(x):
    raise ValueError("no such head dimension")  # raising


def uncompilable(x):
    y = torch.empty_like(x)
    _bad[(1,)](x, y, 10, BLOCK=1024)  # uncompilable
    return y


@triton.jit
def _bad(src, dst, n, BLOCK: tl.constexpr):
    tl.store(dst + tl.arange(0, BLOCK), tl.load(src + undefined_name))


def random(x):
    return _run(torch.rand(4096, device=x.device))


def rounded(x):
    y = torch.empty_like(x)
    _copy[(4,)](x, y, 4096 if x.data_ptr() % 16 == 0 else 0, BLOCK=1024)
    return y
"""
REASONS = {
    "item": "the value of a tensor is needed on the host",
    "boolean": "the value of a tensor is needed on the host",
    "listed": "the value of a tensor is needed on the host",
    "counted": "the value of a tensor is needed on the host",
    "stream": "torch.cuda.Stream",
    "event": "torch.cuda.Event",
    "graph": "torch.cuda.CUDAGraph",
    "captured": "torch.cuda.graph",
    "compiled": "torch.compile",
    "benchmarked": "triton.testing.do_bench",
    "foreign": "the address of a tensor that this call neither received nor made",
    "within": "an argument of type Part that begins within an element",
    "beyond": "an address behind the end of a tensor",
    "kept": "kept from an earlier call",
    "remembered": "kept from an earlier call",
    "tall": "_copy is launched on 1 x 70000 x 1 blocks: axis y takes 0 to 65535",
    "many": "together 1073741824: 67108864 are the most",
    "overridden": "the launch option ir_override acts behind TTGIR",
    "flushed": "the launch option enable_reflect_ftz acts behind TTGIR",
    "host": "a cpu tensor (4096,) reaches a launch or an op",
}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return trace(tmp_path_factory.mktemp("refused"), SNIPPET)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("failing")
    made = write(folder, SNIPPET)
    return builder(folder, made).build(made.source, {"CASES": ["raising", "item", "rounded"]}, None)


@pytest.mark.parametrize("case", REASONS)
def test_a_refusal_names_its_reason_and_its_line(case: str, traced: Traced) -> None:
    error, line = traced.error(case), traced.line(case)
    assert (error["kind"], error["line"]) == ("refused", line)
    assert error["message"].startswith(f"line {line}: ")
    assert REASONS[case] in error["message"]


@pytest.mark.parametrize("case", ["swallowed", "suppressed"])
def test_a_refusal_that_the_launcher_swallows_stands(case: str, traced: Traced) -> None:
    error = traced.error(case)
    assert error["kind"] == "refused"
    assert error["message"].startswith(f"line {traced.line(case)}: ")


def test_a_refusal_that_the_launcher_swallows_keeps_its_line(traced: Traced) -> None:
    assert traced.error("swallowed")["line"] == traced.line("swallowed")


def test_a_refusal_does_not_outlast_its_case(traced: Traced) -> None:
    assert len(traced.steps("rounded")) == 1


def test_a_launch_of_no_blocks_is_none(traced: Traced) -> None:
    (step,) = traced.steps("empty")
    assert step["grid"] == [4, 1, 1]


def test_inputs_that_need_values_are_told_as_the_targets_fault(tmp_path_factory: pytest.TempPathFactory) -> None:
    inputs = 'def _inputs(tensor):\n    return {"kept": tensor(4096).nonzero()}\n\n\ndef copied(x):\n    return x\n'
    error = trace(tmp_path_factory.mktemp("inputs"), inputs).error("copied")
    assert error["message"].startswith("inputs() of the target, not the kernel: ")
    assert "aten.nonzero" in error["message"]


def test_classes_of_which_none_may_be_made_may_be_named(traced: Traced) -> None:
    assert len(traced.steps("annotated")) == 1


def test_an_address_may_be_asked_for_its_alignment(traced: Traced) -> None:
    (step,) = traced.steps("rounded")
    assert step["args"][2] == 4096


def test_an_address_as_a_number_is_recorded_as_the_place_that_it_is_of(traced: Traced) -> None:
    (step,) = traced.steps("numbered")
    assert step["args"][2] == {"address": step["args"][0]["t"], "byte": 0}


def test_a_table_of_addresses_is_recorded_with_the_places_that_it_names(traced: Traced) -> None:
    made, launch = traced.steps("table")
    (result,) = made["out"]
    written = launch["args"][1]["t"]
    first, second = made["args"][0]["literal"]
    assert second == {"address": written, "byte": 2048}
    assert first == {"address": traced.plan("table")["inputs"]["x"]["t"], "byte": 0}
    assert launch["args"][0]["t"] == result["t"]


def test_what_is_no_tensor_but_says_where_one_lies_is_recorded_as_the_rest_of_it(traced: Traced) -> None:
    (step,) = traced.steps("reinterpreted")
    assert step["signature"][:2] == ["*bf16", "*fp16"]
    first, second, *_ = step["args"]
    assert (first["t"], first["offset"]) == (traced.plan("reinterpreted")["inputs"]["x"]["t"], 0)
    assert (second["dtype"], second["size"], second["offset"]) == ("float16", [4096 - 32], 32)


def test_an_exception_of_the_launcher_names_its_line(traced: Traced) -> None:
    error = traced.error("raising")
    assert (error["kind"], error["type"], error["line"]) == ("raised", "ValueError", traced.line("raising"))
    assert error["message"] == "no such head dimension"


def test_a_kernel_that_does_not_compile_names_the_launch_and_the_cause(traced: Traced) -> None:
    error = traced.error("uncompilable")
    assert (error["kind"], error["line"]) == ("raised", traced.line("uncompilable"))
    assert "undefined_name is not defined" in error["message"]


def test_cases_that_fail_become_failures_beside_those_that_build(built: Built) -> None:
    assert list(built.choices) == ["CASES/rounded"]
    failures = {f.case: f for f in built.failures}
    assert failures["CASES/raising"].kind == "raised"
    assert failures["CASES/raising"].message == "ValueError: no such head dimension"
    assert failures["CASES/item"].kind == "refused"
    assert f"line {failures['CASES/item'].line}: " in failures["CASES/item"].message


def test_random_numbers_made_by_a_launcher_are_rejected_by_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("random")
    made = write(folder, SNIPPET)
    (failure,) = builder(folder, made).build(made.source, {"CASES": ["random"]}, None).failures
    assert failure.kind == "rejected"
    assert "aten.rand.default" in failure.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("import nowhere\n\n\ndef copied(x):\n    return x\n", 11, "nowhere"),
        ("STREAM = torch.cuda.Stream()\n\n\ndef copied(x):\n    return x\n", 11, "torch.cuda.Stream"),
    ],
)
def test_a_file_that_cannot_be_imported_fails_with_its_line(
    text: str, line: int, message: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    made = write(folder, "def copied(x):\n    return x\n")
    candidate = made.source.replace("def copied(x):\n    return x\n", text)
    (failure,) = builder(folder, made).build(candidate, {"CASES": None}, None).failures
    assert (failure.kind, failure.line) == ("raised", line)
    assert message in failure.message


def test_a_compiled_function_that_nothing_calls_is_not_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("decorated")
    made = write(folder, "def copied(x):\n    return x\n")
    decorated = "@torch.compile(dynamic=True)\ndef helper(x):\n    return x\n\n\n"
    built = builder(folder, made).build(
        made.source.replace("def copied", f"{decorated}def copied"), {"CASES": None}, None
    )
    assert not any("torch.compile" in f.message for f in built.failures), built.failures
