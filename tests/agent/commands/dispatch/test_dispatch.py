"""`pgo-agent dispatch`: winners behind guards, by the real command line; right around every edge of every guard.

A made-up judge (`made_up.py`) stands in for a GPU where one is needed: its times are made up, the decision is not.
"""

import itertools
import json
from pathlib import Path

import pytest
from pgo_agent.agent.commands.dispatch import composition
from pgo_agent.agent.commands.dispatch.composition import Part
from pgo_agent.agent.commands.dispatch.guards import guard
from pgo_agent.agent.run.dispatch import Proof

from tests.agent.command_line import Done, pgo, write
from tests.agent.commands.dispatch.test_guards import tensor
from tests.agent.made_up import answering
from tests.sandbox import forked_python

pytestmark = pytest.mark.long  # a whole run, and judging around every guard

# what is written ------------------------------------------------------------------------------------------------------

DOUBLE = """import torch
import triton
import triton.language as tl


@triton.jit
def _double(x, z, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, 2 * tl.load(x + at * stride, mask=at < n), mask=at < n)


def kernel(x):
    z = torch.empty(x.shape, dtype=x.dtype)
    _double[(triton.cdiv(x.numel(), 1024),)](x, z, x.numel(), x.stride(0), BLOCK=1024)
    return z
"""
WHOLE = DOUBLE.replace(", mask=at < n", "").replace("at * stride", "at")  # for dense multiples of 1024 alone
RUN = """
import json, sys
import torch
names = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), names)
torch.cuda.get_device_name = lambda _device: sys.argv[2]
right = {}
for n, step in json.loads(sys.argv[3]):
    x = torch.randn(n * step)[::step]
    right[f"{n} by {step}"] = torch.equal(names["kernel"](x), 2 * x)
print(json.dumps(right))
"""
EDGES = [0, 1, 1023, 1024, 1025, 1040, 2047, 2048, 2049, 2064, 3072, 4095, 4096, 4097, 4112]


def ran(folder: Path, winner: str, gpu: str, sizes: list[tuple[int, int]]) -> tuple[dict[str, bool], str]:
    """What doubles numbers with a winner for 1024 and 4096 of them, in Triton's interpreter: size and step of a vector
    -> whether it is right; and what it printed."""
    made = guard([{"x": tensor(n, dtype="float32")} for n in (1024, 4096)], [], exact=True)
    assert made is not None
    text = composition.write(DOUBLE, [Part(winner, made, "It wins.")], "a GPU")
    assert "pgo_agent" not in text
    file = folder / "kernel.py"
    file.write_text(text.replace("x.is_cuda", "x.is_cpu"))
    done = forked_python.ran(RUN, file, gpu, json.dumps(sizes), interpreted=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)), done.stderr


def test_a_kernel_that_is_right_in_its_region_alone_is_right_around_every_edge(tmp_path: Path) -> None:
    right, _ = ran(tmp_path, WHOLE, "a GPU", list(itertools.product(EDGES, (1, 2))))
    assert all(right.values()) and len(right) == 2 * len(EDGES)


def test_on_another_gpu_the_original_runs_and_that_is_said_once(tmp_path: Path) -> None:
    thrice = DOUBLE.replace("2 * tl", "3 * tl")
    assert ran(tmp_path, thrice, "a GPU", [(1024, 1), (1000, 1)])[0] == {"1024 by 1": False, "1000 by 1": True}
    right, said = ran(tmp_path, thrice, "another GPU", [(1024, 1), (4096, 1)])
    assert right == {"1024 by 1": True, "4096 by 1": True}
    assert said.count("faster kernels were proven on a GPU, not on another GPU: the original runs") == 1


# the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of `add` whose winner was measured, by the made-up judge."""
    folder = tmp_path_factory.mktemp("measured")
    write(folder)
    with answering(folder):
        done = pgo("optimize", "add.py", "--judge", "spool:box", "--candidates", "2", cwd=folder)
    assert done.code == 0, done.out + done.err
    return folder


def proof(folder: Path) -> Proof:
    text = next((folder / ".pgo-agent" / "dispatch").glob("*/proof.json")).read_text()
    return Proof.from_json(json.loads(text))


def test_without_a_gpu_nothing_is_proven_and_nothing_is_applied(measured: Path) -> None:
    done = pgo("dispatch", "--judge", "cpu", cwd=measured)
    assert done.code == 4, done.out + done.err
    made = proof(measured)
    (region,) = made.regions
    assert {"1m", "16m"} < region.cases.keys() and set(region.cases.values()) == {None}
    assert {"16m n=16777217", "1m n=1048575", "1m n=0"} <= set(made.same)  # the launches are the original's there
    assert min(made.host_us.values()) > 0 and max(made.host_us.values()) < 100
    refused = pgo("apply", "--dispatch", "--yes", cwd=measured)
    assert refused.code == 2 and "is not proven" in refused.err


def judged(folder: Path, faster: float) -> Done:
    """The dispatch, judged by a GPU of made-up times on which it is so many times faster than the original."""
    if not list((folder / ".pgo-agent" / "dispatch").glob("*/original/add.py")):
        pgo("dispatch", "--judge", "cpu", cwd=folder)
    original = next((folder / ".pgo-agent" / "dispatch").glob("*/original/add.py"))
    with answering(folder, str(original.relative_to(folder)), faster=faster):
        return pgo("dispatch", "--judge", "spool:box", cwd=folder)


@pytest.mark.slow
def test_a_region_that_is_slower_in_all_its_cases_goes(measured: Path) -> None:
    done = judged(measured, 0.9)
    assert done.code == 2 and "no region of run" in done.err, done.out + done.err
    assert done.err.count("was narrowed: not so in 16m, 1m") == 1


def test_what_is_nowhere_slower_is_proven_and_applied(measured: Path) -> None:
    done = judged(measured, 1.25)
    assert done.code == 0 and done.out.startswith("not_slower") and "1.250x" in done.out, done.out + done.err
    applied = pgo("apply", "--dispatch", "--yes", cwd=measured)
    assert applied.code == 0, applied.err
    assert "def _region_1(x, y):" in (measured / "add.py").read_text()
    assert pgo("export", "--dispatch", "--to", "out", cwd=measured).code == 0
    text = (measured / "out" / "add.py").read_text()
    assert "behind guards, proven on NVIDIA H200" in text and "1m 1.250x" in text and "if _region_1(x, y):" in text
