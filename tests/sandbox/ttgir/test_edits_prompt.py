"""What a language model is given for edit scripts: excerpts of lines, the reference, the worked example."""

import doctest

import pytest
from pgo_agent.sandbox.ttgir import edits as package
from pgo_agent.sandbox.ttgir import reader, triton_parser
from pgo_agent.sandbox.ttgir.edits import apply, excerpts, script
from pgo_agent.sandbox.ttgir.edits.reference import EXAMPLE, reference
from pgo_agent.sandbox.ttgir.edits.verify import Ask
from pgo_agent.sandbox.ttgir.pseudocode.view import readable

from tests.sandbox import ttgir_samples
from tests.sandbox.editing import BLOCKED, SMALL, kernel


def test_an_excerpt_shows_ops_under_their_labels_with_constants_and_layouts() -> None:
    assert (
        excerpts.excerpt(SMALL.module, SMALL.view, ["L4", "L7", "L12", "L15"])
        == f"""\
// L4
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%zero = arith.constant dense<0.0> : {BLOCKED}
%sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> ({BLOCKED})  : i32 {{
scf.yield %more : {BLOCKED}
// L7
%back = ttg.convert_layout %there : tensor<512xf32, #wide> -> {BLOCKED}
// L12
%once = arith.cmpi sgt, %n, %c1 : i32
scf.if %once {{
// L15 has no op
// #blocked = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}}>
// #wide = #ttg.blocked<{{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}}>
"""
    )


@pytest.mark.parametrize("name", ["odd", "pipelined"])
def test_the_excerpt_of_a_line_put_in_place_of_it_changes_nothing_that_is_seen(name: str) -> None:
    plain = kernel(triton_parser.bare(ttgir_samples.text(name)))
    tried, kinds = 0, set()
    for line in plain.view.lines:
        block = excerpts.excerpt(plain.module, plain.view, [line.label])
        kind = tuple(op.name for op in line.ops)
        if kind and kind not in kinds and not line.text.endswith(":"):
            kinds.add(kind)
            again = plain.edited(f"replace {line.label} with:\n{block}")
            assert again.view.text() == plain.view.text()
            tried += 1
    assert tried > 10


def test_the_worked_example_of_the_package_is_as_it_says() -> None:
    result = doctest.testmod(package)
    assert result.attempted >= 8
    assert result.failed == 0


def test_the_example_of_the_reference_can_be_applied(ask: Ask) -> None:
    examples = doctest.DocTestFinder().find(package, "edits")[0].examples
    text = eval(examples[3].source.partition("reader.parse(")[2].strip().removesuffix(")"))
    module = reader.parse(text)
    assert all(f"  {line}" in reference() for line in EXAMPLE.splitlines())
    applied = apply.apply(module, readable(module), script.parse(EXAMPLE))
    assert "%v = tt.load %p evictionPolicy = evict_first : !tt.ptr<f32>\n    %a = math.absf %v" in applied
    assert ask(applied).error is None
