"""What the descriptor move changes around a kernel: it must be Python that says what it means, or not be written."""

import ast

import pytest
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import tma_descriptors

from tests.agent.descriptor_kernels import H200, PARAMETERS, body, file_of, rewritten, together

SOURCE = file_of(body())
LAUNCH = SOURCE.splitlines()[-1] + "\n"
CALL = LAUNCH.strip()
IMPORTS = "import triton\nimport triton.language as tl\n"
SET = "triton.set_allocator(_descriptor_memory)"


def changed(*changes: tuple[str, str]) -> str:
    source = SOURCE
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    ast.parse(source)
    return source


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def launch_k(", "def _descriptor_fits():\n    pass\n\n\ndef launch_k("),
        ("def launch_k(", "_descriptor_memory = 3\n\n\ndef launch_k("),
        ("import torch\n", "import torch\nfrom somewhere import _descriptor_fits\n"),
        ("import torch\n", ""),
        ("import torch\n", "import torch as th\n"),
        ("import torch\n", "import torch\nmin = torch.min\n"),
        ("import triton\n", "from triton import jit as triton\n"),
        ("import triton\n", "import triton as tt\n"),
        ("import triton.language as tl\n", "import triton.language as tl\ntl = torch\n"),
        ("@triton.jit", "@jit_of_my_own"),
        (LAUNCH, "    pass\n"),
        (CALL, CALL.replace("_k[grid](", "_k.run(").replace("BM=", "grid=grid, BM=")),
        (CALL, f"{CALL}\n    _k.run()"),
        (CALL, CALL.replace("_k[grid](", "launch = _k[grid]\n    launch(")),
        (CALL, f"if M > 0: {CALL}"),
        (CALL, f"triton = None\n    {CALL}"),
        (CALL, f"import triton\n    {CALL}"),
        ("def launch_k(", "@triton.jit\ndef other(A):\n    _k(A)\n\n\ndef launch_k("),
        ("def launch_k(", "_k = wrapped(_k)\n\n\ndef launch_k("),
        ("def launch_k(", "@triton.jit\ndef _k(A):\n    pass\n\n\ndef launch_k("),
    ],
)  # fmt: skip
def test_a_file_in_which_the_text_would_mean_something_else_stays_as_it_is(old: str, new: str) -> None:
    with pytest.raises(DoesNotApply):
        rewritten(changed((old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAUNCH, f"    with torch.no_grad():\n    {LAUNCH}"),
        (CALL, f"return {CALL}"),
        (CALL, f"x = {CALL} if M > 0 else None"),
        (CALL, f"[{CALL} for _ in range(2)]"),
        (CALL, f"{CALL}\n    if flag:\n        {CALL}"),
        (SOURCE[SOURCE.index("def launch_k") :], f"class Function:\n    def forward(self):\n        {CALL}\n"),
        (IMPORTS, "try:\n    import triton\n    from triton import language as tl\nexcept ImportError:\n    pass\n"),
        ("@triton.jit", "@triton.jit(do_not_specialize=['M'])"),
    ],
)  # fmt: skip
def test_memory_for_the_descriptors_is_given_before_every_launch(old: str, new: str) -> None:
    lines = rewritten(changed((old, new))).splitlines()
    launched = [i for i, line in enumerate(lines) if "_k[grid](" in line]
    assert launched
    for i in launched:
        indent = len(lines[i]) - len(lines[i].lstrip())
        assert lines[i - 1] == " " * indent + SET


@pytest.mark.parametrize(
    "parameters",
    [
        PARAMETERS,
        f"{PARAMETERS},",
        PARAMETERS.replace("C, M", "C, /, M"),
        PARAMETERS.replace("X, Y", "X, *, Y"),
        PARAMETERS.replace("FLAG: tl.constexpr", "FLAG: tl.constexpr = True"),
        PARAMETERS.replace("FLAG: tl.constexpr", "FLAG: tl.constexpr = True, /"),
        PARAMETERS.replace("BK: tl.constexpr", "BK: tl.constexpr = 16").replace("FLAG: tl.constexpr", "FLAG=True"),
        "\n    " + PARAMETERS.replace(", ", ",  # it\n    ") + ",  # the last\n",
    ],
)
def test_the_kernel_takes_the_switch_after_its_own_parameters(parameters: str) -> None:
    found = ast.parse(rewritten(changed((PARAMETERS, parameters))))
    (kernel,) = (n for n in found.body if isinstance(n, ast.FunctionDef) and n.name == "_k")
    before = ast.parse(f"def _k({parameters}): pass").body[0]
    assert isinstance(before, ast.FunctionDef)
    names = [[a.arg for a in (*f.args.posonlyargs, *f.args.args)] for f in (before, kernel)]
    assert names[1] == [*names[0], "DESCRIPTORS", "A_TRANSPOSED", "B_TRANSPOSED"]


def test_comments_of_parameters_stay_with_them() -> None:
    written = rewritten(changed((PARAMETERS, "\n    " + PARAMETERS.replace(", ", ",\n    ") + ",  # the last\n")))
    assert "FLAG: tl.constexpr,  # the last\n    DESCRIPTORS: tl.constexpr,\n" in written
    assert written.count("# the last") == 1


def test_the_heuristic_sees_what_all_other_decorators_add() -> None:
    tuned = "@triton.heuristics({'FLAG': lambda a: True})\n@triton.autotune(configs=CONFIGS, key=[])\n@triton.jit"
    kernel = next(
        n for n in ast.parse(rewritten(changed(("@triton.jit", tuned)))).body if getattr(n, "name", "") == "_k"
    )
    assert isinstance(kernel, ast.FunctionDef)
    assert [ast.unparse(d).split("(")[0] for d in kernel.decorator_list] == [
        "triton.heuristics", "triton.autotune", "triton.heuristics", "triton.jit",
    ]  # fmt: skip
    assert "DESCRIPTORS" in ast.unparse(kernel.decorator_list[2])


def test_two_kernels_of_a_file_get_descriptors_one_after_the_other() -> None:
    source = together([file_of(body(), "one"), file_of(body(("sam", "sbm")), "two").replace("sam", "sbm")])
    for name in ("_one", "_two"):
        source = tma_descriptors.rewrite(RewriteInput(source, name, H200))
        with pytest.raises(DoesNotApply, match="it uses descriptors already"):
            tma_descriptors.rewrite(RewriteInput(source, name, H200))
    assert source.count("def _descriptor_fits") == source.count("def _descriptor_memory") == 1
    assert source.count(SET) == 2


def test_a_kernel_that_is_not_in_the_file_is_named() -> None:
    with pytest.raises(DoesNotApply, match="_other is not defined in this file"):
        rewritten(SOURCE, "_other")
