"""Hostile answers of an interpreter: the judge's own process reads them, and must neither follow, hang nor grow.

Each is left by a real boxed process of the CPU judge in place of the outputs of tests/kernels/add.py.
"""

import resource
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.interpreter import tensors
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.interpreted.commands import CpuWorker
from pgo_agent.sandbox.judge.questions import Check, Open

from tests.sandbox.attacks.forging import Forger

ADD = Path(__file__).parents[2] / "kernels" / "add.py"
FORGE = """
request = json.loads((OUT.parent / "request.json").read_text())
view = {"t": 0, "dtype": "float32", "size": [2048], "stride": [1], "offset": 0}
outputs = {"name": "forged", "storages": 1, "values": {"0": view}}
(OUT / "forged.0.bin").write_bytes(bytes(4 * 2048))
FORGERY
answer = {case: [{"outputs": outputs, "changed": []}] for case in request["cases"]}
(OUT / "result.json").write_text(text if "text" in globals() else json.dumps(answer))
"""
FORGERIES = {
    "a name that is a path": "outputs['name'] = '../in/0'",
    "a name that is an absolute path": "outputs['name'] = '/dev/zero'",
    "a file that is a link to an endless one": "(OUT / 'forged.0.bin').unlink()\n"
    "os.symlink('/dev/zero', OUT / 'forged.0.bin')",
    "a file that is a FIFO": "(OUT / 'forged.0.bin').unlink(); os.mkfifo(OUT / 'forged.0.bin')",
    "a file larger than is read": "os.truncate(OUT / 'forged.0.bin', 1 << 30)",
    "a file with a second name": "os.link(OUT / 'forged.0.bin', OUT / 'b')",
    "files larger together than is read": "outputs['storages'] = 30\n"
    "for i in range(30): (OUT / f'forged.{i}.bin').touch(); os.truncate(OUT / f'forged.{i}.bin', 64 << 20)",
    "a quintillion files": "outputs['storages'] = 1 << 60",
    "fewer than no files": "outputs['storages'] = -1",
    "a view of a terabyte": "view['size'] = [1 << 38]",
    "a view of a terabyte in one number": "view |= {'size': [1 << 38], 'stride': [0]}",
    "a view before its storage": "view['offset'] = -1",
    "a view of another storage": "view['t'] = 7",
    "a type that is a function": "view['dtype'] = 'load'",
    "a number in place of a tensor": "outputs['values'] = {'0': {'plain': 5}}",
    "no outputs": "outputs['values'] = {}",
    "an answer nested deeper than Python reads": "text = '[' * 200_000 + ']' * 200_000",
    "an answer that is a list": "text = '[]'",
    "zeros": "pass",
}  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> CpuWorker:
    if not box.choose().isolates:
        pytest.skip("no sandbox works here")
    made = CpuWorker(lambda stage, seconds: None)
    made.open(Open(str(ADD), box.choose().python, contract="", sandbox="auto", device="h200", forks=()))
    made.stress.begin()  # the shipped kernel is not what this is about
    return made


@pytest.mark.parametrize("forgery", FORGERIES)
def test_it_gets_no_good_verdict_and_costs_the_judge_nothing(forgery: str, worker: CpuWorker) -> None:
    code = FORGE.replace("FORGERY", FORGERIES[forgery])
    worker.box = Forger(worker.box.kind, worker.box.python, code)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    judged = worker.check(Check(f"{worker.target.source}\n", foreign=True))
    assert judged.verdict in (Verdict.CRASHED, Verdict.WRONG), judged
    assert (judged.verdict == Verdict.WRONG) == (forgery in ("zeros", "no outputs")), judged
    assert time.monotonic() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 640 << 10  # KiB; 1 GiB was offered


def test_torch_itself_makes_the_storage_as_large_as_a_view_wants() -> None:
    storage = torch.zeros(4, dtype=torch.uint8).untyped_storage()
    torch.empty(0, dtype=torch.uint8).set_(storage, 0, (1 << 20,), (1,))
    assert storage.nbytes() == 1 << 20


def test_what_was_saved_loads_again(tmp_path: Path) -> None:
    base = torch.arange(12, dtype=torch.float16)
    given: dict[str, Any] = {"a": base[2:8].reshape(2, 3).T, "b": [base, 1.5], "c": None, "d": torch.empty(0)}
    again = tensors.load(tensors.save(given, tmp_path, "0-1"), tmp_path)
    assert torch.equal(again["a"], given["a"]) and again["a"].stride() == given["a"].stride()
    assert torch.equal(again["b"][0], base) and again["b"][1] == 1.5 and again["c"] is None and again["d"].numel() == 0
