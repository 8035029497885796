"""Flags for ptxas that a candidate asks for: the allowed ones reach ptxas, and nothing else ever does."""

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.compiler import ptxas
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.questions import Check
from pgo_agent.sandbox.target import Target

from tests.judges import judge_of
from tests.marks import first_of
from tests.sandbox.tracing import builder, write

H200 = devices.find("h200")
ADD = Path(__file__).parents[2] / "kernels" / "add.py"
SNIPPET = """
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["K"])
@triton.heuristics({"EVEN": lambda args: args["K"] % args["BLOCK"] == 0})
@triton.jit
def _product(a, b, c, K, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row, col, deep = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :], tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + row * K + k + deep[None, :])
        right = tl.load(b + (k + deep[:, None]) * BLOCK + col)
        acc = tl.dot(left, right, acc)
    tl.store(c + row * BLOCK + col, acc)


def product(x, q):
    c = torch.empty(64, 64, device=x.device)
    _product[(1,)](x, q, c, 512)
    return c
"""
LAUNCH = "_product[(1,)](x, q, c, 512)"
ASSEMBLERS = ("ptxas", "ptxas-blackwell")
PROGRAM = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry empty() { ret; }\n"


class Product:
    """A target whose one launch can be given `ptx_options`."""

    def __init__(self, folder: Path) -> None:
        self.target: Target = write(folder, SNIPPET)
        self.builder: Builder = builder(folder, self.target)
        self.plain = cache(self.build)  # without flags

    def build(self, flags: object = None, before: str = "") -> Built:
        asked = LAUNCH if flags is None else f"{LAUNCH[:-1]}, ptx_options={flags!r})"
        source = self.target.source.replace(LAUNCH, asked)
        assert flags is None or source != self.target.source
        return self.builder.build(before + source, {"CASES": ["product"]}, None)

    def code(self, flags: object = None) -> str:
        built = self.plain() if flags is None else self.build(flags)
        assert built.ok, built.failures
        (code,) = built.codes.values()
        return code

    def refusal(self, flags: object, before: str = "") -> str:
        built = self.build(flags, before)
        (failure,) = built.failures
        assert (built.ok, failure.kind) == (False, "rejected")
        return failure.message


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Product:
    return Product(tmp_path_factory.mktemp("product"))


# what is allowed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", first_of(["--opt-level=1", "--register-usage-level=0", "--def-store-cache=cs"]))
def test_a_flag_reaches_ptxas_and_changes_the_code(flag: str, product: Product) -> None:
    assert product.code(flag) != product.code()


def test_the_same_flags_give_the_same_code_in_another_place(product: Product, tmp_path: Path) -> None:
    flags = "--opt-level=1 --def-store-cache=cs"
    assert Product(tmp_path).code(flags) == product.code(flags)


def test_a_flag_that_says_the_default_is_another_build_of_the_same_code(product: Product) -> None:
    same, plain = product.build("--opt-level=3"), product.plain()
    assert set(same.codes.values()) == set(plain.codes.values())
    assert set(same.codes).isdisjoint(plain.codes)


def test_two_launches_of_one_kernel_may_have_different_flags(tmp_path: Path) -> None:
    both = SNIPPET.replace(f"    {LAUNCH}\n", f"    {LAUNCH}\n    {LAUNCH[:-1]}, ptx_options='--opt-level=1')\n")
    of = write(tmp_path, both)
    built = builder(tmp_path, of).build(of.source, {"CASES": ["product"]}, None)
    assert built.ok, built.failures
    (choice,) = built.choices["CASES/product"]
    assert len({built.codes[k] for k in choice.kernels}) == 2


def test_a_configuration_may_carry_flags_as_text(tmp_path: Path) -> None:
    other = 'triton.Config({"BLOCK": 64, "ptx_options": "--opt-level=1"}, num_warps=4)'
    of = write(tmp_path, SNIPPET.replace("num_warps=4)]", f"num_warps=4), {other}]"))
    built = builder(tmp_path, of).build(of.source, {"CASES": ["product"]}, None)
    assert built.ok and not built.failures, built.failures
    assert [c.label.count("ptx_options=--opt-level=1") for c in built.choices["CASES/product"]] == [0, 1]
    assert len(set(built.codes.values())) == 2


