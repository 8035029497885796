"""`pgo-agent init`: what a file says of its kernel stands in the skeleton, the rest is marked, and none of it runs."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pgo_agent.agent.commands.init import command, infer, outcome, render, scan
from pgo_agent.agent.commands.init.infer import Argument
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import ADD, pgo
from tests.conftest import ROOT

KERNEL = ADD[: ADD.index("def kernel")]
LAUNCHER = """
def add(x, y, out, scale=1.0):
    n = x.shape[0]
    _add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
"""


def init(text: str, folder: Path, launcher: str | None = None) -> str:
    """The skeleton for a file of this text."""
    (folder / "own.py").write_text(text)
    command.write(str(folder / "own.py"), launcher, folder / "made.py", force=False)
    return (folder / "made.py").read_text()


def liger(name: str) -> Path:
    spec = find_spec("liger_kernel")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "ops" / f"{name}.py"


def arguments(name: str, launcher: str) -> dict[str, Argument]:
    return {a.name: a for a in infer.guess(scan.read(liger(name), launcher)).arguments}


# what is found --------------------------------------------------------------------------------------------------------


def test_the_skeleton_is_a_target_with_everything_but_its_reference(tmp_path: Path) -> None:
    init(KERNEL + LAUNCHER, tmp_path)
    assert target.read(tmp_path / "made.py").name == "made"
    to_write, guessed = outcome.marks(tmp_path / "made.py")
    assert [line.partition(": ")[2] for line in to_write] == [
        'raise NotImplementedError("out, in plain PyTorch")  # to write'
    ]
    assert guessed


def test_shapes_are_read_off_the_launcher() -> None:
    rope = {n: a.dims for n, a in arguments("rope", "rope_forward").items()}
    assert rope["q"] == ("batch_size", "n_q_head", "seq_len", "head_dim")  # before the launcher transposes it
    assert rope["k"] == ("batch_size", "n_kv_head", "seq_len", "head_dim")
    assert rope["cos"] == rope["sin"] and len(rope["cos"] or ()) == 2


def test_a_dimension_that_is_compared_with_another_has_its_name() -> None:
    found = arguments("rms_norm", "rms_norm_forward")
    assert found["X"].dims == ("n_rows", "n_cols") and found["W"].dims == ("n_cols",)
    assert (found["eps"].dims, found["eps"].value, found["casting_mode"].value) == (None, 1e-6, None)


def test_what_the_kernels_store_to_is_the_result(tmp_path: Path) -> None:
    told = infer.guess(scan.read(liger("rms_norm"), "rms_norm_forward")).outputs
    assert [(o.name, o.place, o.allocated) for o in told] == [("Y", 0, True), ("RSTD", 2, True)]


def test_what_is_made_of_what_the_kernels_store_to_is_a_result_too(tmp_path: Path) -> None:
    made = infer.guess(scan.read(liger("layer_norm"), "layer_norm_backward")).outputs
    assert [(o.name, o.place) for o in made if o.reachable] == [("DX", 0), ("DW", 1), ("DB", 2)]


def test_a_size_of_what_is_stored_to_is_no_result(tmp_path: Path) -> None:
    made = init(KERNEL + LAUNCHER + "    rows = out.shape[0]\n    return out, rows\n", tmp_path)
    assert "return out\n" in made


def test_a_result_is_followed_through_the_branches_of_a_condition(tmp_path: Path) -> None:
    branches = "    if n > 3:\n        total = out.sum()\n    else:\n        total = out.mean()\n    loss = total * 2\n"
    made = init(KERNEL + LAUNCHER + branches + "    return loss\n", tmp_path)
    assert re.search(r"return (out, )?loss\n", made)


HANDED_ON = """
def _launch(a, b, to):
    flat = to.view(-1)
    n = a.shape[0]
    _add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](a, b, flat, n)


def _impl(first, second):
    result, count = torch.empty_like(first), 3
    _launch(first, second, result)
    return result, count


def add(x, y):
    return _impl(x, y)
"""
PICKED = HANDED_ON.replace("    return _impl(x, y)", "    made, _ = _impl(x, y)\n    return made * 2")


@pytest.mark.parametrize(
    ("text", "call", "result"),
    [
        (HANDED_ON, "result, _ = add(x, y)", "result"),
        (PICKED, "result0 = add(x, y)", "result0"),
        (PICKED.replace("made * 2", "x, made"), "_, made = add(x, y)", "made"),
        (
            LAUNCHER.replace("out, scale=1.0", "out") + "\n\ndef more(x, y, z):\n    add(x, y, z)\n",
            "more(x, y, z)",
            "z",
        ),
    ],
)
def test_results_are_followed_through_functions_of_the_file(text: str, call: str, result: str, tmp_path: Path) -> None:
    made = init(KERNEL + text, tmp_path)
    body = made[made.rindex("def kernel") :]
    assert f"    {call}" in body and f"    return {result}\n" in body
    assert '"x": tensor(case["a0"])' in made or '"x": tensor(case["n"])' in made  # as the inner function takes it apart


WRITTEN = """
def add(x, y, out: torch.Tensor | None = None):
    n = x.shape[0]
    out = out if out is not None else torch.empty_like(x)
    _add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
