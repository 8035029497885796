"""The readable form of TTGIR: nothing that a kernel does is missing, and its names depend on the program alone."""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.ttgir import reader, triton_parser
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable, readable
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module

from tests.conftest import ROOT
from tests.marks import first_of
from tests.sandbox import ttgir_samples
from tests.sandbox.ttgir.test_reader import EDITS, _damaged, cpu_seconds_below
from tests.shared_builds import lend

SAMPLES = ("odd", "pipelined", "specialized")
BARRIERS = ("gemm", "gemm_specialized", "persistent_flattened", "persistent_specialized", "cp_async")
GLUON = ("two_consumers", "attention")
TARGETS = {  # and how many configurations of each case
    "kernels/fa_fwd.py": 1,
    "kernels/fa_bwd.py": 1,
    "kernels/gemm.py": 2,
    "evals/corpus/targets/attention_specialized.py": 1,
}
CORPUS = [f"evals/corpus/targets/{name}.py" for name in ("column_sum", "rms_norm", "softmax")]
# What a kernel does, apart from computing: written down here anew, from the dialects' descriptions.
EFFECT = re.compile(
    r"tt\.(?:load|store|atomic_\w+|assert|print|call|dot)|gpu\.barrier"
    r"|ttg\.(?:async_\w+|local_(?:alloc|load|store|dealloc)|barrier|global_scratch_alloc)"
    r"|ttng\.(?:warp_group_dot(?:_wait)?|async_\w+|(?:init|inval|wait|arrive)_barrier|barrier_expect"
    r"|fence_async_shared|tensormap_\w+)|ttg\.warp_specialize|scf\.(?:for|if|while)"
)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Module]]:
    """The TTGIR of everything that a target launches in its public and small cases."""
    contents = ContentStore(lend(tmp_path_factory.mktemp("shelf")))

    @cache
    def of(path: str) -> list[Module]:
        subject = target.read(ROOT / path)
        wanted = {"CASES": None, "SMALL": None}
        device = devices.find("h200")
        traced = trace_and_compile.trace(
            box.choose(), contents, subject, device, subject.source, wanted, TARGETS.get(path, 2)
        )
        assert "error" not in traced, traced
        return [reader.parse(text.decode()) for text in traced["texts"].values()]

    return of


def _complete(module: Module) -> Readable:
    """Checks that each op with an effect has one line of its own, and every other op that is used stands in one."""
    found, ops = readable(module), list(module.walk())
    own = Counter(line.places[0] for line in found.lines if line.places)
    assert [op.line for i, op in enumerate(ops) if EFFECT.fullmatch(op.name) and own[i] != 1] == []
    told = Counter(place for line in found.lines for place in line.places)
    assert [op.line for i, op in enumerate(ops) if told[i] > 1] == []
    used = {value for op in ops for value in op.operands}
    missing = [op for i, op in enumerate(ops) if not told[i] and (set(op.results) & used or not op.results)]
    assert [op.line for op in missing if op.name != "arith.constant"] == []
    assert all(ops[place] is op for line in found.lines for place, op in zip(line.places, line.ops, strict=True))
    return found


@pytest.mark.parametrize("path", first_of([*TARGETS, *CORPUS]))
def test_all_that_a_shipped_kernel_does_has_a_line_of_its_own(
    path: str, shipped: Callable[[str], list[Module]]
) -> None:
    modules = shipped(path)
    assert modules
    for module in modules:
        found = _complete(module)
        assert len(found.lines) < len(str(module).splitlines())
        assert max(map(len, found.text().splitlines())) <= 120


@pytest.mark.parametrize("name", [*BARRIERS, *GLUON])
def test_all_that_a_kernel_with_barriers_does_has_a_line_of_its_own(name: str, ttgir: Callable[[str], str]) -> None:
    _complete(reader.parse(ttgir(name)))


@pytest.mark.parametrize("name", SAMPLES)
def test_all_that_a_sample_does_has_a_line_of_its_own(name: str) -> None:
    _complete(_sample(name))


def test_the_hot_loop_of_flash_attention_fits_a_screen(shipped: Callable[[str], list[Module]]) -> None:
    views = [readable(m) for m in shipped("kernels/fa_fwd.py")]
    for view in views:
        loops = Counter(_loop_of(view, i) for i, line in enumerate(view.lines) if line.loops)
        assert loops and max(loops.values()) <= 40


def _loop_of(view: Readable, i: int) -> int:
    """The line of the header of the loop around a line."""
    return max(j for j in range(i) if view.lines[j].loops < view.lines[i].loops)


# names ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(name=st.sampled_from(SAMPLES), seed=st.integers(0, 2**32))
def test_other_names_of_values_and_locations_give_the_same_lines(name: str, seed: int) -> None:
    text = ttgir_samples.text(name)
    renamed = _renamed(_renamed(text, r"%([A-Za-z0-9_$.-]+)", "%", seed), r"#loc(\d+)\b", "#loc", seed)
    assert renamed != text
    assert readable(reader.parse(renamed)).text() == _text(name)