@pytest.mark.parametrize("tool", ASSEMBLERS)
def test_every_allowed_flag_is_one_that_ptxas_knows_without_a_warning(tool: str, tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    path, source = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool, tmp_path / "empty.ptx"
    source.write_text(PROGRAM)
    for flag in sorted(ptxas.ALLOWED):
        command = [path, flag, "-arch=sm_90", source, "-o", tmp_path / "empty.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), flag


def test_the_interpreter_checks_a_candidate_with_flags() -> None:
    judge = judge_of(ADD)
    source = judge.target.source.replace("(x, y, z, x.numel())", "(x, y, z, x.numel(), ptx_options='--opt-level=1')")
    assert source != judge.target.source
    found = judge.verdict(Check(source=source))
    assert found.verdict == Verdict.CHECKED, found.reason


# what is not ----------------------------------------------------------------------------------------------------------

HOSTILE = [
    "--output-file=/tmp/stolen", "-o /tmp/stolen", "--opt-level=1 -o", "--options-file=/etc/passwd", "@/etc/passwd",
    "--opt-level=1 --options-file /etc/passwd", "/etc/passwd", "--input-as-string=x", "--entry=other", "--fmad=false",
    "-fmad=true", "--optimize-float-atomics", "--device-debug", "-g", "--maxrregcount=32", "--opt-level=0", "-O1",
    "--opt-level", "--opt-level 1", "--opt-level=1\n-o\nx", "--opt-level=1\t-o", "--opt-level=1\0", "--opt-level=1 ",
    " --opt-level=1", "--opt-level=1  --def-load-cache=cg", "'--opt-level=1'", '"--opt-level=1"', "--opt-level=1;id",
    "$(id)", "`id`", "--opt-level=1,2", "--opt-level=\uff11", "\u2212\u2212opt-level=1", "\u2013\u2013opt-level=1",
    "--opt\u200b-level=1", "--OPT-LEVEL=1", "--register-usage-level=11", "--register-usage-level=05", " ", "\n",
    "--register-usage-level=-1", "--def-load-cache=lu", "--force-load-cache=cg", "--gpu-name=sm_80", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_any_other_word_is_refused(text: str) -> None:
    with pytest.raises(BadBundle, match="ptx_options"):
        ptxas.flags(text)


@pytest.mark.parametrize("value", [["--opt-level=1"], ("--opt-level=1",), {"--opt-level=1": 1}, 1, True, b"-O1", [], 0])
def test_what_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(BadBundle, match="not text"):
        ptxas.flags(value)


def test_a_flag_given_twice_is_refused() -> None:
    with pytest.raises(BadBundle, match="--opt-level is given twice"):
        ptxas.flags("--opt-level=1 --opt-level=2")


def test_no_flags_are_no_words() -> None:
    assert ptxas.flags(None) == ptxas.flags("") == ()


def test_a_refused_flag_is_named_in_a_reason_that_fits_a_line() -> None:
    with pytest.raises(BadBundle) as caught:
        ptxas.flags("--opt-level=1 " + "\x1b[31m" * 10_000)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text", first_of(["--output-file=/box/out/x", "--fmad=false", "--opt-level=1\n--fmad=false", "@in/x"])
)
def test_a_candidate_with_another_flag_is_rejected_and_told_what_is_allowed(text: str, product: Product) -> None:
    reason = product.refusal(text)
    assert ascii(text.split("\n")[0])[1:-1] in reason
    assert "--opt-level=1|2|3" in reason
    assert "--register-usage-level=0|1|" in reason


def test_a_list_of_flags_is_rejected(product: Product) -> None:
    assert "ptx_options: a list, not text" in product.refusal(["--opt-level=1"])


def test_a_flag_that_is_smuggled_in_by_the_environment_reaches_no_compiler(product: Product) -> None:
    """Nor that of the second process, which traces where a launcher asks for registers: it has its own environment."""
    asks = "    if kernel_of.n_regs > 0:\n        pass\n"
    source = product.target.source.replace(f"    {LAUNCH}\n", f"    kernel_of = {LAUNCH}\n{asks}")
    before = "import os\nos.environ['PTXAS_OPTIONS'] = '--fmad=false'\n"
    built = product.builder.build(before + source, {"CASES": ["product"]}, None)
    assert built.ok and built.codes == product.plain().codes


@pytest.mark.parametrize("text", first_of(["--output-file=out/stolen", "-o tmp/stolen", "--options-file=request.json"]))
def test_the_compiler_itself_gives_ptxas_nothing_else(
    text: str, product: Product, tmp_path: Path, made_by: Callable[[Product], bytes]
) -> None:
    """Whoever writes its request: the word must not reach a command line."""
    contents = ContentStore(tmp_path)
    trace_and_compile.compile_missing(
        box.choose(), contents, H200, {"k": made_by(product)}, {"k": {"ptx_options": text}}, 1
    )
    build = contents.build("k") or {}
    assert "is not a flag that a candidate may give to ptxas" in build["error"]
    assert "Repro command" not in build["error"]


@pytest.fixture(scope="module")
def made_by() -> Callable[[Product], bytes]:
    """The TTGIR of a product."""

    def ttgir(product: Product) -> bytes:
        (kernel,) = product.builder.contents.manifest(product.plain().bundle)["kernels"].values()
        return product.builder.contents.get(kernel["files"]["ttgir"], "ttgir")

    return ttgir
