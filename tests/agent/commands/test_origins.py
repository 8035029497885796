"""What a run changed goes back into the file that a target was taken from, or is refused with the reason."""

from pathlib import Path

import pytest
from pgo_agent.agent.commands import origins
from pgo_agent.agent.moves.analysis.decorators import as_decorators
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import TargetMoved, UsageFault

KERNEL = """@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i, i < n), i < n)
"""
LAUNCHER = """def run(x):
    double[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024)
    return x
"""
IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
FILE = f"{IMPORTS}\nSIZE = 3\n\n\n# twice\n{KERNEL}\n\n{LAUNCHER}\n\nprint(SIZE)\n"
PART = f"{IMPORTS}\n\n# twice\n{KERNEL}\n\n{LAUNCHER}\n\n"
REST = """def kernel(x):
    return run(x.clone())


# The contract
{}


def reference(x):
    return 2 * x


def inputs(case, generator):
    return {{"x": torch.ones(8, device=generator.device)}}


CASES = SMALL = HELD_OUT = {{"a": {{}}}}


def flops(case):
    return 8


def bytes_moved(case):
    return 64
"""


@pytest.fixture
def taken(tmp_path: Path) -> target.Target:
    """A target beside the file that it was taken from."""
    file, to = tmp_path / "mine.py", tmp_path / "t.py"
    file.write_text(FILE)
    to.write_text(PART + REST.format("\n".join(origins.lines(PART, [file], to, tmp_path))))
    return target.read(to)


def test_a_changed_function_is_put_back_where_it_stood(taken: target.Target) -> None:
    path, old, new = origins.changed(taken, taken.source.replace("BLOCK=1024", "BLOCK=1024, num_warps=8"))
    assert (path, old) == (taken.path.with_name("mine.py"), FILE)
    assert new == FILE.replace("BLOCK=1024", "BLOCK=1024, num_warps=8")


def test_a_new_helper_comes_before_its_first_use_with_the_import_that_it_needs(taken: target.Target) -> None:
    helper = "def blocks(n):\n    return math.ceil(n / 1024)\n\n\n"
    winner = "import math\n" + taken.source.replace("def run", f"{helper}def run").replace(
        "triton.cdiv(x.numel(), 1024)", "blocks(x.numel())"
    )
    _, _, new = origins.changed(taken, winner)
    compile(new, "new", "exec")
    assert new.index("import math") < new.index("def blocks") < new.index("def run(x)") < new.index("print(SIZE)")
    assert "# twice\n@triton.jit" in new and "def reference" not in new


def test_assignments_that_make_a_kernel_go_where_it_becomes_a_decorated_function(tmp_path: Path) -> None:
    made = 'double = triton.jit(double)\ndouble = triton.heuristics({"BLOCK": lambda args: 1024})(double)\n'
    part = (
        PART.replace("@triton.jit\n", "").replace("\n\ndef run", f"\n\n{made}\n\ndef run").replace(", BLOCK=1024", "")
    )
    file, to = tmp_path / "mine.py", tmp_path / "t.py"
    file.write_text(part + "\n\nprint(3)\n")
    to.write_text(part + REST.format("\n".join(origins.lines(part, [file], to, tmp_path))))
    subject = target.read(to)
    _, _, new = origins.changed(subject, as_decorators(subject.source, ["double"]))
    assert new.count("double = ") == 0 and new.index("# twice\n@triton.heuristics") < new.index(
        "@triton.jit\ndef double"
    )
    assert new.index("def double") < new.index("def run(x)") < new.index("print(3)")
    (_, _, changed) = origins.changed(subject, subject.source.replace("2 * tl.load", "tl.load"))
    assert changed == file.read_text().replace("2 * tl.load", "tl.load")


def test_a_file_that_changed_since_is_refused(taken: target.Target) -> None:
    taken.path.with_name("mine.py").write_text(FILE.replace("SIZE = 3", "SIZE = 4"))
    with pytest.raises(TargetMoved, match="changed since `init` read it"):
        origins.changed(taken, taken.source.replace("2 * tl.load", "tl.load"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("run(x.clone())", "run(x + 0)", "its changes belong in 0 of the files"),
        ("2 * x\n", "2 * x  # theirs\n", "changes no function"),
        ("x, x.numel()", "x, other", "has no other, which the candidate uses"),
    ],
)
def test_what_belongs_in_no_file_is_refused(taken: target.Target, old: str, new: str, why: str) -> None:
    with pytest.raises(UsageFault, match=why):
        origins.changed(taken, taken.source.replace(old, new))


def test_a_target_that_was_taken_from_nothing_says_so(taken: target.Target) -> None:
    taken.path.write_text(PART + REST.format(""))
    with pytest.raises(UsageFault, match="does not say what it was taken from"):
        origins.changed(target.read(taken.path), taken.source.replace("2 * tl.load", "tl.load"))