def _renamed(text: str, pattern: str, mark: str, seed: int) -> str:
    """The text with its names exchanged for numbers without order."""
    names = sorted({m[1] for m in re.finditer(pattern, text)})
    numbers = random.Random(seed).sample(range(10_000), len(names))
    new = dict(zip(names, numbers, strict=True))
    return re.sub(pattern, lambda m: f"{mark}{new[m[1]]}", text)


@pytest.mark.parametrize("name", SAMPLES)
def test_reading_again_gives_the_same_lines(name: str) -> None:
    assert readable(reader.parse(str(_sample(name)))).text() == _text(name)


def test_names_are_those_of_the_source_where_the_text_has_them() -> None:
    text = _text("pipelined")
    assert "kernel gemm(a, b, c: *f16, M, N, K: i32)" in text
    assert re.search(r"tma copy da\[.*\] -> a_smem\[fill\], signals full\[fill\] if more", text)
    assert re.search(r"acc \+= dot\(a_smem\[read\], b_smem\[read\]\^T\)", text)


def test_a_text_without_locations_takes_names_and_lines_from_one_with_them() -> None:
    located = _sample("pipelined")
    plain = reader.parse(triton_parser.bare(ttgir_samples.text("pipelined")))
    assert not any(line.source for line in readable(plain).lines)
    assert "arg0_smem" in readable(plain).text()
    found = readable(plain, located)
    assert found.text() == readable(located).text()
    assert [line.source for line in found.lines] == [line.source for line in readable(located).lines]


def test_locations_of_another_program_are_refused() -> None:
    with pytest.raises(ValueError, match="another program"):
        readable(_sample("pipelined"), _sample("odd"))


def test_a_line_knows_the_lines_of_the_source_that_it_is_from() -> None:
    source = Path(ttgir_samples.__file__).read_text().splitlines()
    dot = next(line for line in readable(_sample("pipelined")).lines if "dot(" in line.text)
    assert dot.ops[0].name == "ttng.warp_group_dot"
    assert any("tl.dot(da.load" in source[n - 1] for n in dot.source)


# what lines say -------------------------------------------------------------------------------------------------------


def test_waits_and_copies_say_the_numbers_of_the_text() -> None:
    view = readable(_sample("pipelined"))
    pendings = [op.integer("pendings") for op in _sample("pipelined").walk() if op.name.endswith("dot_wait")]
    said = [int(m[1]) for line in view.lines if (m := re.fullmatch(r"wait dots, (\d+) may fly", line.text))]
    assert said == pendings
    assert sum("expect 32768 bytes on full[" in line.text for line in view.lines) == 3
    assert all(line.comment == "16384 bytes" for line in view.lines if line.text.startswith("tma copy"))


def test_roles_have_their_warps_and_labels_of_their_own() -> None:
    view = readable(_sample("specialized"))
    assert {line.role for line in view.lines} == {"", "default", "partition0", "partition1"}
    assert {line.label[0] for line in view.lines if line.role == "partition0"} == {"A"}
    header = next(line for line in view.lines if line.text == "partition1:")
    assert header.label == "B1" and header.comment.startswith("4 warps, asks for 232 registers")
    assert len({line.label for line in view.lines}) == len(view.lines)
    assert any(line.text == "acc += dot(a_smem[read], b_smem[read]^T)" for line in view.lines if line.role)


def test_conditions_loops_and_strings_read_like_the_source() -> None:
    text = _text("odd")
    for line in ("while k < n carrying k = 0:", "k = k * 2 + 1", "if m > 3.0:", 'print " so { much: ", m'):
        assert re.search(rf"^\w+ +{re.escape(line)}", text, re.M), line
    assert re.search(r"v = load x \+ i if mask else 0\.0 +# 1024 f32", text)
    assert re.search(r"atomic fadd y_ptrs, s\d? if mask +# acq_rel, gpu", text)


def test_every_line_of_the_text_leads_to_a_label() -> None:
    view, text = readable(_sample("pipelined")), ttgir_samples.text("pipelined")
    number = next(i for i, line in enumerate(text.splitlines(), 1) if "ttng.warp_group_dot " in line)
    assert "dot(" in view.line(view.labels()[number]).text