"""


@pytest.mark.parametrize("allocated", ["torch.empty_like(x)", "make(x)"])
def test_an_output_that_may_be_left_out_is_no_input(allocated: str, tmp_path: Path) -> None:
    made = init(KERNEL + WRITTEN.replace("torch.empty_like(x)", allocated), tmp_path)
    assert "    out = add(x, y)" in made and "IN_PLACE" not in made


def test_what_is_stored_to_through_a_view_is_what_it_is_a_view_of(tmp_path: Path) -> None:
    text = LAUNCHER.replace("x, y, out, n)", "x, y, flat, n)").replace("    n = ", "    flat = out.view(-1)\n    n = ")
    made = init(KERNEL + text + "    return flat\n", tmp_path)
    assert 'IN_PLACE = ("out",)' in made and "    out = add(x, y, out)" in made


def test_functions_that_call_each_other_are_read_once(tmp_path: Path) -> None:
    again = "\n\ndef more(x, y, out):\n    add(x, y, out)\n    return out\n"
    text = LAUNCHER.replace("    n = ", "    if x is y:\n        return more(x, y, out)\n    n = ") + again
    assert "return out\n" in init(KERNEL + text, tmp_path, "add")


def test_a_file_of_many_calls_is_read_in_no_time(tmp_path: Path) -> None:
    """Each function calls the next one four times: 4^16 ways."""
    deep = "".join(f"\n\ndef f{i}(x, y, out):\n" + f"    f{i + 1}(x, y, out)\n" * 4 for i in range(16))
    text = LAUNCHER.replace("def add(", "def f16(") + deep
    assert "return out\n" in init(KERNEL + text, tmp_path, "f0")


def test_a_skeleton_is_the_same_each_time(tmp_path: Path) -> None:
    text = LAUNCHER.replace("(x, y, out, scale=1.0)", "(x, y, out, *, c, b, a, f, e, d)")
    assert "add(x, y, out, c=c, b=b, a=a, f=f, e=e, d=d)" in init(KERNEL + text, tmp_path)


def test_what_is_returned_and_no_kernel_stores_to_is_told_of(tmp_path: Path) -> None:
    text = KERNEL + LAUNCHER + "    count = n * 2\n    return out, count\n"
    (tmp_path / "own.py").write_text(text)
    written = command.write(str(tmp_path / "own.py"), None, tmp_path / "made.py", force=False)
    assert written.outputs == ("out",)
    assert any("returned as well" in note and "count: not compared" in note for note in written.notes)


def test_arguments_that_are_written_are_named_and_returned_as_they_are(tmp_path: Path) -> None:
    made = init(KERNEL + LAUNCHER, tmp_path)
    assert "def kernel(x, y, out):\n    add(x, y, out)\n    return out\n" in made and 'IN_PLACE = ("out",)' in made


def test_the_configurations_of_an_autotuner_are_its_launch_space(tmp_path: Path) -> None:
    assert "LAUNCH_SPACE = {'BLOCK': [1024, 2048], 'num_warps': [4, 8]}" in init(KERNEL + LAUNCHER, tmp_path)


COMPREHENSION = """configs=[
    triton.Config({"BLOCK": b, "SPLIT": n // 2}, num_warps=w) for b in [64, 128] for w in (2, 4)]"""


def test_configurations_of_a_comprehension_are_read_and_what_only_a_run_tells_is_said(tmp_path: Path) -> None:
    own = re.sub(r"configs=\[.*?\](?=[,)])", COMPREHENSION, KERNEL, flags=re.S)
    assert own != KERNEL
    (tmp_path / "own.py").write_text(own + LAUNCHER)
    written = command.write(str(tmp_path / "own.py"), None, tmp_path / "made.py", force=False)
    assert "LAUNCH_SPACE = {'BLOCK': [64, 128], 'num_warps': [2, 4]}" in (tmp_path / "made.py").read_text()
    assert any("configurations set SPLIT to" in note for note in written.notes)


def test_a_launcher_that_is_called_kernel_stays_as_it_is(tmp_path: Path) -> None:
    made = init(KERNEL + LAUNCHER.replace("def add", "def kernel"), tmp_path)
    assert made.count("def kernel") == 1


def test_only_what_the_launcher_needs_comes_along(tmp_path: Path) -> None:
    made = init(KERNEL + "HELPER = 3\n" + LAUNCHER + "\n\ndef other():\n    return HELPER\n", tmp_path)
    assert "HELPER" not in made and "def _add" in made


def test_relative_imports_are_written_out(tmp_path: Path) -> None:
    package = tmp_path / "outer" / "inner"
    package.mkdir(parents=True)
    for folder in (tmp_path / "outer", package):
        (folder / "__init__.py").touch()
    text = (
        "from ..sizes import BLOCKS\nfrom . import usual\n"
        + KERNEL
        + LAUNCHER.replace("n = x", "usual(BLOCKS)\n    n = x")
    )
    made = init(text, package)
    assert "from outer.sizes import BLOCKS" in made and "from outer.inner import usual" in made


def test_a_module_that_only_lies_beside_the_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("BLOCK = 3\n")
    (tmp_path / "own.py").write_text("import sizes\n" + KERNEL + LAUNCHER.replace("n = x", "sizes.BLOCK\n    n = x"))
    written = command.write(str(tmp_path / "own.py"), None, tmp_path / "made.py", force=False)
    assert any("sizes only lies beside the file" in note for note in written.notes)


def test_nothing_of_the_file_is_run(tmp_path: Path) -> None:
    init(KERNEL + f"open({str(tmp_path / 'ran')!r}, 'w')\n" + LAUNCHER, tmp_path)
    assert not (tmp_path / "ran").exists()


def _launchers() -> Iterator[tuple[Path, str]]:
    for path in sorted(liger("rope").parent.glob("*.py")):
        known = scan.functions(ast.parse(path.read_text()))
        yield from ((path, name) for name in scan.launchers(known))


@pytest.mark.long
def test_every_launcher_of_a_whole_library_gives_a_skeleton_that_is_python() -> None:
    tried = list(_launchers())[::3]
    for path, name in tried:
        own = scan.read(path, name)
        ast.parse(render.write(own, infer.guess(own)))
    assert len(tried) > 15


# bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "launcher", "problem"),
    [
        ("x = 1\n", None, "defines no Triton kernel"),
        (KERNEL, None, "launches its kernels"),
        (KERNEL + LAUNCHER + LAUNCHER.replace("def add", "def more"), None, "has 2 launchers: add, more"),
        (KERNEL + LAUNCHER, "more", "more launches nothing"),
        (KERNEL + "def inputs(n):\n    return n\n" + LAUNCHER.replace("x.shape[0]", "inputs(x)"), None, "inputs"),
        ("def f(:\n", None, "is not Python"),
    ],
)
def test_a_file_that_no_target_can_be_made_of_is_refused_with_what_to_do(
    tmp_path: Path, text: str, launcher: str | None, problem: str
) -> None:
    with pytest.raises(UsageFault, match=problem) as fault:
        init(text, tmp_path, launcher)
    assert fault.value.hint and not (tmp_path / "made.py").exists()


def test_launches_of_methods_are_named(tmp_path: Path) -> None:
    method = "class Add(torch.autograd.Function):\n    @staticmethod" + LAUNCHER.replace("\n", "\n    ")
    with pytest.raises(UsageFault, match=r"only methods launch kernels: Add\.add"):
        init(KERNEL + method, tmp_path)


def test_the_file_that_is_read_is_never_written_over(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(KERNEL + LAUNCHER)
    with pytest.raises(UsageFault, match="never changed"):
        command.write(str(own), None, tmp_path / "." / "own.py", force=True)
    assert own.read_text() == KERNEL + LAUNCHER


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("mine")
    with pytest.raises(UsageFault, match="is there already"):
        init(KERNEL + LAUNCHER, tmp_path)
    assert (tmp_path / "made.py").read_text() == "mine"


def test_check_names_the_lines_that_are_to_be_written(tmp_path: Path) -> None:
    init(KERNEL + LAUNCHER, tmp_path)
    done = pgo("init", "--check", "made.py", cwd=tmp_path)
    assert done.code == 1 and "to write: made.py, line" in done.err and "NotImplementedError" in done.err


# a stranger's path ----------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "your-own-kernel.md").read_text()
CHECKED = [
    section for section in PAGE.split("\n## ")[1:] if "pgo-agent init --check" in section and "```diff" in section
]
SECTIONS = {section.split("\n")[0]: section for section in CHECKED}


def _fences(section: str, kind: str = "") -> list[str]:
    return [text for told, text in re.findall(r"^```(\w*)\n(.*?)^```$", section, re.M | re.S) if told == kind]


def _changed(text: str, diff: str) -> str:
    """The text with the lines of a diff in place of those that it takes away."""
    lines, at = text.split("\n"), -1
    for line in diff.splitlines():
        if line.startswith("-"):
            at = lines.index(line[1:])
            del lines[at]
        else:
            lines.insert(at, line[1:])
            at += 1
    return "\n".join(lines)


def test_the_page_is_about_three_operators() -> None:
    assert list(SECTIONS) == ["SwiGLU", "RMSNorm", "RoPE"]


@pytest.mark.slow
@pytest.mark.bwrap
@pytest.mark.parametrize("operator", SECTIONS)
def test_the_commands_of_the_page_make_an_operator_of_liger_kernel_a_sound_target(
    tmp_path: Path, operator: str
) -> None:
    first, then = _fences(SECTIONS[operator])
    (diff,) = _fences(SECTIONS[operator], "diff")
    assert pgo(*first.split()[1:], cwd=tmp_path).code == 0
    file = tmp_path / then.split()[-1]
    file.write_text(_changed(file.read_text(), diff))
    done = pgo(*then.split()[1:], "--judge", "cpu", cwd=tmp_path, seconds=900)
    assert done.code == 0, done.err
    assert "no_change" in done.err and "right on 2 small cases" in done.err
