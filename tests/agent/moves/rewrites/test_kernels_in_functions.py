"""Kernels that a function makes, that stand under `if`, or are made by assignments, are rewritten where they stand."""

from textwrap import indent

import pytest
import torch
from pgo_agent.agent.moves.analysis.cst_util import functions, makers, module_of
from pgo_agent.agent.moves.analysis.decorators import as_decorators

from tests.agent.composing import HEADER, outputs, reason, same_bits
from tests.agent.descriptor_kernels import HOST, body, file_of, rewritten

CASTS = ("tl.dot(a, b, acc)", "tl.dot(a.to(tl.float16), b.to(tl.float16), acc)")
SOURCE = file_of(body(CASTS))
PART = SOURCE.removeprefix(HEADER)  # the kernel and its launch
MADE = f"""
def made():
    import triton
    import triton.language as tl
{indent(PART, "    ")}
    return launch_k


launch_k = made()
"""
FORMS = {
    "made by a function": "import torch\nimport triton\n" + MADE,
    "made by a function of a function": "import torch\nimport triton\n\ndef outer():\n" + indent(MADE, "    ")
    + "\n    return launch_k\n\n\nlaunch_k = outer()\n",
    "under if": f"{HEADER}\nif hasattr(tl, 'dot'):\n{indent(PART, '    ')}\nelse:\n    launch_k = None\n",
    "under try": f"{HEADER}\ntry:\n{indent(PART, '    ')}\nexcept ImportError:\n    launch_k = None\n",
    "by assignment": HEADER + PART.replace("@triton.jit\n", "").replace(
        "\n\ndef launch", "\n_k = triton.jit(_k)\n\ndef launch"
    ),
    "by several assignments": HEADER + PART.replace("@triton.jit\n", "").replace(
        "\n\ndef launch",
        '\n_k = triton.jit(_k)\n_k = triton.heuristics({"BK": lambda args: 16})(_k)\n\ndef launch',
    ).replace(" BK=16,", ""),
}  # fmt: skip


def numbers(rows: int, columns: int) -> torch.Tensor:
    drawn = torch.randint(-4, 5, (rows, columns), generator=torch.Generator().manual_seed(rows + columns))
    return drawn.to(torch.float16)


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_product_keeps_its_bits(form: str) -> None:
    source = as_decorators(FORMS[form], ["_k"])
    changed = rewritten(source)
    assert changed.count("tl.make_tensor_descriptor") >= 2
    calls = [dict(which="k", a=numbers(m, k), b=numbers(k, n)) for m, k, n in ((70, 48, 40), (1, 7, 3))]
    before, after = (outputs(text + HOST, *calls) for text in (FORMS[form], changed))
    assert same_bits(before, after)


def test_what_stands_around_a_kernel_is_known() -> None:
    module = module_of(FORMS["made by a function of a function"])
    assert [f.name.value for f in makers(module, "_k")] == ["outer", "made"]
    assert "_k" in functions(module) and "made" not in functions(module)


OTHERS = {  # what stands in a function that makes a kernel
    "a helper of another function": ("", "@triton.jit\n    def act(x): return x * 3"),
    "a parameter around the kernel": ("act", "@triton.jit\n    def j(x): return act(x)"),
    "a variable around the kernel": ("", "act = 3\n    @triton.jit\n    def j(x): return act"),
    "an import around the kernel": ("", "from a import act\n    @triton.jit\n    def j(x): return act(x)"),
}


@pytest.mark.parametrize("form", OTHERS)
def test_a_name_that_means_two_things_is_nobodys_helper(form: str) -> None:
    given, body_of = OTHERS[form]
    text = "@triton.jit\ndef act(x): return x * 2\n@triton.jit\ndef k(x): return act(x)\n"
    text += f"def other({given}):\n    {body_of}\n"
    assert functions(module_of(text)).keys() & {"act", "k"} == {"k"}


def test_kernels_of_one_name_in_two_functions_are_no_kernel_of_either() -> None:
    other = MADE.replace("made", "made_too").replace("launch_k = ", "launch_j = ")
    assert "is not defined" in reason(rewritten, "import torch\nimport triton\n" + MADE + other)


KEPT = {
    "other arguments": "def k(x): pass\nk = triton.jit(k, debug=True)\n",
    "another function": "def k(x): pass\ndef j(x): pass\nk = triton.jit(k)\n",
    "a statement in between": "def k(x): pass\nSIZE = 2\nk = triton.jit(k)\n",
    "a maker that mentions it": "def k(x): pass\nk = made_of(k)(k)\n",
    "another name": "def k(x): pass\nj = triton.jit(k)\n",
    "no kernel": "def reference(x): pass\nreference = torch.no_grad()(reference)\n",
}


@pytest.mark.parametrize("form", KEPT)
def test_an_assignment_that_says_more_than_a_decorator_stays(form: str) -> None:
    assert as_decorators(KEPT[form], ["k"]) == KEPT[form]