def test_an_op_that_is_not_known_shows_itself_with_its_operands_and_what_is_inside_of_it() -> None:
    text = """module {
  tt.func public @f(%a: i32, %b: i32) {
    %x = "new.op"(%a, %b) ({
    ^bb0(%c: i32):
      "new.effect"(%c) : (i32) -> ()
      "new.end"() : () -> ()
    }) {width = 3 : i32} : (i32, i32) -> i32
    "new.use"(%x) : (i32) -> ()
    tt.return
  }
}
"""
    view = _complete(reader.parse(text))
    lines = [line.text for line in view.lines]
    assert lines[1:] == ["n2 = new.op(arg0, arg1) {width = 3}", "new.effect(n)", "new.end()", "new.use(n2)"]
    assert [line.depth for line in view.lines] == [0, 1, 2, 2, 1]


def test_an_else_with_a_single_op_and_no_yield_is_an_else() -> None:
    text = """module {
  tt.func public @f(%p: !tt.ptr<f32>, %c: i1, %x: f32) {
    scf.if %c {
      tt.store %p, %x : !tt.ptr<f32>
    } else {
      tt.print "no" {hex = false, isSigned = array<i32: 0>} : %x : f32
    }
    tt.return
  }
}
"""
    lines = [line.text for line in _complete(reader.parse(text)).lines]
    assert lines[1] == "if c:" or lines[1].startswith("if arg1")
    assert lines[3] == "else:" and lines[4].startswith("print")


def test_notes_stand_beside_their_lines_in_a_column_of_their_own() -> None:
    view = readable(_sample("specialized"))
    notes = {line.label: f"P50 {i} cycles" for i, line in enumerate(view.lines) if line.loops}
    rows = view.text(notes).splitlines()
    assert max(map(len, rows)) <= 120
    for label, note in notes.items():
        (row,) = (r for r in rows if r.startswith(f"{label} "))
        assert row.endswith(note)
    assert len({row.rindex("P50") for row in rows if "P50" in row}) == 1
    assert all(rows[i].startswith(line.label) for i, line in enumerate(view.lines) if len(rows) == len(view.lines))
    with pytest.raises(KeyError):
        view.text({"Z9": "nobody's"})


# any text -------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(sample=st.sampled_from(SAMPLES), edits=st.lists(EDITS, min_size=1, max_size=4))
@example("odd", [("delete", 0.9999999999999999, 50, "é"), *[("double", 0.9756805793950744, 25, "loc(")] * 2])
@example("odd", [("swap", 0.3869736021036788, 39, "#"), ("delete", 0.725377807075638, 55, "<")])
@example(
    "pipelined",
    [
        ("double", 3.3381325410750336e-06, 32, ">"),
        ("insert", 0.026960722819787012, 21, "}\n"),
        ("delete", 0.531882421169779, 24, "}\n"),
        ("double", 1.401298464324817e-45, 19, "["),
    ],
)
def test_a_damaged_text_is_shown_or_refused_by_the_reader(
    sample: str, edits: list[tuple[str, float, int, str]]
) -> None:
    text = ttgir_samples.text(sample)
    for edit in edits:
        text = _damaged(text, *edit)
    with cpu_seconds_below(2.0):
        try:
            module = reader.parse(text)
        except Unreadable:
            return
        assert max(map(len, readable(module).text(dict(L1="a note")).splitlines())) <= 120


def _kernel(body: str, aliases: str = "") -> str:
    return f"{aliases}module {{\n  tt.func public @f(%p: !tt.ptr<f32>, %n: i32) {{\n{body}    tt.return\n  }}\n}}\n"


def _lines(count: int, line: str) -> str:
    """A line again and again; `@` is its number, `~` that of the line before."""
    return "".join(line.replace("@", str(i)).replace("~", str(i - 1)) + "\n" for i in range(count))


CONVERTED = "%a = ttg.convert_layout %n : tensor<4xf32, #a> -> tensor<4xf32, #b>"
BOMBS = {
    "views of themselves": _kernel(
        _lines(40, "%a@ = ttg.memdesc_index %a~[%a~] : i64 -> !ttg.memdesc<1x1xi64, #s>")
        + _lines(300, "ttng.inval_barrier %a39 : !ttg.memdesc<1x1xi64, #s>")
    ),
    "addresses of themselves": _kernel(
        _lines(50, "%a@ = ttg.memdesc_index %a~[%a~] : i32 -> i32")
        + "%q = tt.addptr %p, %a49 : !tt.ptr<f32>, i32\ntt.store %q, %n : !tt.ptr<f32>\n"
    ),
    "operands without end": _kernel(_lines(6, f"%a@ = tt.addptr {', '.join(['%a~'] * 1000)} : i32")),
    "casts without end": _kernel(_lines(6, f"%a@ = arith.truncf {', '.join(['%a~'] * 1000)} : tensor<4x4xf32>")),
    "a chain of splats": _kernel(_lines(1000, "%a@ = tt.splat %a~ : i32 -> i32\ntt.store %p, %a@ : !tt.ptr<f32>")),
    "one constant in many places": _kernel(
        _lines(1000, "%c@ = arith.constant 1 : i32\ntt.store %p, %c@ : !tt.ptr<f32>")
    ),
    "layouts of themselves": _kernel(
        _lines(50, CONVERTED), "#a = #ttg.x<{parent = #b, q = #a}>\n#b = #ttg.y<{parent = #a, q = #b, r = #b}>\n"
    ),
    "parents of parents": _kernel(
        _lines(1, CONVERTED), f"#a = #ttg.x<{{{'parent = #ttg.slice<{' * 2000}{'}>' * 2001}\n#b = #ttg.y<{{}}>\n"
    ),
    "a long word": _kernel(_lines(1, CONVERTED), f"#a = #ttg.x<{{{'a' * 100_000}}}>\n#b = #ttg.x<{{}}>\n"),
    "tiles of one name": _kernel(
        "scf.for %i = %n to %n step %n : i32 {\n"
        + _lines(1000, "%a@ = math.log %n : tensor<4x4xf32>")
        + _lines(1000, "tt.store %p, %a@ : !tt.ptr<f32>")
        + "scf.yield\n}\n"
    ),
    "deep regions": _kernel("scf.if %n {\n" * 95 + "tt.store %p, %n : f32\n" + "}\n" * 95),
    "sizes of many digits": _kernel(
        f"%x = ttg.local_alloc : () -> !ttg.memdesc<{'9' * 4300}x{'9' * 4300}x{'9' * 4300}xf32, #s>\n"
    ),
    "offsets that are none": _kernel(
        f"%x = ttg.memdesc_subslice %p[0,, {'9' * 5000}] : !ttg.memdesc<4x4xf32, #s> -> !ttg.memdesc<4x4xf32, #s>\n"
        "tt.store %p, %x : f32\n"
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_text_takes_little_time_and_gives_little_text(name: str) -> None:
    module = reader.parse(BOMBS[name])
    with cpu_seconds_below(2.0):
        assert len(readable(module).text()) < 1_000_000


def test_what_a_loop_renews_again_and_again_keeps_a_short_name() -> None:
    carried = ", ".join(f"%c{i} = %n" for i in range(50))
    given = ", ".join(f"%c{(i + 1) % 50}" for i in range(50))
    types = ", ".join(["i32"] * 50)
    head = f"%r:50 = scf.for %i = %n to %n step %n iter_args({carried}) -> ({types}) : i32 {{\n"
    text = readable(reader.parse(_kernel(f"{head}scf.yield {given} : {types}\n}}\ntt.store %p, %r#7 : f32\n"))).text()
    assert "n_new" in text and "_new_new" not in text
    assert max(map(len, re.findall(r"\w+", text))) < 10


@pytest.mark.parametrize(
    ("sample", "before", "after"),
    [
        ("odd", "@odd(%x", "@odd((%x"),
        ("odd", "@odd(%x: !tt.ptr<f32>", "@odd(%y: !tt.ptr<f32>"),
        ("specialized", "array<i32: 232, 232>", "array<i32: 232>"),
        ("specialized", " scf.yield ", " scf.yield %nothing, "),
    ],
)
def test_a_text_that_is_broken_in_words_is_shown_all_the_same(sample: str, before: str, after: str) -> None:
    text = ttgir_samples.text(sample)
    assert before in text
    assert "kernel" in readable(reader.parse(text.replace(before, after))).text()


def test_three_hundred_kilobytes_are_shown_in_a_second() -> None:
    body = "".join(_block(i) for i in range(750))
    text = f"module {{\n  tt.func public @f(%p: !tt.ptr<f32>, %n: i32) {{\n{body}    tt.return\n  }}\n}}\n"
    assert len(text) > 300_000
    module, took = reader.parse(text), []
    for _ in range(3):  # a machine that others use as well only ever adds to it
        begin = time.process_time()
        assert len(readable(module).text().splitlines()) > 2_000
        took.append(time.process_time() - begin)
        if took[-1] < 1.0:
            break
    assert took[-1] < 1.0


def _block(i: int) -> str:
    return f"""    %a{i} = arith.addi %n, %n : i32
    %q{i} = tt.addptr %p, %a{i} : !tt.ptr<f32>, i32
    %v{i} = tt.load %q{i} : !tt.ptr<f32>
    %z{i} = arith.constant 0 : i32
    %r{i} = scf.for %i{i} = %z{i} to %n step %a{i} iter_args(%c{i} = %v{i}) -> (f32)  : i32 {{
      %m{i} = arith.mulf %c{i}, %v{i} : f32
      %s{i} = arith.addf %m{i}, %v{i} : f32
      scf.yield %s{i} : f32
    }}
    tt.store %q{i}, %r{i} : !tt.ptr<f32>
"""


@cache
def _sample(name: str) -> Module:
    return reader.parse(ttgir_samples.text(name))


@cache
def _text(name: str) -> str:
    return readable(_sample(name)).text()
